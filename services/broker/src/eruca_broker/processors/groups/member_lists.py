"""Encode the members of a group once for all requests that ask at the same time.

Each change of a group is news to every member that watches it: a thousand members that each were
told in words of their own would take a million entries. All of them are woken in one turn of the
event loop, in which a group's answer is made once; the next turn makes it anew, so nobody is told
what was so before the request came.
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
    """The lists that were asked for in this turn of the event loop."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._listings: dict[str, Listing] = {}  # by group

    def listing(self, group: Group) -> Listing:
        """Return a group's members as they are."""
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
