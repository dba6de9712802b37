"""The view of the list of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eruca.contract.names import is_derived_topic
from eruca.contract.topics import TopicConfig
from eruca_console.cluster.outcomes import outcome, outcomes
from eruca_console.core import recipes
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

COLUMNS: Final = ("name", "queues", "groups")


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic on all brokers.

    Attributes:
        name: The topic.
        configs: Its settings by broker.
        groups: The groups that subscribe to it; None: unknown.
    """

    name: str
    configs: Mapping[str, TopicConfig]
    groups: tuple[str, ...] | None

    @property
    def queue_count(self) -> int:
        """The number of queues to read, on all brokers that answered."""
        return sum(config.read_queue_count for config in self.configs.values())

    @property
    def is_ordered(self) -> bool:
        """True if it is ordered on any broker."""
        return any(config.ordered for config in self.configs.values())

    @property
    def permission(self) -> str:
        """The permission; several ones with a slash, if brokers differ."""
        return "/".join(sorted({config.permission for config in self.configs.values()}))


async def view(visit: Visit) -> Shown:
    """Return a page of the topics."""
    state = ListState.of("/topics", visit.query, columns=COLUMNS, others=("derived",))
    reading = visit.reading
    topics, groups = await asyncio.gather(reading.topics(), outcome(reading.groups()))
    readers: dict[str, list[str]] = {}
    for group, configs in (groups.value.value if groups.value is not None else {}).items():
        subscribed = {one.topic for config in configs.values() for one in config.subscriptions}
        for topic in subscribed:
            readers.setdefault(topic, []).append(group)
    are_known = groups.value is not None and groups.value.is_whole
    rows = [
        TopicRow(name, configs, tuple(readers.get(name, ())) if are_known else None)
        for name, configs in topics.value.value.items()
    ]
    derived_count = sum(is_derived_topic(row.name) for row in rows)
    has_derived = state.others.get("derived") == "yes"
    if not has_derived:
        rows = [row for row in rows if not is_derived_topic(row.name)]
    shown = listed(
        rows,
        state,
        name_of=lambda row: row.name,
        key_of={
            "name": lambda row: row.name,
            "queues": lambda row: row.queue_count,
            "groups": lambda row: None if row.groups is None else len(row.groups),
        },
        is_whole=visit.wants_file,
    )
    queues = (
        {} if visit.wants_file else await outcomes((row.name for row in shown.rows), reading.queues)
    )
    values: dict[str, Any] = {
        "topics": topics,
        "list": shown,
        "state": shown.state,
        "queues": queues,
        "derived_count": derived_count,
        "derived_url": state.url(others={} if has_derived else {"derived": "yes"}),
        "has_derived": has_derived,
        "groups_outcome": groups,
    }
    table = CsvTable(
        "topics",
        ("topic", "queues", "brokers", "permission", "ordered", "groups"),
        [
            (
                row.name,
                row.queue_count,
                " ".join(sorted(row.configs)),
                row.permission,
                row.is_ordered,
                None if row.groups is None else " ".join(row.groups),
            )
            for row in shown.rows
        ],
        is_whole=topics.value.is_whole,
    )
    namesrv = visit.namesrv_urls.split(";")[0]
    recipe = recipes.Recipe(
        recipes.curl(f"{namesrv}/v1/topics", has_key=visit.has_key),
        recipes.python(visit.namesrv_urls, "print(client.admin.list_topics())"),
        recipes.cli("topic", "list"),
    )
    return Shown(N_("Topics"), values, recipe, table)


PAGE: Final = Page("topics", "/topics", "topics", view)
