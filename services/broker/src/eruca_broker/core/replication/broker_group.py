"""The arbiter's row of a broker group, and the changes that a replica may ask for.

A change is made from the row that the replica has read, and is asked for by compare-and-set. So
two replicas never change the same row: the arbiter refuses the second. Each function returns the
row to ask for, or raises :class:`GroupChangeError` if the rules forbid it.

::

    founded         no row yet          the first store of a name is its master
    next_term       a member            it becomes master in a new epoch; also the same master again
    with_member     the master          a replica that holds everything confirmed joins
    without         the master          a member that is silent leaves
    forced          an operator         a replica outside the set becomes master; records may go

Invariants: the master is a member of the in-sync set; the epoch grows with each term, never
otherwise, and no epoch has two masters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple


class GroupChangeError(ValueError):
    """A change of a broker group that its rules forbid."""


class Change(NamedTuple):
    """The place of a row among all rows that its group ever had: a later one is greater.

    An arbiter that was restored from a copy has an older row again (rule 13).
    """

    epoch: int
    number: int  # of the arbiter's changes of this row


NO_CHANGE: Final = Change(0, 0)


class Member(NamedTuple):
    """A store, as a group names it.

    The *uid* stands for "this store has kept all that it ever acknowledged". A store takes another
    one when it is created, again on an empty disk, too, and when its machine went down and it may
    have lost records that were not flushed. So it is a new member then: it inherits no place in the
    in-sync set, and acknowledgements of its former self are not its own.
    """

    replica_id: int  # ≥ 1
    uid: str  # random

    def __str__(self) -> str:
        return f"{self.replica_id} ({self.uid})"


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """The arbiter's row of a broker group."""

    epoch: int  # ≥ 1; of the master's term
    master: Member
    in_sync: frozenset[Member]  # they hold every confirmed record
    is_unclean: bool = False  # this epoch's master was forced: confirmed records may be missing

    def __post_init__(self) -> None:
        assert self.epoch >= 1
        assert self.master in self.in_sync

    def next_term(self, member: Member) -> BrokerGroup:
        """Return the row in which *member* is the master of a new epoch.

        The same master takes a new epoch after each restart, too: it may have lost records that
        others have, and the records after them must not count as the same.

        Raises:
            GroupChangeError: It is not in the in-sync set, so it may lack confirmed records.
        """
        if member not in self.in_sync:
            raise GroupChangeError(
                f"replica {member} is not in the in-sync set of epoch {self.epoch}: it may lack "
                "confirmed messages"
            )
        return BrokerGroup(self.epoch + 1, member, self.in_sync)

    def with_member(self, master: Member, member: Member) -> BrokerGroup:
        """Return the row in which *member* has joined the in-sync set.

        *master* must count it among the members to wait for before it asks for this row:
        see :class:`~eruca_broker.core.replication.in_sync.Copies`.

        Raises:
            GroupChangeError: *master* is not the master.
        """
        self._check_master(master)
        return replace(self, in_sync=self.in_sync | {member})

    def without(self, master: Member, member: Member) -> BrokerGroup:
        """Return the row in which the in-sync set lacks *member*.

        *master* must wait for it until the arbiter has answered.

        Raises:
            GroupChangeError: *master* is not the master, or would remove itself.
        """
        self._check_master(master)
        if member == master:
            raise GroupChangeError(f"master {master} cannot remove itself: another takes a term")
        return replace(self, in_sync=self.in_sync - {member})

    def forced(self, member: Member) -> BrokerGroup:
        """Return the row in which an operator made *member* the master: the set's only member.

        Confirmed records that it lacks are lost. The epoch says so for good.
        """
        return BrokerGroup(self.epoch + 1, member, frozenset({member}), is_unclean=True)

    def _check_master(self, master: Member) -> None:
        if master != self.master:
            raise GroupChangeError(
                f"only the master changes the in-sync set; expected {self.master}, found {master}"
            )


def founded(member: Member) -> BrokerGroup:
    """Return the first row of a group, whose only member is *member*."""
    return BrokerGroup(1, member, frozenset({member}))
