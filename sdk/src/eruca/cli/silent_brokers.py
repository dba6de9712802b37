"""Brokers that do not answer: the data of the others is shown nevertheless.

Such an answer is incomplete. So the command names the missing brokers, and its exit code is 1. A
broker that no name server knows any more would not even be called. But the query services have read
its log, and know it until an operator drops it.
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
    """Return the brokers whose logs query services have read and that no name server knows now.

    Empty if no query service answers.
    """
    from eruca.contract.errors import BrokerNotFoundError, ErucaError

    with suppress(ErucaError, TimeoutError):
        async with asyncio.timeout(_AWAY_SECONDS):
            followed = {log.broker_name for log in (await client.query.status()).followed}
            known = {group.broker_name for group in await client.admin.brokers()}
        return {
            name: BrokerNotFoundError(
                "no name server knows it now",
                fix=f"start it; for a broker that was removed for good: eruca query forget {name}",
            )
            for name in followed - known
        }
    return {}


async def missed(client: AsyncClient, *, without: Collection[str] = ()) -> list[str]:
    """Return the brokers that a change has not reached, except those *without*."""
    return sorted((await away(client)).keys() - set(without))


@asynccontextmanager
async def noted(client: AsyncClient) -> AsyncIterator[None]:
    """Add a note to not-found errors about brokers that are away and may have the object."""
    from eruca.contract.errors import NotFoundError

    try:
        yield
    except NotFoundError as error:
        for name in await missed(client):
            error.add_note(f"{name} is away, and may have it")
        raise


def report_unreached(session: Session, names: Iterable[str]) -> int:
    """Report the brokers that a change has not reached; return the exit code."""
    code = 0
    for name in names:
        session.say(
            f"{name} was not changed: no name server knows it now. To fix it: start it, and"
            " repeat the command; for a broker that was removed for good: eruca query forget"
            f" {name}"
        )
        code = EXIT_FAILED
    return code


def said(
    session: Session, unanswered: Mapping[str, ErucaError], *, is_in_document: bool = True
) -> int:
    """Report the brokers that do not answer; return the exit code.

    Args:
        session: The command's.
        unanswered: The error of each of them, by name.
        is_in_document: Whether the JSON output already contains them; a JSON list does not.
    """
    if not (session.is_json and is_in_document):
        for name, error in sorted(unanswered.items()):
            fix = f". To fix it: {error.fix}" if error.fix else ""
            session.say(f"{name} does not answer: {error.detail}{fix}")
    return EXIT_FAILED if unanswered else 0


def documents(unanswered: Mapping[str, ErucaError]) -> dict[str, object]:
    """Return them as JSON data, by broker name."""
    return {name: error.problem() for name, error in sorted(unanswered.items())}
