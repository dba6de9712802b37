"""The view of one group."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from eruca.contract.names import is_derived_topic
from eruca.contract.queries import GroupProgress, StoredMessage, Timeline
from eruca_console.cluster.outcomes import Outcome, outcome, outcomes
from eruca_console.core import recipes
from eruca_console.core.group_matrix import group_matrix
from eruca_console.core.listing import ListState
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit


async def view(visit: Visit) -> Shown:
    """Return a group.

    Raises:
        GroupNotFoundError: No broker knows it.
    """
    group = visit.path["group"]
    path = f"/groups/{group}"
    state = ListState.of(path, visit.query, columns=("queue",), others=("unfinished",))
    reading = visit.reading
    configs = await reading.group(group)
    lag, members = await asyncio.gather(
        outcome(reading.lag(group)), outcome(reading.members(group))
    )
    if visit.wants_file:
        lag.check()
    found = lag.value.value.queues if lag.value is not None else {}
    # The retry topic comes last: people look for the topics that they know.
    positions = dict(sorted(found.items(), key=lambda one: is_derived_topic(one[0].topic)))
    traffic = sorted(
        lag.value.value.traffic if lag.value is not None else (),
        key=lambda one: (one.topic, one.broker_name),
    )
    topics = sorted(
        {one.topic for config in configs.value.value.values() for one in config.subscriptions}
    )
    matrix = group_matrix(
        members.value.value if members.value is not None else {},
        [queue for queue in positions if queue.topic in topics],
    )
    chosen = state.others.get("unfinished", "")
    unfinished = await _unfinished(visit, group, chosen) if chosen else None
    values: dict[str, Any] = {
        "group": group,
        "path": path,
        "configs": configs,
        "config": next(iter(configs.value.value.values())),
        "lag": lag,
        "positions": positions,
        "largest": max((one.lag or 0 for one in positions.values()), default=0),
        "traffic": traffic,
        "members": members,
        "generations": {
            name: one.generation
            for name, one in (members.value.value if members.value is not None else {}).items()
        },
        "matrix": matrix,
        "topics": topics,
        "chosen": chosen,
        "unfinished": unfinished,
    }
    table = CsvTable(
        f"lag-of-{group}",
        (*("topic", "broker", "queue", "committed", "end", "lag"), "oldest_unread_at", "reader"),
        [
            (
                *(queue.topic, queue.broker_name, queue.queue_id, one.committed_offset),
                *(one.max_offset, one.lag, one.oldest_unconsumed_at, one.owner),
            )
            for queue, one in positions.items()
        ],
        is_whole=lag.value is not None and lag.value.is_whole,
    )
    recipe = recipes.Recipe(
        recipes.curl(
            f"{await reading.any_broker_url()}/v1/groups/{group}/offsets", has_key=visit.has_key
        ),
        recipes.python(
            visit.namesrv_urls,
            f"for queue, offset in client.admin.groups.lag({group!r}).queues.items():",
            "    print(queue, offset.committed_offset, offset.lag, offset.owner)",
        ),
        recipes.cli("group", "lag", group),
    )
    return Shown(group, values, recipe, table)


async def _unfinished(
    visit: Visit, group: str, topic: str
) -> Outcome[Sequence[tuple[StoredMessage, GroupProgress | None]]]:
    """Return the newest messages that *group* has not finished, each with what is known of it."""
    page = await outcome(visit.reading.unfinished(group, topic))
    if page.value is None:
        return Outcome(error=page.error)
    messages = {one.offset_message_id: one for one in page.value.messages}
    lives = await outcomes(messages, visit.reading.timeline)
    found = [(message, _progress(lives[name], group, topic)) for name, message in messages.items()]
    return Outcome(found, page.at)


def _progress(life: Outcome[Timeline], group: str, topic: str) -> GroupProgress | None:
    if life.value is None:
        return None
    wanted = (one for one in life.value.groups if one.group == group and one.topic == topic)
    return next(wanted, None)


PAGE: Final = Page(
    "group", "/groups/{group}", "groups", view, parents=((N_("Groups"), "/groups"),), is_named=True
)
