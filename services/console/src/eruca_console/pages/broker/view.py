"""The view of one broker: its registrations, its processes, its row and history at the arbiter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from eruca.contract.errors import BrokerNotFoundError
from eruca_console.cluster.outcomes import outcome, outcomes
from eruca_console.cluster.replicas import replica_rows
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.shell.pages import Page, Shown, Visit

CHANGES: Final[Mapping[str, str]] = {
    "created": N_("created"),
    "changed": N_("changed"),
    "removed": N_("removed"),
}


async def view(visit: Visit) -> Shown:
    """Return a broker.

    Raises:
        BrokerNotFoundError: No process of this name is registered, nor was one lately.
    """
    check_parameters(visit.query, ())
    name = visit.path["broker"]
    reading = visit.reading
    live = await reading.brokers()
    groups = [group for group in live.value if group.broker_name == name]
    if not groups and name not in await reading.away():
        raise BrokerNotFoundError(
            f"no process of {name[:80]!r} is registered", fix="choose a broker of the list"
        )
    addresses = dict(enumerate(one for group in groups for one in group.brokers))
    row, history, statuses = await asyncio.gather(
        outcome(reading.broker_group(name)),
        outcome(reading.broker_history(name)),
        outcomes(addresses, lambda number: reading.replica(addresses[number])),
    )
    rows = replica_rows(
        name,
        [(address, statuses[number]) for number, address in addresses.items()],
        row.value,
    )
    master = next((one for one in rows if one.is_master), None)
    is_alone = master is not None and master.replica_id is None
    values: dict[str, Any] = {
        "name": name,
        "live": live,
        "rows": rows,
        "master": master,
        "is_alone": is_alone,
        "in_sync": None
        if row.value is None
        else sorted(one.replica_id for one in row.value.in_sync),
        "row": row,
        "history": history,
        "changes": CHANGES,
        "is_away": not groups,
    }
    namesrv = visit.namesrv_urls.split(";")[0]
    recipe = recipes.Recipe(
        recipes.curl(f"{namesrv}/v1/brokers", has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            "for group in client.admin.brokers():",
            f"    if group.broker_name == {name!r}:",
            "        print(group.brokers)",
        ),
        recipes.cli("broker", "show", name),
    )
    return Shown(name, values, recipe)


PAGE: Final = Page(
    "broker",
    "/brokers/{broker}",
    "brokers",
    view,
    parents=((N_("Brokers"), "/brokers"),),
    is_named=True,
)
