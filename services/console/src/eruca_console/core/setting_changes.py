"""The difference between settings as brokers hold them and as somebody wants them.

A setting that is not wanted keeps its value. A broker that does not answer may hold anything, so
what would change there is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One setting at one broker.

    Attributes:
        broker_name: The broker.
        setting: Its name.
        before: The value now; None: there is none, because the broker does not have the thing yet.
        after: The value that is wanted.
        is_known: Whether the broker has said what it holds.
        takes_away: Whether somebody may miss what was there before.
    """

    broker_name: str
    setting: str
    before: object
    after: object
    is_known: bool = True
    takes_away: bool = False


def changes_of(
    wanted: Mapping[str, Settings],
    held: Mapping[str, Settings],
    unknown: Collection[str] = (),
    *,
    takes_away: Callable[[str, Any, Any], bool],
) -> list[Change]:
    """Return what would change, broker by broker; nothing for a value that is there already.

    Args:
        wanted: The settings by broker, whole for one that does not have the thing yet.
        held: The settings by broker, of those that have it.
        unknown: Brokers that have not said what they hold.
        takes_away: Decides by setting, value before and value after.
    """
    found: list[Change] = []
    for name, settings in sorted(wanted.items()):
        if name in unknown:
            found += [
                Change(name, key, None, value, is_known=False) for key, value in settings.items()
            ]
        elif name not in held:
            found += [Change(name, key, None, value) for key, value in settings.items()]
        else:
            found += [
                Change(
                    name,
                    key,
                    held[name][key],
                    value,
                    takes_away=takes_away(key, held[name][key], value),
                )
                for key, value in settings.items()
                if value != held[name][key]
            ]
    return found


def needs_typing(changes: Iterable[Change]) -> bool:
    """Return whether a change must be confirmed by typing: it takes away, or may do so."""
    return any(change.takes_away or not change.is_known for change in changes)


def same_everywhere(held: Iterable[Settings], setting: str) -> Any:  # noqa: ANN401 - of any kind
    """Return the value that all brokers hold; None: they differ, or there is none."""
    values = [one[setting] for one in held]
    return values[0] if values and all(value == values[0] for value in values) else None
