"""``eruca query forget``: drop a broker that was removed for good from all read models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from eruca.cli.asking import YesOption, confirmed
from eruca.cli.command import EXIT_FAILED, command
from eruca.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eruca.contract.errors import ErucaError

_FORGOTTEN: Final = "forgotten"
_NOT_FOLLOWED: Final = "not followed"
_NO_INSTANCE: Final = "none runs"
_SAID: Final = {
    _FORGOTTEN: "{who}: {broker} is forgotten",
    _NOT_FOLLOWED: "{who}: {broker} is unknown there",
    _NO_INSTANCE: "{who}: none is running",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "forget")(forget)


async def forget(
    session: Session,
    *,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker's name.")],
    yes: YesOption = False,
) -> int:
    """Forget a broker that was removed for good: drop its data.

    Until then, answers report that they may lack messages of that broker. The query service drops
    the data from its log. The transaction checker drops its transactions, undecided ones included.
    Stop the broker first. If it returns under this name, its log is read from the beginning.
    """
    if not yes and not await confirmed(_question(broker)):
        return EXIT_FAILED
    async with session.client() as client:
        outcomes = {
            "query service": await _outcome(client.query.forget, broker),
            "transaction checker": await _outcome(client.admin.transactions.forget, broker),
        }
    errors = [error for error in outcomes.values() if not isinstance(error, str)]
    told = {who: outcome for who, outcome in outcomes.items() if isinstance(outcome, str)}
    if not errors and _FORGOTTEN not in told.values():
        errors = [_nobody_knows(broker, told)]
    elif session.is_json:
        session.show_json(
            {"broker": broker}
            | {who.replace(" ", "_"): told.get(who, "failed") for who in outcomes}
        )
    else:
        for who, outcome in told.items():
            session.say(_SAID[outcome].format(who=who, broker=broker))
    for error in errors:
        raise error
    return 0


async def _outcome(ask: Callable[[str], Awaitable[None]], broker: str) -> str | ErucaError:
    """Return the outcome at one of the services."""
    from eruca.contract.errors import BrokerNotFoundError, ErucaError, NoRouteError

    try:
        await ask(broker)
    except BrokerNotFoundError:
        return _NOT_FOLLOWED
    except NoRouteError:
        return _NO_INSTANCE
    except ErucaError as error:
        return error
    return _FORGOTTEN


def _nobody_knows(broker: str, told: dict[str, str]) -> ErucaError:
    from eruca.contract.errors import BrokerNotFoundError, NoRouteError
    from eruca.core.routing.services import QUERY_SERVICE

    if _NOT_FOLLOWED in told.values():
        who = " and ".join(who for who, outcome in told.items() if outcome == _NOT_FOLLOWED)
        return BrokerNotFoundError(
            f"the {who} does not know {broker}: its log was never followed, or is already"
            " forgotten",
            fix="list the known brokers: eruca query status",
        )
    return NoRouteError(
        "neither a query service nor a transaction checker is known",
        fix=QUERY_SERVICE.how_to_have_one,
    )


def _question(broker: str) -> str:
    return (
        f"Drop everything that the query service and the transaction checker know of {broker},"
        " undecided transactions included?"
    )
