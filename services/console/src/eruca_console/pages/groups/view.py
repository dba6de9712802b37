"""The view of the list of groups."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eruca import TotalLag
from eruca.contract.groups import GroupConfig
from eruca_console.cluster.outcomes import outcome
from eruca_console.core import recipes
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

COLUMNS: Final = ("name", "members", "lag")
UNKNOWN: Final = TotalLag(None, None)


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group on all brokers.

    Attributes:
        name: The group.
        configs: Its settings by broker.
        is_whole: Whether every broker has said them.
    """

    name: str
    configs: Mapping[str, GroupConfig]
    is_whole: bool

    @property
    def member_count(self) -> int | None:
        """The most live members that any broker sees; None: unknown."""
        if not self.is_whole:
            return None
        return max((config.members for config in self.configs.values()), default=0)

    @property
    def topics(self) -> list[str]:
        """The topics that it subscribes to."""
        return sorted(
            {one.topic for config in self.configs.values() for one in config.subscriptions}
        )

    @property
    def is_ordered(self) -> bool:
        """True if it consumes queues in order."""
        return any(config.ordered for config in self.configs.values())

    @property
    def is_switched_off(self) -> bool:
        """True if a broker gives it nothing."""
        return not all(config.consume_enabled for config in self.configs.values())


async def view(visit: Visit) -> Shown:
    """Return a page of the groups."""
    state = ListState.of("/groups", visit.query, columns=COLUMNS)
    reading = visit.reading
    groups, lags = await asyncio.gather(reading.groups(), outcome(reading.lags()))
    totals = lags.value.value if lags.value is not None else {}
    is_whole = groups.value.is_whole
    rows = [GroupRow(name, configs, is_whole) for name, configs in groups.value.value.items()]
    shown = listed(
        rows,
        state,
        name_of=lambda row: row.name,
        key_of={
            "name": lambda row: row.name,
            "members": lambda row: row.member_count,
            "lag": lambda row: totals.get(row.name, UNKNOWN).lag,
        },
        is_whole=visit.wants_file,
    )
    values: dict[str, Any] = {
        "groups": groups,
        "list": shown,
        "state": shown.state,
        "lags": totals,
        "lags_error": lags.error,
    }
    table = CsvTable(
        "groups",
        ("group", "members", "topics", "ordered", "consume_enabled", "lag", "oldest_unread_at"),
        [
            (
                row.name,
                row.member_count,
                " ".join(row.topics),
                row.is_ordered,
                not row.is_switched_off,
                totals.get(row.name, UNKNOWN).lag,
                totals.get(row.name, UNKNOWN).oldest_unconsumed_at,
            )
            for row in shown.rows
        ],
        is_whole=is_whole and lags.value is not None and lags.value.is_whole,
    )
    recipe = recipes.Recipe(
        recipes.curl(f"{await reading.any_broker_url()}/v1/groups", has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            "for group, total in client.admin.groups.lags().items():",
            "    print(group, total.lag, total.oldest_unconsumed_at)",
        ),
        recipes.cli("group", "list"),
    )
    return Shown(N_("Groups"), values, recipe, table)


PAGE: Final = Page("groups", "/groups", "groups", view)
