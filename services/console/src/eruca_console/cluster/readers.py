"""The groups that subscribe to a topic, by the groups' settings at all brokers."""

from __future__ import annotations

from collections.abc import Mapping

from eruca.contract.groups import GroupConfig
from eruca_console.cluster.outcomes import Outcome
from eruca_console.cluster.questions import Gathered

Groups = Outcome[Gathered[Mapping[str, Mapping[str, GroupConfig]]]]


def filters_by_group(groups: Groups, topic: str) -> dict[str, list[str]]:
    """Return the filters of each group that subscribes to *topic*, as far as brokers answer."""
    found = {
        group: sorted(
            {
                one.filter
                for config in of_brokers.values()
                for one in config.subscriptions
                if one.topic == topic
            }
        )
        for group, of_brokers in (groups.value.value if groups.value is not None else {}).items()
    }
    return {group: filters for group, filters in sorted(found.items()) if filters}


def receivers_of(groups: Groups, topic: str) -> list[str] | None:
    """Return the groups that receive a message of *topic*; None: a broker's part is missing."""
    if groups.value is None or not groups.value.is_whole:
        return None
    return [*filters_by_group(groups, topic)]
