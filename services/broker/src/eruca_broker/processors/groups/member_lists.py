"""Encode the members of a group once for all requests that ask at the same time.

Each change of a group wakes every member that watches it. For a thousand members, separate lists
would take a million entries. All of them are woken in one turn of the event loop, and a group's
list is encoded once in that turn. The next turn encodes it again, so nobody gets a list that is
older than the request.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from eruca.contract.groups import MemberList
from eruca_broker.core.consuming.membership import Membership
from eruca_broker.core.state.group_state import Group
from eruca_broker.processors.groups.views import members


class Listing(NamedTuple):
    """A list of members, in the contract's words."""

    generation: int
    body: bytes  # a MemberList as JSON


class MemberLists:
    """The lists that were requested in this turn of the event loop."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._listings: dict[str, Listing] = {}  # by group

    def listing(self, group: Group) -> Listing:
        """Return a group's current members."""
        generation = self._membership.generation(group.name)
        known = self._listings.get(group.name)
        if known is not None and known.generation == generation:
            return known
        if not self._listings:
            asyncio.get_running_loop().call_soon(self._listings.clear)
        listing = self._listings[group.name] = Listing(generation, self._body(group, generation))
        return listing

    def _body(self, group: Group, generation: int) -> bytes:
        answer = MemberList(
            group=group.name,
            generation=generation,
            subscription_version=group.subscription_version,
            members=members(group, self._membership.members(group.name)),
        )
        return answer.model_dump_json().encode()
