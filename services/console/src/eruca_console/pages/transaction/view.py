"""The view of one transaction: its events by its broker, and its checks by a checker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.bodies import body_view
from eruca_console.core.listing import check_parameters
from eruca_console.core.log_places import log_offset_of
from eruca_console.core.texts import N_
from eruca_console.shell.pages import Page, Shown, Visit

STATES: Final[Mapping[str, str]] = {
    "pending": N_("pending"),
    "parked": N_("parked"),
    "committed": N_("committed"),
    "rolled_back": N_("rolled back"),
    "not_begun": N_("not begun"),
}
EVENTS: Final[Mapping[str, str]] = {
    "begun": N_("begun"),
    "checked": N_("checked"),
    "committed": N_("committed"),
    "rolled_back": N_("rolled back"),
    "parked": N_("parked"),
    "carried": N_("half message stored again"),
}
DECIDERS: Final[Mapping[str, str]] = {
    "producer": N_("the producer"),
    "check": N_("the answer to a check"),
    "operator": N_("an operator"),
    "limit": N_("nobody: the checks were used up"),
}
ANSWERS: Final[Mapping[str, str]] = {
    "commit": N_("commit"),
    "rollback": N_("roll back"),
    "unknown": N_("unknown"),
}


async def view(visit: Visit) -> Shown:
    """Return a transaction.

    Raises:
        TransactionNotFoundError: Its broker does not know it.
    """
    broker_name, transaction_id = visit.path["broker"], visit.path["transaction_id"]
    path = f"/transactions/{broker_name}/{quote(transaction_id, safe='')}"
    check_parameters(visit.query, ("log_offset",))
    log_offset = log_offset_of(visit.query.get("log_offset", ""))
    reading = visit.reading
    found, checks = await asyncio.gather(
        reading.transaction(broker_name, transaction_id),
        outcome(reading.checks(broker_name, transaction_id)),
    )
    past = (
        None
        if log_offset is None
        else await outcome(reading.transaction_as_of(broker_name, transaction_id, log_offset))
    )
    detail = found.value.detail
    values: dict[str, Any] = {
        "path": path,
        "log_offset": log_offset,
        "past": past,
        "found": found,
        "transaction": detail,
        "checks": checks,
        "body": None if found.value.body is None else body_view(found.value.body),
        "states": STATES,
        "events": EVENTS,
        "deciders": DECIDERS,
        "answers": ANSWERS,
        "may_be_decided": detail.state in ("pending", "parked"),
    }
    url = await visit.reading.url_of_broker(broker_name)
    recipe = recipes.Recipe(
        recipes.curl(f"{url}/v1/transactions/{quote(transaction_id)}", has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            f"found = client.admin.transactions.get({transaction_id!r},"
            f" broker_name={broker_name!r})",
            "for event in found.history:",
            "    print(event.at, event.event, event.by, event.reason)",
        ),
        recipes.cli("txn", "show", transaction_id, "--broker", broker_name),
    )
    return Shown(transaction_id, values, recipe)


PAGE: Final = Page(
    "transaction",
    "/transactions/{broker}/{transaction_id}",
    "transactions",
    view,
    parents=((N_("Transactions"), "/transactions"),),
    is_named=True,
)
