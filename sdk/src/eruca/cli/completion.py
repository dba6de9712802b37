"""Shell completion of names: topics, groups and brokers, read from the cluster.

A command's parameter is completed by its name (``NAMES``), so that no command can omit it. The user
who presses Tab waits for the answer. So it has a short time limit, and failures complete nothing.
An error message would be written into the line that is being typed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from eruca.cli.session import Session

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient

COMPLETION_SECONDS: Final = 1.0  # for the cluster's answer, while the user waits

_LATE: Final = ("eruca.aio.admin", "eruca.aio.group_admin")
"""Modules that a client imports at its first request."""

Ask = Callable[["AsyncClient"], Awaitable[Iterable[str]]]


async def _topics(client: AsyncClient) -> Iterable[str]:
    from eruca.contract.names import is_made_by_system

    return [name for name in await client.admin.list_topics() if not is_made_by_system(name)]


async def _groups(client: AsyncClient) -> Iterable[str]:
    return await client.admin.groups.list(unanswered={})  # some brokers' names are better than none


async def _brokers(client: AsyncClient) -> Iterable[str]:
    return [broker.broker_name for broker in await client.admin.brokers()]


NAMES: Final[Mapping[str, Ask]] = {
    "topic": _topics,
    "group": _groups,
    "broker": _brokers,
    "brokers": _brokers,
}
"""The request that completes a parameter of this name."""


def completed(name: str, hint: Any) -> Any:  # noqa: ANN401 - a type of any kind
    """Return the type *hint* of the parameter *name*, with completion if *name* has one.

    Args:
        name: The parameter's name in the command's function.
        hint: ``Annotated`` with typer's option or argument.
    """
    if name not in NAMES:
        return hint
    kind, about = get_args(hint)
    own = copy(about)  # some options are shared by several commands
    own.autocompletion = _completer(NAMES[name])
    return Annotated[kind, own]


def _completer(ask: Ask) -> Callable[[typer.Context, str], list[str]]:
    # typer recognises the two parameters by type, or by these names if they have no type.
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        session = Session(
            _given(ctx, "namesrv"),
            api_key_file=_given(ctx, "api_key_file"),
            ca_file=_given(ctx, "ca_file"),
        )
        names = _asked(ask, session)
        return sorted({name for name in names if name.startswith(incomplete)})

    return complete


def _given(context: typer.Context, name: str) -> str | None:
    """Return a shared option in the typed line, before or after the command."""
    found: Any = context
    while found is not None:
        if (value := found.params.get(name)) is not None:
            return str(value)
        found = found.parent
    return None


def _asked(ask: Ask, session: Session) -> Iterable[str]:
    from eruca.contract.errors import ErucaError

    async def names() -> Iterable[str]:
        async with session.client() as client, asyncio.timeout(COMPLETION_SECONDS):
            return await ask(client)

    for module in _LATE:  # importing takes time, too, but it must not cause a timeout
        import_module(module)
    logging.disable()  # warnings about retries would be written into the line, too
    try:
        return asyncio.run(names())
    except (ErucaError, OSError):  # a TimeoutError is an OSError
        return []
    finally:
        logging.disable(logging.NOTSET)
