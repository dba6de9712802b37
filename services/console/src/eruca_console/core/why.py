"""The reason why a group has not consumed a message, as a sentence of facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eruca.contract.queries import GroupProgress, GroupState
from eruca_console.core.figures import count
from eruca_console.core.texts import N_

_SENTENCES: Final[Mapping[GroupState, str]] = {
    "past": N_(
        "The group's position in the queue is %(position)s, past this message (%(offset)s). "
        "It has read it, or was moved past it."
    ),
    "not_yet": N_(
        "The group's position in the queue is %(position)s, and this message is %(offset)s. "
        "It is not read yet, or waits for its retry."
    ),
    "in_delivery": N_("A client has received it under a lease, and has not finished it."),
    "done": N_("The group has acknowledged it."),
    "filtered": N_("The group's filter excludes it."),
    "unknown": N_("Nobody knows now."),
}
STATES: Final[Mapping[GroupState, str]] = {
    "past": N_("the group is past it"),
    "not_yet": N_("waits"),
    "in_delivery": N_("being delivered"),
    "done": N_("finished"),
    "filtered": N_("not for this group"),
    "unknown": N_("unknown"),
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A sentence of the catalogues, with its values.

    Attributes:
        text: The sentence.
        values: The values in it.
        detail: More, in the server's words; empty: nothing.
    """

    text: str
    values: Mapping[str, str]
    detail: str = ""


def reason_of(progress: GroupProgress) -> Reason:
    """Return why *progress* is what it is."""
    values = {
        "position": count(progress.next_offset),
        "offset": count(progress.queue_offset),
    }
    return Reason(_SENTENCES[progress.state], values, progress.detail or "")
