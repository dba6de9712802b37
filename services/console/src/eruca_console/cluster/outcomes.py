"""The outcome of one question: its answer, or why there is none.

A page shows what it has. A part without an answer says why: its server is away, or its caller lacks
a right. A request without valid credentials is not an outcome: the whole page needs a login.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, TypeVar

from eruca.contract.errors import (
    ErucaError,
    ForbiddenError,
    NotFoundError,
    UnauthenticatedError,
)
from eruca_console.cluster.cache import Answered

PARALLEL_MAX: Final = 16  # questions of one page at a time

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T_co]):
    """An answer or an error; exactly one of the two.

    Attributes:
        value: The answer.
        at: When it was got.
        error: The reason why there is none.
    """

    value: T_co | None = None
    at: datetime | None = None
    error: ErucaError | None = None

    @property
    def is_known(self) -> bool:
        """True if there is an answer."""
        return self.error is None

    def check(self) -> None:
        """Raise the error; an answer raises nothing. For files, which have no place for it."""
        if self.error is not None:
            raise self.error

    @property
    def is_forbidden(self) -> bool:
        """True if the caller lacks a right."""
        return isinstance(self.error, ForbiddenError)

    @property
    def is_missing(self) -> bool:
        """True if what was asked for does not exist."""
        return isinstance(self.error, NotFoundError)


async def outcome(question: Awaitable[Answered[T]]) -> Outcome[T]:
    """Return the outcome of a question.

    Raises:
        UnauthenticatedError: The caller has no valid credentials.
    """
    try:
        answered = await question
    except UnauthenticatedError:
        raise
    except ErucaError as error:
        return Outcome(error=error)
    return Outcome(answered.value, answered.at)


async def outcomes(
    keys: Iterable[K], ask: Callable[[K], Awaitable[Answered[T]]]
) -> Mapping[K, Outcome[T]]:
    """Return the outcome for each key; a bounded number is asked for at a time."""
    slots = asyncio.Semaphore(PARALLEL_MAX)
    wanted = list(dict.fromkeys(keys))

    async def one(key: K) -> Outcome[T]:
        async with slots:
            return await outcome(ask(key))

    return dict(zip(wanted, await asyncio.gather(*map(one, wanted)), strict=True))
