"""The master's knowledge of the copies: how far each replica's log reaches, and what is confirmed.

An acknowledgement is a replica's statement "I hold everything before this log offset, as durably as
the group promises". It counts only if it belongs to the master's epoch, comes from a store that has
proved its lineage in this epoch, and does not reach behind the master's own end. It stays true for
the whole epoch, whichever process of that store is running: a store that may have lost records is
another member.

**Confirmed** is the least offset that all members of the in-sync set hold, the master included. The
set is two sets while a change is under way::

    known       what the arbiter has answered
    asked       what was asked for, until the arbiter answers

The master waits for the members of both. A newcomer is waited for before the arbiter can name it,
for from then on it may become master. A leaving member is waited for until the arbiter has removed
it, for until then it may become master. A member that is silent is no exception: confirmed rests
until the arbiter has removed it.

Source: Kafka's KIP-497 and its ``maximalIsr``; RocketMQ 5.3, ``AutoSwitchHAService``, and its
issues 3015, 5663 and 6662, which these rules exclude.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from eruca_broker.core.replication.broker_group import Member


class StaleEpochError(ValueError):
    """A replica follows another epoch than the master's."""


class UnprovedReplicaError(ValueError):
    """A replica acknowledges records before it has proved its lineage in this epoch."""


class ImpossibleOffsetError(ValueError):
    """A replica claims to hold records that the master has not written."""


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies of one master's log in one epoch.

    Attributes:
        epoch: The master's.
        master: The store that is the master.
        known: The in-sync set, as the arbiter last answered.
        asked: The set that was asked for and not answered; None: no change is under way.
        held: For each replica that has proved its lineage in this epoch, the log offset up to
            which it holds everything; 0 before its first acknowledgement.
        confirmed: Log offset up to which every member has held everything. Never decreases.
    """

    epoch: int
    master: Member
    known: frozenset[Member]
    asked: frozenset[Member] | None = None
    held: tuple[tuple[Member, int], ...] = ()  # in order
    confirmed: int = 0

    def __post_init__(self) -> None:
        assert self.master in self.known, "a master that has left the set is none"
        assert self.asked is None or self.master in self.asked

    @property
    def waited_for(self) -> frozenset[Member]:
        """The members without which nothing is confirmed, the master included."""
        return self.known if self.asked is None else self.known | self.asked

    def proved(self, member: Member) -> Copies:
        """Return the copies after *member* has proved its lineage.

        Its next fetch is its first acknowledgement: what the two logs have in common need not be
        durable there yet.
        """
        return self._with(member, self._end_of(member) or 0)

    def acknowledged(
        self, member: Member, *, epoch: int, log_offset: int, written_end: int
    ) -> Copies:
        """Return the copies after an acknowledgement; see :meth:`advanced` for its effect.

        Args:
            member: The replica's store.
            epoch: The epoch that it follows.
            log_offset: It holds everything before.
            written_end: The master's own end. It may be less durable than the replica's copy.

        Raises:
            StaleEpochError: The statement is about another epoch's log.
            UnprovedReplicaError: The log may be another one.
            ImpossibleOffsetError: It reaches behind the master's end.
        """
        if epoch != self.epoch:
            raise StaleEpochError(f"expected epoch {self.epoch}, found {epoch}")
        before = self._end_of(member)
        if before is None:
            raise UnprovedReplicaError(f"replica {member} has not proved its lineage yet")
        if log_offset > written_end:
            raise ImpossibleOffsetError(
                f"replica {member} holds records up to {log_offset}, but the master's end is "
                f"{written_end}"
            )
        return self._with(member, max(before, log_offset))

    def advanced(self, durable_end: int) -> Copies:
        """Return the copies with what is confirmed now.

        Args:
            durable_end: The master's own end, as durable as the group promises.
        """
        if durable_end <= self.confirmed:
            return self
        ends, least = dict(self.held), durable_end
        for member in self.waited_for:
            if member != self.master:
                least = min(least, ends.get(member, 0))
        return self if least <= self.confirmed else self._changed(self.held, least)

    def count_at(self, log_offset: int, *, durable_end: int) -> int:
        """Return the number of stores that hold everything before *log_offset*."""
        others = sum(end >= log_offset for _, end in self.held)
        return others + (durable_end >= log_offset)

    def may_join(self, member: Member) -> bool:
        """Tell whether a replica outside the set holds everything that is confirmed.

        Once it does and is waited for (:meth:`asking`), it does from then on.
        """
        end = self._end_of(member)
        return member not in self.known and end is not None and end >= self.confirmed

    def asking(self, members: frozenset[Member]) -> Copies:
        """Return the copies while the arbiter is being asked for another set.

        Members that are about to join must be waited for from now on, before it is asked.
        """
        assert self.asked is None, "rule 6: one change at a time"
        return replace(self, asked=members)

    def answered(self, in_sync: frozenset[Member]) -> Copies:
        """Return the copies after the arbiter has told the set of this epoch, whichever it is.

        A read that still finds the version from which a change was asked for is no answer: the
        request may be on its way. Repeat the request instead, for only one of the two can succeed.
        """
        return replace(self, known=in_sync, asked=None)

    def forgotten(self, member: Member) -> Copies:
        """Return the copies without a replica, which must prove its lineage again."""
        assert member not in self.waited_for, "rule 6: confirmed would go back"
        return replace(self, held=tuple(item for item in self.held if item[0] != member))

    def _end_of(self, member: Member) -> int | None:
        return next((end for other, end in self.held if other == member), None)

    def _with(self, member: Member, end: int) -> Copies:
        assert member != self.master, "the master acknowledges nothing to itself"
        before = self._end_of(member)
        if before == end:
            return self
        if before is None:
            held = tuple(sorted((*self.held, (member, end))))
        else:
            held = tuple((it[0], end) if it[0] == member else it for it in self.held)
        return self._changed(held, self.confirmed)

    def _changed(self, held: tuple[tuple[Member, int], ...], confirmed: int) -> Copies:
        """Return the copies with these values, as ``replace`` does: each send changes both."""
        return Copies(self.epoch, self.master, self.known, self.asked, held, confirmed)
