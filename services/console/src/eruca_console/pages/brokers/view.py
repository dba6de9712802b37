"""The view of the list of brokers and their replicas."""

from __future__ import annotations

from typing import Any, Final

from eruca.contract.errors import BrokerNotFoundError, ErucaError
from eruca_console.cluster.outcomes import Outcome, outcomes
from eruca_console.cluster.replicas import ReplicaRow, replica_rows
from eruca_console.core import recipes
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

COLUMNS: Final = ("name", "epoch", "behind")


async def view(visit: Visit) -> Shown:
    """Return a page of the replicas of all brokers."""
    state = ListState.of("/brokers", visit.query, columns=COLUMNS)
    reading = visit.reading
    live = await reading.brokers()
    addresses = {
        (group.broker_name, number): address
        for group in live.value
        for number, address in enumerate(group.brokers)
    }
    statuses = await outcomes(addresses, lambda place: reading.replica(addresses[place]))
    rows: list[ReplicaRow] = []
    for group in live.value:
        name = group.broker_name
        rows += replica_rows(
            name,
            [(address, statuses[name, number]) for number, address in enumerate(group.brokers)],
        )
    absent = await reading.absent()
    rows += [ReplicaRow(name, None, None, Outcome(), None) for name in absent]
    silent: dict[str, ErucaError] = dict(absent)
    for row in rows:
        if row.status.error is not None and not row.status.is_forbidden:
            silent[_name_of(row)] = row.status.error
    with_master = {row.broker_name for row in rows if row.is_master}
    for group in live.value:
        if group.broker_name not in with_master:
            silent[group.broker_name] = BrokerNotFoundError("it has no master now")
    shown = listed(
        rows,
        state,
        name_of=_name_of,
        key_of={
            "name": lambda row: (row.broker_name, not row.is_master, row.replica_id or 0),
            "epoch": lambda row: None if row.address is None else row.address.epoch,
            "behind": lambda row: row.behind_bytes,
        },
        is_whole=visit.wants_file,
    )
    values: dict[str, Any] = {
        "live": live,
        "silent": silent,
        "names": sorted({group.broker_name for group in live.value} - silent.keys()),
        "list": shown,
        "state": shown.state,
    }
    table = CsvTable(
        "brokers",
        ("broker", "replica", "role", "epoch", "end", "behind_bytes", "in_sync", "problem", "urls"),
        [
            (
                *(row.broker_name, row.replica_id, row.address.role if row.address else "away"),
                *(row.address.epoch if row.address else None, row.end, row.behind_bytes),
                *(row.is_in_sync, row.problem, " ".join(row.urls)),
            )
            for row in shown.rows
        ],
        is_whole=not silent,
    )
    namesrv = visit.namesrv_urls.split(";")[0]
    recipe = recipes.Recipe(
        recipes.curl(f"{namesrv}/v1/brokers", has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            "for group in client.admin.brokers():",
            "    for one in group.brokers:",
            "        print(group.broker_name, one.replica_id, one.role, one.epoch)",
        ),
        recipes.cli("broker", "list"),
    )
    return Shown(N_("Brokers"), values, recipe, table)


def _name_of(row: ReplicaRow) -> str:
    return row.broker_name if row.replica_id is None else f"{row.broker_name} {row.replica_id}"


PAGE: Final = Page("brokers", "/brokers", "brokers", view)
