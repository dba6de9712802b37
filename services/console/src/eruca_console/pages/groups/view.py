"""The view of the list of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eruca.contract.groups import GroupConfig
from eruca_console.cluster.outcomes import Outcome, outcomes
from eruca_console.core import recipes
from eruca_console.core.listing import ListState, listed
from eruca_console.core.texts import N_
from eruca_console.shell.pages import CsvTable, Page, Shown, Visit

COLUMNS: Final = ("name", "members", "lag")
LAG_SORT_MAX: Final = 200  # groups that can be sorted by lag: each costs a request to each broker


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
    groups = await reading.groups()
    is_whole = groups.value.is_whole
    rows = [GroupRow(name, configs, is_whole) for name, configs in groups.value.value.items()]
    wanted = state.query.casefold()
    matching = [row for row in rows if wanted in row.name.casefold()]
    may_sort = len(matching) <= LAG_SORT_MAX
    lags: Mapping[str, Outcome[Any]] = {}
    if (state.sort == "lag" or visit.wants_file) and may_sort:
        lags = await outcomes((row.name for row in matching), lambda group: reading.lag(group))
    shown = listed(
        rows,
        state,
        name_of=lambda row: row.name,
        key_of={
            "name": lambda row: row.name,
            "members": lambda row: row.member_count,
            "lag": lambda row: _lag_of(lags.get(row.name)),
        },
        is_whole=visit.wants_file,
    )
    if not lags and not visit.wants_file:
        lags = await outcomes((row.name for row in shown.rows), lambda group: reading.lag(group))
    values: dict[str, Any] = {
        "groups": groups,
        "list": shown,
        "state": shown.state,
        "lags": lags,
        "may_sort": may_sort,
        "lag_sort_max": LAG_SORT_MAX,
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
                _lag_of(lags.get(row.name)),
                _oldest_of(lags.get(row.name)),
            )
            for row in shown.rows
        ],
        is_whole=groups.value.is_whole,
    )
    recipe = recipes.Recipe(
        recipes.curl(f"{await reading.any_broker_url()}/v1/groups", has_key=visit.has_key),
        recipes.python(
            visit.namesrv_urls,
            "for group in client.admin.groups.list():",
            "    print(group, client.admin.groups.lag(group).lag)",
        ),
        recipes.cli("group", "list"),
    )
    return Shown(N_("Groups"), values, recipe, table)


def _lag_of(lag: Outcome[Any] | None) -> int | None:
    found: int | None = None if lag is None or lag.value is None else lag.value.value.lag
    return found


def _oldest_of(lag: Outcome[Any] | None) -> object:
    return None if lag is None or lag.value is None else lag.value.value.oldest_unconsumed_at


PAGE: Final = Page("groups", "/groups", "groups", view)
