"""One term of a master: it keeps the in-sync set, knows what ends it, and can hand over.

Rules, with the numbers of the replication design:

6. A newcomer is waited for before the arbiter is asked to name it; a member that leaves is waited
   for until the arbiter has answered.
10. Without its lease a master answers reads alone; if that lasts, it steps down.
12. A later epoch in the row ends the term.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from math import inf
from typing import Final

import structlog

from eruca.contract.errors import ConflictError, StaleEpochError, StoreFailedError
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.roles import (
    Outcome,
    Turn,
    is_lease_lost,
    silent_members,
)
from eruca_broker.processors.replication.arbiter import GroupRow, KnownRow
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.watched_row import WatchedRow
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

PAUSED_SECONDS: Final = 2.0  # a longer gap between two looks: this process was stopped
ALIVE_SECONDS: Final = 2.0  # since its last fetch, for a replica that is to take over
JOIN_SECONDS: Final = 1.0  # for a newcomer to have everything confirmed: others wait for it
REASON_SIZE_MAX: Final = 200  # characters

logger = structlog.get_logger(__name__)


class Term:
    """A term that this replica has won.

    Args:
        store: The master's store.
        feed: The term's.
        row: The arbiter's.
        clock: Its boottime is for promises.
    """

    def __init__(self, store: MessageStore, feed: Feed, row: WatchedRow, clock: Clock) -> None:
        self.feed = feed
        self.is_confirmed = False  # whether the record that begins its epoch is
        self.is_handing_over = False
        self.turn: Turn | None = None  # that ends it
        self._store = store
        self._row = row
        self._clock = clock
        self._seen_at = self._listening_since = clock.boottime()
        self._changing: asyncio.Task[None] | None = None

    def look(self) -> Turn | None:
        """Look at the group: return what ends the term, or keep the in-sync set."""
        now, row = self._clock.boottime(), self._row.known
        if now - self._seen_at > PAUSED_SECONDS:
            self._listening_since = now
        self._seen_at = now
        if self.turn is not None:
            return self.turn
        if row is not None and row.group.epoch > self.feed.epoch:
            return Turn.SUPERSEDED
        if self.is_confirmed and is_lease_lost(self.feed.lease_until, now):
            return Turn.LEASE_LOST
        has_failed = isinstance(self._store.refusal, StoreFailedError)
        if has_failed and len(self.feed.copies.known) > 1:
            return Turn.DISK_FAILED
        if row is not None and row.group.epoch == self.feed.epoch:
            self._keep_set(row, now)
        return None

    async def end(self) -> None:
        """End a change that is under way; the next master settles it."""
        changing, self._changing = self._changing, None
        if changing is not None:
            changing.cancel()
            await asyncio.wait({changing})

    # --- The in-sync set --------------------------------------------------------------------------

    def _keep_set(self, row: KnownRow, now: float) -> None:
        """Adopt the row's set; begin to change it if a member is silent, or one has caught up."""
        feed = self.feed
        if self._changing is not None:
            if not self._changing.done():
                return
            changing, self._changing = self._changing, None
            changing.result()  # raises what it did not expect
        if self.is_handing_over:
            return
        copies, group, reasons = feed.copies, row.group, []
        assert copies.asked is None, "the last change was settled"
        if group.in_sync != copies.known:
            feed.answered(group.in_sync)
            return
        for member in silent_members(
            copies, feed.heard_at(), now, listening_since=self._listening_since
        ):
            group = group.without(copies.master, member)
            reasons.append(f"replica {member} is silent")
        listed = {Member(replica.replica_id, replica.uid) for replica in row.row.replicas}
        for member in feed.keeping_up() if self.is_confirmed else ():
            if member in listed:
                group = group.with_member(copies.master, member)
                reasons.append(f"replica {member} has everything confirmed")
        if reasons:
            reason = "; ".join(reasons)[:REASON_SIZE_MAX]
            change = self._change(row.version, replace(row.row, group=group), reason)
            self._changing = asyncio.create_task(change, name="change of the in-sync set")

    async def _change(self, expected: str, asked: GroupRow, reason: str) -> None:
        feed = self.feed
        joining = asked.group.in_sync - feed.copies.known
        feed.asking(asked.group.in_sync)  # rule 6: before the arbiter is asked
        try:
            has_everything = await feed.have_everything(joining, within_seconds=JOIN_SECONDS)
        except StaleEpochError:
            return  # the term has ended
        if not has_everything:
            feed.answered(feed.copies.known)  # nobody was asked
            return
        outcome = await self._row.settle_change(feed.epoch, expected, asked, reason)
        if outcome is Outcome.LOST:
            feed.answered(feed.copies.known)
        elif outcome is Outcome.WON:
            assert self._row.known is not None
            in_sync = self._row.known.group.in_sync
            level = logger.warning if in_sync < feed.copies.known else logger.info
            level("in-sync set", copies=len(in_sync), reason=reason)
            feed.answered(in_sync)

    # --- Handing over -----------------------------------------------------------------------------

    def successor(self, to: int | None) -> Member:
        """Return the replica to hand over to.

        Args:
            to: Its id; None: the one that has acknowledged most.

        Raises:
            ConflictError: There is none, or *to* may not become master.
        """
        copies, heard_at = self.feed.copies, self.feed.heard_at()
        held, alive_since = dict(copies.held), self._clock.boottime() - ALIVE_SECONDS
        able = [
            member
            for member in copies.known - {copies.master}
            if member in held
            and heard_at.get(member, -inf) >= alive_since
            and to in (None, member.replica_id)
        ]
        if not able:
            which = "another replica" if to is None else f"replica {to}"
            raise ConflictError(
                f"{which} is not in sync, or does not answer, so it cannot become master",
                fix="see GET /v1/replication/status of the master",
            )
        return max(able, key=lambda member: (held[member], -member.replica_id))

    async def bring_level(self, successor: Member) -> None:
        """Return once the successor has everything, everything is confirmed, and the arbiter is up.

        Raises:
            StaleEpochError: The term is over.
            UnansweredError: No controller answers.
        """
        if self._changing is not None:
            await asyncio.wait({self._changing})
        row = await self._row.read()
        if row is None or row.group.epoch != self.feed.epoch:
            raise StaleEpochError(f"epoch {self.feed.epoch} is over")
        while True:
            end = self._store.log_max_offset
            await self.feed.acknowledged(successor, end)
            await self.feed.confirmed(end)
            if self._store.confirmed_offset == self._store.log_max_offset:
                return

    async def appoint(self, successor: Member, *, is_leaving: bool) -> Outcome:
        """Ask the arbiter to name *successor*; return what became of that."""
        row, master = self._row.known, self.feed.copies.master
        if row is None or row.group.epoch != self.feed.epoch:
            return Outcome.LOST
        group = row.group.next_term(successor)
        if is_leaving:
            group = replace(group, in_sync=group.in_sync - {master})
        reason = f"master {master} hands over" + (", and stops" if is_leaving else "")
        return await self._row.settle_term(row.version, replace(row.row, group=group), reason)
