"""Brokers that do not answer: what the others say is shown all the same.

Such an answer is not whole, so the command says who is missing, and its exit code is 1. A broker
that no name server knows any more would not even be asked; the query services have read its log,
and know of it until they are told to forget it.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from eruca.cli.command import EXIT_FAILED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping

    from eruca.aio.client import AsyncClient
    from eruca.cli.session import Session
    from eruca.contract.errors import ErucaError

_AWAY_SECONDS: Final = 5.0  # as long as the doctor waits for a service


async def away(client: AsyncClient) -> dict[str, ErucaError]:
    """Return the brokers whose log query services have read and that no name server knows now.

    Who has no query service that answers cannot know of any: to them there is none.
    """
    from eruca.contract.errors import BrokerNotFoundError, ErucaError

    with suppress(ErucaError, TimeoutError):
        async with asyncio.timeout(_AWAY_SECONDS):
            followed = {log.broker_name for log in (await client.query.status()).followed}
            known = {group.broker_name for group in await client.admin.brokers()}
        return {
            name: BrokerNotFoundError(
                "no name server knows it now",
                fix=f"start it; one that was taken away for good: eruca query forget {name}",
            )
            for name in followed - known
        }
    return {}


async def missed(client: AsyncClient, *, without: Collection[str] = ()) -> list[str]:
    """Return the brokers that a change of all has not reached, but for those known to be gone."""
    return sorted((await away(client)).keys() - set(without))


@asynccontextmanager
async def noted(client: AsyncClient) -> AsyncIterator[None]:
    """Have what no broker knows be told with those that are away: one of them may know it."""
    from eruca.contract.errors import NotFoundError

    try:
        yield
    except NotFoundError as error:
        for name in await missed(client):
            error.add_note(f"{name} is away, and may know it")
        raise


def untold(session: Session, names: Iterable[str]) -> int:
    """Say which brokers a change has not reached, and return the exit code."""
    code = 0
    for name in names:
        session.say(
            f"{name} has not been told: no name server knows it now. To mend it: start it, and "
            f"repeat the command; one that was taken away for good: eruca query forget {name}"
        )
        code = EXIT_FAILED
    return code


def said(
    session: Session, unanswered: Mapping[str, ErucaError], *, is_in_document: bool = True
) -> int:
    """Say which brokers do not answer, and return the exit code.

    Args:
        session: The command's.
        unanswered: How each of them does not, by its name.
        is_in_document: Whether JSON tells them already; a list has no room for them.
    """
    if not (session.is_json and is_in_document):
        for name, error in sorted(unanswered.items()):
            fix = f". To mend it: {error.fix}" if error.fix else ""
            session.say(f"{name} does not answer: {error.detail}{fix}")
    return EXIT_FAILED if unanswered else 0


def documents(unanswered: Mapping[str, ErucaError]) -> dict[str, object]:
    """Return them as JSON has them, by broker name."""
    return {name: error.problem() for name, error in sorted(unanswered.items())}
