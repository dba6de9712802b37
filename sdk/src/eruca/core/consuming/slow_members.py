"""Find the slow members of a group, by what they tell of their handlers.

A member is slow if its handlers take a multiple of the others' time, or if one has been running for
a multiple of it. A member alone is compared with nobody, and so is never slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Final

from eruca.contract.groups import Member, MemberHandling, MemberList

SLOW_FACTOR: Final = 3.0  # times the median of the others
SLOW_SECONDS_MIN: Final = 0.01  # differences below this are noise


def latest_members(lists: Iterable[MemberList]) -> dict[str, Member]:
    """Return each member as the broker saw it that heard of it last, by client id."""
    latest: dict[str, Member] = {}
    for member in (one for found in lists for one in found.members):
        known = latest.get(member.client_id)
        if known is None or member.last_seen_at > known.last_seen_at:
            latest[member.client_id] = member
    return dict(sorted(latest.items()))


def slow_members(members: Mapping[str, Member]) -> list[str]:
    """Return the client ids of the slow members, the slowest first."""
    seconds = {
        client_id: told
        for client_id, member in members.items()
        if member.handling is not None and (told := _seconds(member.handling)) is not None
    }
    slow = [
        client_id
        for client_id, own in seconds.items()
        if (others := [told for other, told in seconds.items() if other != client_id])
        and own >= max(SLOW_FACTOR * median(others), SLOW_SECONDS_MIN)
    ]
    return sorted(slow, key=lambda client_id: -seconds[client_id])


def _seconds(handling: MemberHandling) -> float | None:
    """Return the time of its calls, or of one that runs and takes longer; None: there is none."""
    told = [handling.mean_seconds or 0.0, handling.longest_running_seconds]
    return max(told) or None
