"""The view of the list of undecided transactions, parked ones first, then by age."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from eruca.contract.errors import ErucaError
from eruca.contract.transactions import TransactionSummary
from eruca_console.core import recipes
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

READ_MAX: Final = 1_000  # transactions of each state
COLUMNS: Final = ("state", "begun", "topic", "group", "checks")
_PARKED: Final = "parked"


async def view(visit: Visit) -> Shown:
    """Return a page of the undecided transactions."""
    state = ListState.of("/transactions", visit.query, columns=COLUMNS)
    parked, pending = await asyncio.gather(
        visit.reading.transactions("parked", READ_MAX),
        visit.reading.transactions("pending", READ_MAX),
    )
    # One that was parked between the two answers is in both.
    places = {(one.broker_name, one.transaction_id) for one in parked.value.value}
    rows = [
        *parked.value.value,
        *(
            one
            for one in pending.value.value
            if (one.broker_name, one.transaction_id) not in places
        ),
    ]
    silent: dict[str, ErucaError] = {**parked.value.silent, **pending.value.silent}
    is_cut = READ_MAX in (len(parked.value.value), len(pending.value.value))
    shown = listed(
        rows,
        state,
        name_of=lambda one: " ".join(
            (one.transaction_id, one.producer_group, one.topic, one.broker_name)
        ),
        key_of={
            "state": lambda one: (one.state != _PARKED, one.begun_at),
            "begun": lambda one: one.begun_at,
            "topic": lambda one: one.topic,
            "group": lambda one: one.producer_group,
            "checks": lambda one: one.checks,
        },
        is_whole=visit.wants_file,
    )
    values: dict[str, Any] = {
        "answered": parked,
        "names": sorted({*parked.value.names} & {*pending.value.names}),
        "silent": silent,
        "parked_count": _count(parked.value.value, silent),
        "pending_count": _count(rows[len(parked.value.value) :], silent),
        "list": shown,
        "state": shown.state,
        "is_cut": is_cut,
        "read_max": READ_MAX,
    }
    table = CsvTable(
        "transactions",
        (
            *("transaction_id", "state", "broker", "topic", "producer_group", "begun_at"),
            *("checks", "last_check_at"),
        ),
        [
            (
                *(one.transaction_id, one.state, one.broker_name, one.topic, one.producer_group),
                *(one.begun_at, one.checks, one.last_check_at),
            )
            for one in shown.rows
        ],
        is_whole=not (silent or is_cut),
    )
    recipe = recipes.Recipe(
        recipes.curl(
            f"{await visit.reading.any_broker_url()}/v1/transactions", has_key=visit.has_key
        ),
        recipes.python(
            visit.namesrv_urls,
            "for one in client.admin.transactions.undecided():",
            "    print(one.transaction_id, one.state, one.topic, one.begun_at, one.checks)",
        ),
        recipes.cli("txn", "list"),
    )
    return Shown(N_("Transactions"), values, recipe, table)


def _count(found: Sequence[TransactionSummary], silent: Mapping[str, ErucaError]) -> int | None:
    """Return the number; None: a broker's part is missing, or not all are read."""
    return None if silent or len(found) >= READ_MAX else len(found)


PAGE: Final = Page("transactions", "/transactions", "transactions", view)
