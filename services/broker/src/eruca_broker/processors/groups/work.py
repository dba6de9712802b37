"""The parts that all processors of groups share."""

from __future__ import annotations

from dataclasses import dataclass

from eruca_broker.core.consuming.membership import Membership
from eruca_broker.processors.groups.changes import GroupChanges
from eruca_broker.processors.groups.consumption import Consumption
from eruca_broker.processors.groups.watchers import MEMBERS, GroupWatchers
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.admission.held import HeldPlaces
from eruca_chassis.clock import Clock


@dataclass(frozen=True, slots=True)
class GroupWork:
    """The groups of one store: their state, their members, and waiting requests."""

    store: MessageStore
    clock: Clock
    membership: Membership
    changes: GroupChanges
    watchers: GroupWatchers
    consumption: Consumption

    @classmethod
    def begin(cls, store: MessageStore, clock: Clock, held: HeldPlaces) -> GroupWork:
        """Return the work of a broker that has just opened *store*.

        Every owner of a lock gets a session that begins now.
        """
        membership = Membership(store.state.runs + 1)
        now = clock.monotonic()
        for group in store.state.groups.values():
            for lock in group.locks.values():
                membership.hold(group.name, lock.owner, now)
        changes, watchers = GroupChanges(store), GroupWatchers(held)
        consumption = Consumption(store, clock.now_ms())
        return cls(store, clock, membership, changes, watchers, consumption)

    def changed(self, group: str) -> None:
        """Begin a new generation of a group, and wake the requests that watch its members."""
        self.membership.changed(group)
        self.watchers.wake(group, (MEMBERS,))
