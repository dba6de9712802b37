"""Validate a transaction producer's settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from eruca.contract.errors import ValidationError
from eruca.contract.limits import CHECK_IMMUNITY_SECONDS_MAX, CHECKS_TAKEN_MAX
from eruca.core.checked_names import check_own_group
from eruca.core.checked_numbers import check_count, check_range, checked_seconds
from eruca.core.producing.transactions import HalfMessage, TransactionCheck, Verdict
from eruca.core.routing.latency_fault import LatencyProfile
from eruca.core.routing.services import TXN_CHECKER

CheckFunction: TypeAlias = Callable[[TransactionCheck], Verdict | Awaitable[Verdict | None] | None]
"""Returns the outcome of a transaction; None means ``unknown``."""
LocalCode: TypeAlias = Callable[[HalfMessage], Verdict | Awaitable[Verdict | None] | None]
"""The local work of a transaction; returns its outcome; None means ``unknown``."""
OnError: TypeAlias = Literal["unknown", "rollback"]
"""The outcome if local code raises."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """A transaction producer's settings."""

    group: str
    check: CheckFunction | None
    check_concurrency: int
    checker_urls: tuple[str, ...]  # empty: read from the name servers
    latency_fault: bool | LatencyProfile
    retries_max: int
    send_timeout_seconds: float
    decision_timeout_seconds: float
    await_decisions: bool

    @classmethod
    def resolve(
        cls,
        environment: Mapping[str, str],
        group: str,
        *,
        check: CheckFunction | None,
        check_concurrency: int,
        checker_urls: str | Iterable[str] | None,
        latency_fault: bool | LatencyProfile,
        retries_max: int,
        send_timeout_seconds: float,
        decision_timeout_seconds: float,
        await_decisions: bool = True,
    ) -> TransactionSettings:
        """Return the settings.

        Raises:
            ValidationError: A setting is invalid; the error names it and its source.
        """
        check_own_group(group)
        if check is not None and not callable(check):
            raise ValidationError(f"check: expected a function, found {check!r}")
        check_count("check_concurrency", check_concurrency, 1, CHECKS_TAKEN_MAX)
        check_count("retries_max", retries_max, 0)
        return cls(
            group,
            check,
            check_concurrency,
            TXN_CHECKER.given(environment, checker_urls, "checker_urls"),
            latency_fault,
            retries_max,
            checked_seconds(send_timeout_seconds, "send_timeout_seconds"),
            checked_seconds(decision_timeout_seconds, "decision_timeout_seconds"),
            await_decisions,
        )


def checked_immunity(seconds: float | None) -> float | None:
    """Return the time in which a transaction is not checked; raise ValidationError if invalid."""
    if seconds is not None:
        check_range("check_immunity_seconds", seconds, 0, CHECK_IMMUNITY_SECONDS_MAX)
    return seconds


def checked_on_error(on_error: OnError) -> OnError:
    """Return the outcome after an error; raise ValidationError if it is invalid."""
    if on_error not in ("unknown", "rollback"):
        raise ValidationError(
            f'on_error: expected "unknown" or "rollback", found {on_error!r}',
            fix='use "unknown", unless an error certainly undoes the local work',
        )
    return on_error
