"""The view of one topic."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from eruca_console.cluster.outcomes import outcome, outcomes
from eruca_console.cluster.readers import filters_by_group
from eruca_console.core import recipes
from eruca_console.core.listing import ListState
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

GROUPS_MAX: Final = 50  # of which the lag is read


async def view(visit: Visit) -> Shown:
    """Return a topic.

    Raises:
        TopicNotFoundError: No broker has it.
    """
    topic = visit.path["topic"]
    ListState.of(f"/topics/{topic}", visit.query, columns=("queue",))
    reading = visit.reading
    configs = await reading.topic(topic)
    queues, groups = await asyncio.gather(outcome(reading.queues(topic)), outcome(reading.groups()))
    if visit.wants_file:
        queues.check()
    readers = filters_by_group(groups, topic)
    lags = await outcomes(list(readers)[:GROUPS_MAX], lambda group: reading.lag(group, topic))
    offsets = queues.value.value if queues.value is not None else {}
    is_whole = queues.value is not None and queues.value.is_whole
    kept = sum(one.max_offset - one.min_offset for one in offsets.values())
    filled = [one for one in offsets.values() if one.min_offset < one.max_offset]
    first = [one.earliest_stored_at for one in filled if one.earliest_stored_at]
    last = [one.latest_stored_at for one in filled if one.latest_stored_at]
    is_unknown = min(len(first), len(last)) < len(filled)  # one is damaged, or in an absent tier
    values: dict[str, Any] = {
        "topic": topic,
        "configs": configs,
        "queues": queues,
        "kept": kept if is_whole else None,
        "newest": max(last, default=None) if len(last) == len(filled) else None,
        "oldest": min(first, default=None) if len(first) == len(filled) else None,
        "unknown_times": is_unknown,
        "largest": max((o.max_offset - o.min_offset for o in offsets.values()), default=0),
        "groups": groups,
        "readers": readers,
        "lags": lags,
        "groups_max": GROUPS_MAX,
    }
    table = CsvTable(
        f"queues-of-{topic}",
        ("broker", "queue", "first_offset", "next_offset", "earliest", "latest"),
        [
            (
                queue.broker_name,
                queue.queue_id,
                one.min_offset,
                one.max_offset,
                one.earliest_stored_at,
                one.latest_stored_at,
            )
            for queue, one in offsets.items()
        ],
        is_whole=is_whole,
    )
    recipe = recipes.Recipe(
        _curl(visit, topic),
        recipes.python(
            visit.namesrv_urls,
            f"for queue, offsets in client.admin.queues({topic!r}).items():",
            "    print(queue, offsets.min_offset, offsets.max_offset)",
        ),
        recipes.cli("topic", "show", topic),
    )
    return Shown(topic, values, recipe, table)


def _curl(visit: Visit, topic: str) -> str:
    namesrv = visit.namesrv_urls.split(";")[0]
    return recipes.curl(f"{namesrv}/v1/topics/{topic}/route", has_key=visit.has_key)


PAGE: Final = Page(
    "topic", "/topics/{topic}", "topics", view, parents=((N_("Topics"), "/topics"),), is_named=True
)
