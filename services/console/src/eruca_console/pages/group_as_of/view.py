"""The view of a group at one broker as of an earlier log offset.

The broker folds the state again from its log. If the log does not have it any more, the page shows
a question mark and the reason.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from eruca_console.cluster.outcomes import Outcome, outcome
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.log_places import log_offset_of
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit


async def view(visit: Visit) -> Shown:
    """Return a group as it was.

    Raises:
        ValidationError: A parameter is unknown or invalid.
        GroupNotFoundError: It is asked for nothing, and no broker knows the group.
    """
    check_parameters(visit.query, ("broker", "log_offset", "format"))
    group, reading = visit.path["group"], visit.reading
    broker = visit.query.get("broker", "")
    log_offset = log_offset_of(visit.query.get("log_offset", ""))
    live = [one.broker_name for one in (await reading.brokers()).value]
    past: Outcome[Any] | None = None
    if broker and log_offset is not None:
        past = await outcome(reading.group_as_of(group, broker, log_offset))
        if visit.wants_file:
            past.check()
    found = None if past is None else past.value
    values: dict[str, Any] = {
        "group": group,
        "path": f"/groups/{quote(group, safe='')}/as-of",
        "brokers": live,
        "broker": broker,
        "log_offset": log_offset,
        "past": past,
        "queues": [] if found is None else found.queues,
    }
    table = CsvTable(
        f"{group}-as-of-{log_offset or 0}",
        ("topic", "queue", "committed", "end", "lag", "unfinished", "reader"),
        [
            (
                *(one.topic, one.queue_id, one.committed_offset, one.max_offset),
                *(one.lag, one.unfinished_count, one.owner),
            )
            for one in values["queues"]
        ],
        is_whole=found is not None and found.unknown is None,
    )
    place = f"{broker or 'BROKER'}:{0 if log_offset is None else log_offset}"
    url = await reading.url_of_broker(broker)
    recipe = recipes.Recipe(
        recipes.curl(
            f"{url}/v1/groups/{quote(group, safe='')}/as-of?log_offset={log_offset or 0}",
            has_key=visit.has_key,
        ),
        recipes.python(
            visit.namesrv_urls,
            f"print(client.admin.groups.as_of({group!r}, broker_name={broker!r}, "
            f"log_offset={log_offset or 0}))",
        ),
        recipes.cli("group", "show", group, "--at", place),
    )
    return Shown(group, values, recipe, table)


PAGE: Final = Page(
    "group_as_of",
    "/groups/{group}/as-of",
    "groups",
    view,
    parents=((N_("Groups"), "/groups"),),
    is_live=False,
    is_named=True,
)
