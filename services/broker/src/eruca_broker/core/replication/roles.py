"""The role of a replica through its life, and the decisions that change it.

A broker process runs one role after another. :data:`ROLE` is the table of the changes:

- A **standby** copies the master's log and serves reads.
- A replica that is **taking over** has won a term. It answers nothing but replication, until the
  record that begins its epoch is confirmed: only then does it know what is confirmed.
- The **master** appends and answers.
- A **demoted** replica ends the requests of its term, and then follows.

The rules, with the numbers of the replication design:

3. Every term is a new epoch. So a process leads only a term that it has asked for itself. A row
   that names it otherwise, after a restart or because another master has appointed it, makes it ask
   for the next term.
6. A member that is silent, or does not catch up, is removed from the in-sync set, or nothing would
   be confirmed any more.
8. If every member of the set may have lost records, the replica with the longest log takes an
   unclean term.
10. A replica keeps its promise before it takes a term (:mod:`.appointments`).
11. A replica with damage that no peer could repair does not propose itself.
12. A replaced master notices it by the row, by its lease or by a request of a later epoch.
13. A row older than the log, or than that of a replica that answers, is refused: the arbiter has
    lost changes. The next epoch may have begun there, and no epoch has two masters. The same holds
    for a row of the same epoch that is older than one that a replica knows. Its master states the
    set again, in the next epoch.

Source: PacificA, sections 2.2 and 2.3; RocketMQ 5.3, ``DefaultElectPolicy``, ``ReplicasManager``;
Kafka's KIP-966.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from eruca_broker.core.replication.broker_group import NO_CHANGE, BrokerGroup, Change, Member
from eruca_broker.core.replication.in_sync import Copies
from eruca_broker.core.replication.master_lease import LEASE_SECONDS, PROMISE_SECONDS
from eruca_chassis.machines import Machine

SILENCE_SECONDS: Final = 5.0  # without a fetch, before a member is removed
KEEPS_UP_SECONDS: Final = 1.0  # since a replica had everything, for it to keep up
BEHIND_SECONDS: Final = 15.0  # … if it fetches, but does not catch up; RocketMQ's default
SKEW_SECONDS_MAX: Final = 5.0  # between two clocks; beyond it delayed messages would be that wrong
FOUNDING_TURN_SECONDS: Final = 0.5  # between two empty stores that would found the group

assert SILENCE_SECONDS >= LEASE_SECONDS, "a member would be removed that may still trust its lease"
assert BEHIND_SECONDS > SILENCE_SECONDS, "a member would be removed that reconnects"


class Role(StrEnum):
    """The present work of a replica."""

    STANDBY = "standby"
    TAKING_OVER = "taking over"
    MASTER = "master"
    DEMOTED = "demoted"


class Turn(StrEnum):
    """An event that changes a role."""

    TERM_WON = "term won"
    EPOCH_CONFIRMED = "epoch confirmed"
    SUPERSEDED = "superseded"
    LEASE_LOST = "lease lost"
    DISK_FAILED = "disk failed"
    HANDED_OVER = "handed over"
    TERM_ENDED = "term ended"


ROLE: Final = Machine(
    (Role.STANDBY, Turn.TERM_WON, Role.TAKING_OVER),
    (Role.TAKING_OVER, Turn.EPOCH_CONFIRMED, Role.MASTER),
    (Role.TAKING_OVER, Turn.SUPERSEDED, Role.DEMOTED),
    (Role.TAKING_OVER, Turn.DISK_FAILED, Role.DEMOTED),
    (Role.MASTER, Turn.SUPERSEDED, Role.DEMOTED),
    (Role.MASTER, Turn.LEASE_LOST, Role.DEMOTED),
    (Role.MASTER, Turn.DISK_FAILED, Role.DEMOTED),
    (Role.MASTER, Turn.HANDED_OVER, Role.DEMOTED),
    (Role.DEMOTED, Turn.TERM_ENDED, Role.STANDBY),
)


class Standing(NamedTuple):
    """The facts about one replica on which elections depend."""

    member: Member
    last_epoch: int  # of its log; 0: none
    end: int  # log offset after its last record
    former_uids: tuple[str, ...] = ()  # those under which its store may have lost records
    priority: int = 0  # the operator's preference; larger goes first
    skew_seconds: float = 0.0  # its clock minus the master's, when it last heard of it
    is_damaged: bool = False  # beyond repair from a peer
    known: Change = NO_CHANGE  # the latest row that its process knows

    @property
    def merit(self) -> tuple[int, int, int, int]:
        """The order of logs: the greatest lacks the fewest records."""
        return self.last_epoch, self.end, self.priority, -self.member.replica_id

    @property
    def turn(self) -> tuple[bool, int, int, int, int]:
        """The order of candidates that all hold everything confirmed: the greatest goes first.

        One whose clock differs from the master's goes last. It is no bar: it may be the master's
        clock that is wrong, and then every candidate differs.
        """
        return (abs(self.skew_seconds) <= SKEW_SECONDS_MAX, *self.merit)


class Course(StrEnum):
    """The consequence of the arbiter's row for a replica."""

    FOUND = "found the group"
    REFUSE = "refuse the row"
    LEAD = "lead the term"
    TAKE_TERM = "take the next term"
    FOLLOW = "follow the master"


def course(group: BrokerGroup | None, me: Standing, term: int | None) -> Course:
    """Return the consequence of the arbiter's row.

    Args:
        group: The row; None: the arbiter knows no such group.
        me: This replica.
        term: The epoch that this process has asked for and won last; None: none.
    """
    if group is None:
        # Epochs in the log come from a row that the arbiter has lost (rule 13).
        return Course.REFUSE if me.last_epoch else Course.FOUND
    if group.epoch < me.last_epoch:
        return Course.REFUSE
    if group.master != me.member:
        return Course.FOLLOW
    # Rule 3: an earlier process may have led this term, and may have lost the end of its log.
    return Course.LEAD if term == group.epoch else Course.TAKE_TERM


def is_behind(row: Change, standings: Iterable[Standing]) -> bool:
    """Tell whether the arbiter has lost changes since *row* (rule 13).

    A log has a later epoch, or a process knows a later row. Within one epoch only that tells: the
    older row may name a member that has been removed since, and lacks what was confirmed without
    it.
    """
    return any(standing.last_epoch > row.epoch or standing.known > row for standing in standings)


class Bar(StrEnum):
    """The reason why a replica never proposes itself now."""

    ARBITER_BEHIND = "the arbiter's row is older than this replica's log"
    NOT_IN_SYNC = "it is not in the in-sync set, so it may lack confirmed messages"
    DAMAGED = "its log has damage that no other replica could repair"


def bar_of(group: BrokerGroup, me: Standing) -> Bar | None:
    """Return the reason why a replica may not replace the master of *group*; None if it may."""
    if group.epoch < me.last_epoch:
        return Bar.ARBITER_BEHIND
    if me.member not in group.in_sync:
        return Bar.NOT_IN_SYNC
    return Bar.DAMAGED if me.is_damaged else None


def rank_of(group: BrokerGroup, me: Standing, others: Iterable[Standing]) -> int:
    """Return the number of reachable replicas that should propose themselves before *me*."""
    return sum(
        other.turn > me.turn
        for other in others
        if other.member not in (me.member, group.master) and bar_of(group, other) is None
    )


def term_of(group: BrokerGroup, me: Standing) -> BrokerGroup:
    """Return the row in which *me* is the master of the next epoch.

    If the present term is unclean and its epoch never began in this log, then the next one is
    unclean as well: no log says yet that confirmed records may be missing.

    Raises:
        GroupChangeError: It is not in the in-sync set.
    """
    term = group.next_term(me.member)
    has_not_begun = group.is_unclean and me.last_epoch < group.epoch
    return replace(term, is_unclean=True) if has_not_begun else term


def succession_of(group: BrokerGroup, me: Standing) -> BrokerGroup:
    """Return the row in which *me* succeeds a master that is silent.

    The set loses the silent master by the same change, or the successor could confirm nothing
    before that has been silent for long enough once more. The other members hold everything
    confirmed all the same. The old master can confirm nothing without them.

    Raises:
        GroupChangeError: *me* is not in the in-sync set.
    """
    assert me.member != group.master, "a master does not succeed itself"
    assert not me.is_damaged, "rule 11: no damaged replica proposes itself"
    term = term_of(group, me)
    return replace(term, in_sync=term.in_sync - {group.master})


def handed_over(
    group: BrokerGroup, successor: Member, *, min_in_sync: int, is_leaving: bool
) -> BrokerGroup:
    """Return the row in which the master hands over to *successor*, which holds everything.

    Without the old master in the set, the successor need not wait until it follows. So the set
    loses it if two copies, and enough for sends, are left; it joins again once it has caught up. A
    master that stops leaves in any case.

    Raises:
        GroupChangeError: *successor* is not in the in-sync set.
    """
    assert successor != group.master, "a master does not succeed itself"
    term = group.next_term(successor)
    others = term.in_sync - {group.master}
    return (
        replace(term, in_sync=others) if is_leaving or len(others) >= max(min_in_sync, 2) else term
    )


def restated(master: Member, epoch: int, in_sync: frozenset[Member]) -> BrokerGroup:
    """Return the row by which a master states its set again: the arbiter has lost changes of it.

    The epoch is the next one, so that it is later than every row that any replica knows.

    Args:
        master: The master of *epoch*.
        epoch: Its term.
        in_sync: The set that the arbiter had told it last. All of it holds everything confirmed.
    """
    return BrokerGroup(epoch, master, in_sync).next_term(master)


def founding_delay(me: Standing, *, is_empty: bool) -> float:
    """Return the seconds to wait before founding a group: a store with messages goes first."""
    return FOUNDING_TURN_SECONDS * me.member.replica_id if is_empty else 0.0


def have_all_lost_places(group: BrokerGroup, standings: Collection[Standing]) -> bool:
    """Tell whether no store is left that holds everything confirmed for certain (rule 8).

    That is so if each member of the in-sync set has reported that its store may have lost records.
    A member that does not report may still hold everything: it is waited for.
    """
    return all(
        any(
            standing.member.replica_id == member.replica_id and member.uid in standing.former_uids
            for standing in standings
        )
        for member in group.in_sync
    )


def unclean_master(standings: Iterable[Standing]) -> Member:
    """Return the replica that lacks the fewest records, of those that report."""
    return max(standings, key=lambda standing: standing.merit).member


def recovery_wait(replica_ids: Collection[int], me: Standing, wait_seconds: float) -> float:
    """Return the seconds to wait for other replicas' reports; none for the only replica."""
    return wait_seconds if set(replica_ids) - {me.member.replica_id} else 0.0


def silent_members(
    copies: Copies, heard_at: Mapping[Member, float], now: float, *, listening_since: float
) -> frozenset[Member]:
    """Return the members to remove from the in-sync set (rule 6).

    Args:
        copies: The master's.
        heard_at: The time of each replica's last fetch, on the master's clock.
        now: The present time.
        listening_since: The time since which it has heard every fetch: the beginning of its term,
            or the end of its last pause.
    """
    return frozenset(
        member
        for member in copies.known - {copies.master}
        if now - max(heard_at.get(member, listening_since), listening_since) > SILENCE_SECONDS
    )


def newcomers(
    copies: Copies,
    caught_up_at: Mapping[Member, float],
    left_at: Mapping[Member, float],
    now: float,
) -> list[Member]:
    """Return the replicas outside the in-sync set that would soon hold everything confirmed.

    While messages are written one after another, a replica is always a little behind what the
    master alone has confirmed. Once it is waited for, it no longer is. So a master waits for a
    newcomer first, and asks the arbiter once it holds everything confirmed
    (:meth:`.Copies.may_join`).

    What was observed while a replica was a member does not count: it may have left on purpose.

    Args:
        copies: The master's.
        caught_up_at: The time at which each replica that follows last had everything.
        left_at: The time at which a replica ceased to be a member.
        now: The present time.
    """
    return sorted(
        member
        for member in caught_up_at.keys() - copies.waited_for
        if caught_up_at[member] >= now - KEEPS_UP_SECONDS
        and caught_up_at[member] > left_at.get(member, -inf)
    )


def late_members(
    copies: Copies, caught_up_at: Mapping[Member, float], now: float, *, listening_since: float
) -> frozenset[Member]:
    """Return the members to remove because they are heard, but do not catch up (rule 6).

    A replica may refuse a record, or have a disk that is too slow: it is alive, and nothing would
    be confirmed for ever.

    Args:
        copies: The master's.
        caught_up_at: The time at which each replica that is heard last had everything written.
        now: The present time.
        listening_since: As for :func:`silent_members`.
    """
    return frozenset(
        member
        for member in copies.known & caught_up_at.keys()
        if now - max(caught_up_at[member], listening_since) > BEHIND_SECONDS
    )


class Outcome(StrEnum):
    """The state of a change that was asked for, after the row has been read again."""

    WON = "won"
    REPEAT = "repeat"
    LOST = "lost"
    SUPERSEDED = "superseded"
    ARBITER_BEHIND = "arbiter behind"


def outcome_of_term(
    asked: BrokerGroup, row: BrokerGroup, *, has_moved: bool, is_ours: bool
) -> Outcome:
    """Return what became of a term that a replica has asked for.

    Args:
        asked: The row that it has asked for.
        row: The row now.
        has_moved: Whether its version is another than that from which the term was asked for. If it
            is not, then the request may be on its way: only a repeated one settles it.
        is_ours: Whether the row names this very process as the author of its change.
    """
    if not has_moved:
        return Outcome.REPEAT
    # The same process may have asked for the same epoch twice: for its successor, in a hand-over
    # that was interrupted, and then for itself.
    return Outcome.WON if is_ours and row == asked else Outcome.LOST


def outcome_of_change(epoch: int, row: BrokerGroup, *, has_moved: bool) -> Outcome:
    """Return what became of a change of the in-sync set that the master of *epoch* asked for.

    ``WON`` means that the row's set is the one to adopt, whichever it is.
    """
    if row.epoch > epoch:
        return Outcome.SUPERSEDED
    if row.epoch < epoch:
        return Outcome.ARBITER_BEHIND
    return Outcome.WON if has_moved else Outcome.REPEAT


def has_lease(until: float, now: float) -> bool:
    """Tell whether the master may answer about the present (rule 10)."""
    return now < until


def is_lease_lost(until: float, now: float) -> bool:
    """Tell whether the master's lease has been over for so long that it steps down."""
    return now - until > LEASE_SECONDS


assert 2 * LEASE_SECONDS > PROMISE_SECONDS, "it would step down before it may remove the member"
