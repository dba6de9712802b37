"""Members of consumer groups: sessions, generations, and the rules for joining.

This is soft state: none of it is in the log. A member exists while its session lasts, and
heartbeats renew the session. A client that owns locks when the broker starts is a **holder**. Its
session begins with the broker's start, so that nobody takes a queue from a reader that is still
alive. Its next heartbeat makes it a member again.

:data:`MEMBERSHIP` is the table of a client's states.

A group's **generation** grows with each change on which its members must agree, also across
restarts of the broker. It is the number of the run, followed by a count of changes.

The client id of a **static** member belongs to its latest process. So the broker remembers that
process after its session is over. If it was only suspended, and another process has taken its place
meanwhile, it is refused. After an orderly leave nothing needs to be remembered.

Sessions are measured on the monotonic clock, from the arrival of a heartbeat. A client measures
from the moment at which it sent the last answered heartbeat, so its session ends before the
broker's.

Source: RocketMQ 5.3, ``ConsumerManager``, ``ConsumerGroupInfo``. There the last heartbeat's
subscriptions silently replace the group's; here members that differ are refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from eruca.contract.errors import ClientIdInUseError, SubscriptionConflictError
from eruca.contract.errors.shown import shown
from eruca.contract.groups import MemberHandling
from eruca_broker.core.state.group_events import Subscribed
from eruca_broker.core.state.group_state import Group, LockOwner
from eruca_chassis.machines import Machine

CHANGES_PER_RUN: Final = 1_000_000_000  # more than a run can have
SILENT_MAX: Final = 64  # the latest silent static members of a group that are remembered
_NAMED_MEMBERS_MAX: Final = 5  # members an error names
_NAMED_TOPICS_MAX: Final = 5  # differences an error names


class Standing(StrEnum):
    """The state of a client in a group."""

    ABSENT = "absent"
    HOLDER = "holder"  # owns locks that were found at the start; not heard from since
    MEMBER = "member"
    SILENT = "silent"  # perhaps a static member, whose session is over; its process is remembered


class Cause(StrEnum):
    """An event that changes the state of a client."""

    FOUND = "lock found at the start"
    BEAT = "heartbeat"  # that was accepted: it joins, renews, or takes over from another process
    LEFT = "left"
    EXPIRED = "session over"
    STATIC_EXPIRED = "session over, perhaps static"
    FORGOTTEN = "forgotten"  # more than SILENT_MAX clients of the group followed


MEMBERSHIP: Final = Machine(
    (Standing.ABSENT, Cause.FOUND, Standing.HOLDER),
    (Standing.ABSENT, Cause.BEAT, Standing.MEMBER),
    (Standing.HOLDER, Cause.BEAT, Standing.MEMBER),
    (Standing.HOLDER, Cause.LEFT, Standing.ABSENT),
    # Nobody knows whether its client id is static, so its process is remembered.
    (Standing.HOLDER, Cause.STATIC_EXPIRED, Standing.SILENT),
    (Standing.MEMBER, Cause.BEAT, Standing.MEMBER),
    (Standing.MEMBER, Cause.LEFT, Standing.ABSENT),
    (Standing.MEMBER, Cause.EXPIRED, Standing.ABSENT),
    (Standing.MEMBER, Cause.STATIC_EXPIRED, Standing.SILENT),
    (Standing.SILENT, Cause.BEAT, Standing.MEMBER),
    (Standing.SILENT, Cause.FORGOTTEN, Standing.ABSENT),
)


@dataclass(frozen=True, slots=True)
class Beat:
    """The parts of a heartbeat that matter to membership."""

    client_id: str
    incarnation: str
    subscriptions: tuple[Subscribed, ...]  # by topic
    session_seconds: float
    message_model: str = "clustering"
    consume_type: str = "push"
    is_static: bool = False
    replaces_version: int | None = None
    address: str = ""
    # changes with each heartbeat, and no decision depends on it
    handling: MemberHandling | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Session:
    """A live member, or a holder of locks that has sent nothing since the start."""

    client_id: str
    incarnation: str
    deadline: float  # monotonic
    session_seconds: float
    beat: Beat | None  # the last one; None: a holder, not a member
    joined_at_ms: int = 0
    seen_at_ms: int = 0  # not before it joined

    @property
    def standing(self) -> Standing:
        """Return the state of the client while this session lasts."""
        return Standing.HOLDER if self.beat is None else Standing.MEMBER

    @property
    def may_be_static(self) -> bool:
        """Return True if a static member may take its place, or if that is unknown."""
        return self.beat is None or self.beat.is_static


@dataclass(frozen=True, slots=True)
class Admission:
    """The effect of an accepted heartbeat."""

    is_renewal: bool  # else the client joins
    replaces: Session | None  # an earlier process of a static member, whose place it takes
    new_subscriptions: tuple[Subscribed, ...] | None  # that replace the group's


@dataclass(slots=True)
class _GroupMembers:
    generation: int
    # By client id; a client is in at most one of the two.
    sessions: dict[str, Session] = field(default_factory=dict)
    silent: dict[str, Session] = field(default_factory=dict)  # the most recent ones last

    def standing(self, client_id: str) -> Standing:
        session = self.sessions.get(client_id)
        if session is not None:
            return session.standing
        return Standing.SILENT if client_id in self.silent else Standing.ABSENT


class Membership:
    """The members of each group on this broker."""

    def __init__(self, run: int) -> None:
        """Begin without members; *run* is greater than that of any earlier broker of the store."""
        assert run >= 0
        self._run_generation = run * CHANGES_PER_RUN
        self._first_generation = self._run_generation  # of groups not in the table
        self._changes = 0
        self._groups: dict[str, _GroupMembers] = {}
        self._deadlines: list[tuple[float, str, str]] = []  # a heap; some entries are superseded
        self._due_at: dict[tuple[str, str], float] = {}  # each session's only valid deadline there
        self._member_count = 0

    def __len__(self) -> int:
        """Return the number of members of all groups."""
        return self._member_count

    @property
    def has_changed(self) -> bool:
        """Return True if anything has changed since the start."""
        return self._changes > 0

    def generation(self, group: str) -> int:
        """Return the group's generation."""
        known = self._groups.get(group)
        return self._first_generation if known is None else known.generation

    def changed(self, group: str) -> None:
        """Begin a new generation of the group."""
        self._changes += 1
        generation = self._run_generation + self._changes
        assert generation < self._run_generation + CHANGES_PER_RUN, "the next run's generations"
        known = self._groups.get(group)
        if known is None:
            self._groups[group] = _GroupMembers(generation)
        else:
            known.generation = generation

    def forget(self, group: str) -> None:
        """Forget a deleted group, which has no sessions; a later one gets a newer generation."""
        assert not self.has_sessions(group)
        self.changed(group)
        del self._groups[group]
        self._first_generation = self._run_generation + self._changes

    def members(self, group: str) -> list[Session]:
        """Return the group's members by client id, without mere holders."""
        return sorted(
            (s for s in self._sessions(group).values() if s.beat is not None),
            key=lambda session: session.client_id,
        )

    def has_sessions(self, group: str) -> bool:
        """Tell whether the group has members, or holders of locks."""
        return bool(self._sessions(group))

    def session(self, group: str, client_id: str, now: float) -> Session | None:
        """Return a client's session if it lasts."""
        session = self._sessions(group).get(client_id)
        return session if session is not None and session.deadline > now else None

    def is_live(self, group: str, owner: LockOwner, now: float) -> bool:
        """Tell whether the process that owns a lock has a session that lasts."""
        session = self.session(group, owner.client_id, now)
        return session is not None and session.incarnation == owner.incarnation

    def hold(self, group: str, owner: LockOwner, now: float) -> None:
        """Give the owner of a lock, found at the start, a session."""
        known = self._known(group)
        if known.standing(owner.client_id) is Standing.ABSENT:  # else it owns one more lock
            deadline = now + owner.session_seconds
            session = Session(
                owner.client_id, owner.incarnation, deadline, owner.session_seconds, None
            )
            self._move(known, Cause.FOUND, session)
            self._watch(group, owner.client_id, deadline)

    def admit(self, group: Group, beat: Beat, now: float) -> Admission:
        """Decide on a heartbeat; change nothing.

        Raises:
            ClientIdInUseError: Another process has the client id, or has taken it over.
            SubscriptionConflictError: The group has other subscriptions.
        """
        session = self._of_client(group, beat, now)
        others = [
            other
            for other in self._sessions(group.name).values()
            if other.client_id != beat.client_id and other.deadline > now
        ]
        same_process = session is not None and session.incarnation == beat.incarnation
        return Admission(
            is_renewal=same_process and session is not None and session.beat is not None,
            replaces=None if same_process else session,
            new_subscriptions=_new_subscriptions(group, beat, others),
        )

    def renews(self, group: Group, beat: Beat, now: float) -> bool:
        """Tell whether *beat* contains nothing new, so that it needs no decision."""
        session = self.session(group.name, beat.client_id, now)
        return (
            session is not None
            and session.beat is not None
            and replace(session.beat, address="", replaces_version=None)
            == replace(beat, address="", replaces_version=None)
            and (
                group.settings.subscription_mode == "per_member"
                or beat.subscriptions == group.subscriptions
            )
        )

    def heard(self, group: str, beat: Beat, *, now: float, now_ms: int) -> Session:
        """Record an accepted heartbeat; begin a new generation if it changes anything."""
        known = self._known(group)
        before = known.sessions.get(beat.client_id)
        is_member = before is not None and before.standing is Standing.MEMBER
        is_same = before is not None and before.incarnation == beat.incarnation
        session = Session(
            beat.client_id,
            beat.incarnation,
            now + beat.session_seconds,
            beat.session_seconds,
            beat,
            before.joined_at_ms if before is not None and is_member and is_same else now_ms,
            now_ms,
        )
        self._move(known, Cause.BEAT, session)
        self._watch(group, beat.client_id, session.deadline)
        if not is_member or not is_same or _differs(before, beat):
            self.changed(group)
        return session

    def expire(self, group: str, client_id: str) -> None:
        """End a session that is over, as :meth:`remove` does, and remember its process."""
        session = self._sessions(group).get(client_id)
        if session is not None:
            cause = Cause.STATIC_EXPIRED if session.may_be_static else Cause.EXPIRED
            self._end(group, cause, session)

    def remove(self, group: str, client_id: str) -> None:
        """End a session; if it is a member's, begin a new generation."""
        session = self._sessions(group).get(client_id)
        if session is not None:
            self._end(group, Cause.LEFT, session)

    def due(self, now: float) -> list[tuple[str, str]]:
        """Return group and client id of sessions that are over; they stay until removed."""
        due: list[tuple[str, str]] = []
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, group, client_id = heapq.heappop(self._deadlines)
            if self._due_at.get((group, client_id)) != deadline:
                continue  # superseded by an earlier one
            del self._due_at[group, client_id]
            session = self._sessions(group).get(client_id)
            if session is not None and session.deadline > now:
                self._watch(group, client_id, session.deadline)
            elif session is not None:
                due.append((group, client_id))
        return due

    def over(self, group: str, now: float) -> list[str]:
        """Return the clients of one group whose sessions are over."""
        return [s.client_id for s in self._sessions(group).values() if s.deadline <= now]

    def _sessions(self, group: str) -> dict[str, Session]:
        known = self._groups.get(group)
        return {} if known is None else known.sessions

    def _known(self, group: str) -> _GroupMembers:
        known = self._groups.get(group)
        if known is None:
            known = self._groups[group] = _GroupMembers(self._first_generation)
        return known

    def _end(self, group: str, cause: Cause, session: Session) -> None:
        self._move(self._groups[group], cause, session)
        if session.standing is Standing.MEMBER:
            self.changed(group)

    def _move(self, known: _GroupMembers, cause: Cause, session: Session) -> None:
        """Put the client of *session*, its last one, into the state that the table gives."""
        client_id = session.client_id
        before = known.standing(client_id)
        after = MEMBERSHIP.step(before, cause)
        if before is Standing.SILENT:
            del known.silent[client_id]
        if after is Standing.SILENT:
            del known.sessions[client_id]
            known.silent[client_id] = session
            if len(known.silent) > SILENT_MAX:
                self._move(known, Cause.FORGOTTEN, next(iter(known.silent.values())))
        elif after is Standing.ABSENT:
            known.sessions.pop(client_id, None)
        else:
            known.sessions[client_id] = session
        self._member_count += (after is Standing.MEMBER) - (before is Standing.MEMBER)
        assert known.standing(client_id) is after, "a session without a state"
        assert self._member_count >= 0

    def _watch(self, group: str, client_id: str, deadline: float) -> None:
        # A renewal does not move the heap entry: the entry is postponed once its time has come.
        watched = self._due_at.get((group, client_id))
        if watched is None or deadline < watched:
            self._due_at[group, client_id] = deadline
            heapq.heappush(self._deadlines, (deadline, group, client_id))

    def _of_client(self, group: Group, beat: Beat, now: float) -> Session | None:
        """Return the client's session, or that of the process whose place it takes.

        Raises:
            ClientIdInUseError: This process must not use the client id.
        """
        if (beat.client_id, beat.incarnation) in group.replaced:
            raise ClientIdInUseError(
                f"client id {beat.client_id!r} of group {group.name!r} has been taken over by a "
                "later process",
                fix="stop this process, or give it a unique client id",
            )
        session = self.session(group.name, beat.client_id, now)
        if session is None:
            return self._predecessor(group.name, beat)
        if session.incarnation == beat.incarnation:
            return session
        if beat.is_static and session.may_be_static:
            return session
        where = f" at {session.beat.address}" if session.beat and session.beat.address else ""
        raise ClientIdInUseError(
            f"client id {beat.client_id!r} of group {group.name!r} belongs to another process"
            f"{where}, whose session lasts {session.deadline - now:.0f} s unless it is renewed"
        )

    def _predecessor(self, group: str, beat: Beat) -> Session | None:
        """Return the session, now over, of another process whose place a static member takes."""
        known = self._groups.get(group)
        if known is None or not beat.is_static:
            return None
        session = known.sessions.get(beat.client_id) or known.silent.get(beat.client_id)
        if session is None or session.incarnation == beat.incarnation or not session.may_be_static:
            return None
        return session


def _differs(before: Session | None, beat: Beat) -> bool:
    return (
        before is None
        or before.beat is None
        or before.beat.subscriptions != beat.subscriptions
        or before.beat.message_model != beat.message_model
    )


def _new_subscriptions(
    group: Group, beat: Beat, others: Sequence[Session]
) -> tuple[Subscribed, ...] | None:
    """Return the group's new subscriptions, or None if they stay.

    Raises:
        SubscriptionConflictError: Other members exist, and have other subscriptions.
    """
    for other in others:
        if other.beat is not None and other.beat.message_model != beat.message_model:
            raise SubscriptionConflictError(
                f"expected message_model {other.beat.message_model!r}, as member "
                f"{other.client_id!r} of group {group.name!r} has it, found "
                f"{beat.message_model!r} at {beat.client_id!r}",
                fix="use the same message_model in all members of the group",
            )
    if (
        group.settings.subscription_mode == "per_member"
        or beat.subscriptions == group.subscriptions
    ):
        return None
    if not others or beat.replaces_version == group.subscription_version:
        return beat.subscriptions
    named = ", ".join(repr(other.client_id) for other in others[:_NAMED_MEMBERS_MAX])
    more = len(others) - _NAMED_MEMBERS_MAX
    differences = list(_differences(group.subscriptions, beat.subscriptions))
    shown = "; ".join(differences[:_NAMED_TOPICS_MAX])
    if len(differences) > _NAMED_TOPICS_MAX:
        shown += f"; and {len(differences) - _NAMED_TOPICS_MAX} more"
    raise SubscriptionConflictError(
        f"the subscriptions of {beat.client_id!r} differ from those of group {group.name!r}, whose "
        f"members are {named}{f' and {more} more' if more > 0 else ''}: {shown} "
        f"(subscription_version {group.subscription_version})"
    )


def _differences(group: Sequence[Subscribed], member: Sequence[Subscribed]) -> Iterator[str]:
    of_group = {entry.topic: entry for entry in group}
    of_member = {entry.topic: entry for entry in member}
    for topic in sorted(of_group.keys() | of_member.keys()):
        theirs, its = of_group.get(topic), of_member.get(topic)
        if theirs != its:
            yield f"topic {topic!r}: the group has {_shown(theirs)}, the member {_shown(its)}"


def _shown(entry: Subscribed | None) -> str:
    if entry is None:
        return "none"
    return f"{entry.filter_type} {shown(entry.filter)!r}"
