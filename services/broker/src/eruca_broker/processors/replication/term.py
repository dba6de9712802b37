"""One term of a master: it keeps the in-sync set, knows what ends it, and can hand over.

Rules, with the numbers of the replication design:

6. A newcomer is waited for before the arbiter is asked to name it; a member that leaves is waited
   for until the arbiter has answered. One that is silent, or does not catch up, has to leave.
10. Without its lease a master answers reads alone; if that lasts, it steps down.
12. A later epoch in the row ends the term. A request of a later epoch has the row read at once.
13. If the arbiter has lost changes of this epoch, the master states its set again.
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
    handed_over,
    is_lease_lost,
    late_members,
    restated,
    silent_members,
)
from eruca_broker.processors.replication.arbiter import GroupRow, KnownRow, UnansweredError
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
        feed.on_later_epoch = row.look_again  # rule 12
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
        if self._row.is_older(row):
            self._changing = asyncio.create_task(self._restate(), name="restated in-sync set")
            return
        if group.in_sync != copies.known:
            feed.answered(group.in_sync)
            return
        since = self._listening_since
        silent = silent_members(copies, feed.heard_at(), now, listening_since=since)
        late = late_members(copies, feed.caught_up_at(), now, listening_since=since)
        for member in silent | late:
            group = group.without(copies.master, member)
            what = "is silent" if member in silent else "does not catch up"
            reasons.append(f"replica {member} {what}")
        listed = {Member(replica.replica_id, replica.uid) for replica in row.row.replicas}
        for member in feed.keeping_up() if self.is_confirmed else ():
            if member in listed:
                group = group.with_member(copies.master, member)
                reasons.append(f"replica {member} has everything confirmed")
        if reasons:
            reason = "; ".join(reasons)[:REASON_SIZE_MAX]
            change = self._change(row.version, replace(row.row, group=group), reason)
            self._changing = asyncio.create_task(change, name="change of the in-sync set")

    async def _restate(self) -> None:
        """State the set again, in the next epoch: the arbiter has lost changes (rule 13).

        By that the term ends, and this replica takes the next one.
        """
        try:
            row = await self._row.read()
        except UnansweredError:
            return  # the next look finds the older row again
        latest = self._row.latest
        if row is None or not self._row.is_older(row):
            return
        assert latest is not None, "it has won its term by a row"
        copies = self.feed.copies
        group = restated(copies.master, copies.epoch, copies.known)
        if row.group.epoch > copies.epoch:
            return  # another replica has taken a term
        logger.error(
            "the arbiter has lost changes of this term; its in-sync set is stated again",
            epoch=copies.epoch,
            in_sync=sorted(map(str, copies.known)),
            lost_changes=latest.number - row.number,
        )
        reason = f"the arbiter had lost changes; master {copies.master} states them again"
        await self._row.settle_term(row.version, replace(latest.row, group=group), reason)

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
        if self._row.is_older(row):
            assert self._row.latest is not None
            row = row._replace(row=self._row.latest.row)  # the set that the arbiter has forgotten
        min_in_sync = row.row.min_in_sync
        group = handed_over(row.group, successor, min_in_sync=min_in_sync, is_leaving=is_leaving)
        reason = f"master {master} hands over" + (", and stops" if is_leaving else "")
        return await self._row.settle_term(row.version, replace(row.row, group=group), reason)
