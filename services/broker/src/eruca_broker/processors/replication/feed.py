"""The replication feed: the master's side of one term.

A replica's fetch is a request and an acknowledgement in one. The feed checks it, notes how far the
replica's copy reaches, publishes what is confirmed by that, and answers with a run of the log: at
once, or as soon as bytes are written::

    replica                                    master
      fetch, holds X, quotes answer K  ──────►   rule 5: does it count?  Copies, MasterLease
                                                 given < end: answer at once
                                                 else: hold; written ─► answer
      run, confirmed, answer K+1  ◄───────────   … then publish what X confirmed
      append, flush as promised, fetch …

So a publication costs one round trip and the replica's write. The confirmed offset travels with the
next run. At a log's end that stays the same, a held fetch is answered without a run, a few
milliseconds after the offset has moved, so that the replica publishes it too.

Rules, with the numbers of the replication design:

5. An acknowledgement counts only if its epoch is the master's, its store has proved its lineage in
   this epoch, and it names the end of a record that the master has written, not amid a group. (A
   replica that was killed may hold the beginning of a write. One that followed another master may
   hold the beginning of what this one has copied as one run.)
6. Confirmed is the least offset of all members of the in-sync set that is known, and of the one
   that is being asked for. A member without a connection stops it.
7. Nothing is published before it is confirmed.
10. Each answer has a number. A fetch that quotes the last one proves that its replica was alive
    after that answer was sent.

Fetches form a *sequence*: the first one begins it where the replica's log ends, each later one
continues where the last run ended, whatever is acknowledged by then. So several are under way, and
the master sends a run while the replica stores the one before. A replica has one sequence: another
one ends it, and answers its held fetches without a run.

The replica verifies each record. So the master does not, except in the first run after a proof of
lineage: a replica that has refused a run proves itself again, and then learns whether the master's
copy is damaged.

One feed serves one epoch. The replicas that have proved their lineage are limited in number; one
that is in no in-sync set makes room.

Source: RocketMQ 5.3, ``AutoSwitchHAService``, ``AutoSwitchHAConnection``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from eruca.contract.errors import ForeignReplicaError, OverloadedError, StaleEpochError
from eruca.contract.replication import FollowedReplica, LineageAnswer, LineageRequest
from eruca_broker.core.replication import in_sync
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.in_sync import Copies
from eruca_broker.core.replication.master_lease import MasterLease
from eruca_broker.core.replication.roles import newcomers
from eruca_broker.processors.replication.fetches import Fetch, ProvedReplica, Run, Wake
from eruca_broker.processors.replication.lineage import answer_lineage, check_lineage
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading.cold_reads import AHEAD_SIZE
from eruca_chassis.clock import Clock

FOLLOWERS_MAX: Final = 16  # replicas that have proved their lineage; a group has two or three
TELL_SECONDS: Final = 0.005  # from a confirmation to a held fetch's answer, if nothing is written


class Feed:
    """One term's feed. All methods are called on the loop's thread.

    Args:
        store: The master's store, whose last epoch is this term's.
        epoch: The term.
        master: The store, as the group names it.
        known: The in-sync set of this epoch.
        clock: For leases; it counts suspensions.
        shown_offset: Log offset before which everything is known to be confirmed. A start publishes
            the whole log, of which former masters may have left a part unconfirmed.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        epoch: int,
        master: Member,
        known: frozenset[Member],
        clock: Clock,
        shown_offset: int,
    ) -> None:
        last = store.role.epochs().epochs[-1:]
        assert [begun.number for begun in last] == [epoch], "rule 2: the log says whose it is"
        self._epoch_begun_at = last[0].begun_at
        self._shown_offset = min(shown_offset, last[0].begun_at)
        self._store = store
        self._clock = clock
        self._copies = Copies(epoch, master, known)
        self._lease = MasterLease()
        self._followers: dict[Member, ProvedReplica] = {}
        self._left_at: dict[Member, float] = {}  # when a replica ceased to be waited for
        self._begun_at = clock.boottime()
        self._loop = asyncio.get_running_loop()
        self._telling: asyncio.TimerHandle | None = None
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._is_over = False
        self.on_later_epoch: Callable[[], None] = lambda: None  # a replica follows a later master
        # In the tick of the term's first append: without a hook, what is durable is confirmed.
        store.role.on_written = self._written
        store.role.on_durable = self._durable
        self._durable(store.durable_offset)

    # --- For the role -----------------------------------------------------------------------------

    @property
    def copies(self) -> Copies:
        """The copies, as the master knows them."""
        return self._copies

    @property
    def epoch(self) -> int:
        """The term."""
        return self._copies.epoch

    @property
    def lease_until(self) -> float:
        """The boottime until which no other replica can be master (rule 10)."""
        return self._lease.until(self._copies.waited_for - {self._copies.master})

    def asking(self, members: frozenset[Member]) -> None:
        """Wait for *members* too, from now on; call this before the arbiter is asked (rule 6)."""
        self._copies = self._copies.asking(members)

    def answered(self, members: frozenset[Member]) -> None:
        """Wait for *members* alone: the arbiter has told this epoch's in-sync set."""
        now = self._clock.boottime()
        self._left_at |= dict.fromkeys(self._copies.waited_for - members, now)
        self._copies = self._copies.answered(members)
        self._durable(self._store.durable_offset)

    def silent_since(self, member: Member) -> float:
        """Return the boottime of a member's last request, or of the term's beginning."""
        follower = self._followers.get(member)
        return self._begun_at if follower is None else follower.contact_at

    def heard_at(self) -> dict[Member, float]:
        """Return the boottime of the last request of each replica that follows."""
        return {member: follower.contact_at for member, follower in self._followers.items()}

    def caught_up_at(self) -> dict[Member, float]:
        """Return the boottime at which each replica that follows last had everything written."""
        return {member: follower.caught_up_at for member, follower in self._followers.items()}

    def behind_since(self, member: Member) -> float:
        """Return the boottime at which a member last had everything that was written by then."""
        follower = self._followers.get(member)
        return self._begun_at if follower is None else follower.caught_up_at

    def keeping_up(self) -> list[Member]:
        """Return the replicas outside the set that would soon hold everything confirmed."""
        now = self._clock.boottime()
        caught_up_at = {
            member: follower.caught_up_at
            for member, follower in self._followers.items()
            # Without the proof the master would lose its lease by waiting for it.
            if follower.has_caught_up and self._lease.until([member]) > now
        }
        return newcomers(self._copies, caught_up_at, self._left_at, now)

    async def have_everything(self, members: frozenset[Member], *, within_seconds: float) -> bool:
        """Wait until *members* hold everything confirmed; return whether they do by then.

        Raises:
            StaleEpochError: The term is over.
        """
        try:
            async with asyncio.timeout(within_seconds):
                await self._until(lambda: all(map(self._copies.may_join, members)))
        except TimeoutError:
            return False
        return True

    async def acknowledged(self, member: Member, log_offset: int) -> None:
        """Wait until *member* holds everything before a log offset.

        Raises:
            StaleEpochError: The term is over.
        """
        await self._until(lambda: dict(self._copies.held).get(member, -1) >= log_offset)

    async def confirmed(self, log_offset: int) -> None:
        """Wait until everything before a log offset is confirmed.

        Raises:
            StaleEpochError: The term is over.
        """
        await self._until(lambda: self._copies.confirmed >= log_offset)

    def close(self) -> None:
        """End the term: refuse held and later fetches, and leave the store's hooks."""
        self._is_over = True
        # Not None: a store without a hook confirms everything that is durable.
        self._store.role.on_written = self._store.role.on_durable = lambda _: None
        if self._telling is not None:
            self._telling.cancel()
        for follower in self._followers.values():
            follower.end_sequence()
        for _, future in self._waiters:
            if not future.done():
                future.set_exception(self._over())
        self._waiters.clear()

    def replicas(self) -> list[FollowedReplica]:
        """Return the replicas that follow, and the members that do not."""
        now, end = self._clock.boottime(), self._store.log_max_offset
        ends = dict(self._copies.held)
        members = self._copies.waited_for | self._followers.keys()
        shown = []
        for member in sorted(members - {self._copies.master}):
            held = ends.get(member, 0)
            behind_seconds = now - self.behind_since(member) if held < end else 0.0
            shown.append(
                FollowedReplica(
                    replica_id=member.replica_id,
                    uid=member.uid,
                    in_sync=member in self._copies.waited_for,
                    end=held,
                    behind_bytes=max(end - held, 0),
                    silent_seconds=max(now - self.silent_since(member), 0.0),
                    behind_seconds=max(behind_seconds, 0.0),
                )
            )
        return shown

    # --- For requests -----------------------------------------------------------------------------

    def prove(self, request: LineageRequest) -> LineageAnswer:
        """Compare a replica's log with the master's; let it follow once its end is proved.

        Raises:
            StaleEpochError: It follows another epoch.
            ForeignReplicaError: Its log is not a beginning of the master's, or does not reach the
                part that the master still has, or lacks what the store has acknowledged.
            OverloadedError: Too many replicas follow.
        """
        member = Member(request.replica_id, request.uid)
        self._check_term(request.epoch)
        if member.replica_id == self._copies.master.replica_id:
            raise ForeignReplicaError(
                f"replica id {member.replica_id} is the master's own",
                fix="give each replica of the group its own ERUCA_BROKER_REPLICA_ID",
            )
        self._check_kept(member, request.end)
        part = check_lineage(self._store, request, epoch=self.epoch)
        if part.is_proved:
            self._admit(member)
        return answer_lineage(self._store, part, epoch=self.epoch, confirmed=self._published_soon)

    def acknowledge(self, fetch: Fetch) -> None:
        """Note what a fetch says about its replica's copy (rule 5), and that it is alive.

        Publish nothing yet: call :meth:`confirm` once the fetch is answered or held, so that the
        replica and this broker work at the same time.

        Raises:
            StaleEpochError: It is about another epoch's log; nothing is noted.
            ForeignReplicaError: Its lineage is not proved, or it claims what this log does not
                have; nothing is noted.
            PostponedError: What tells whether a record ends there is not in memory; nothing is
                noted. A replica that copies from the tier acknowledges what this log had long ago.
        """
        self._check_term(fetch.epoch)
        store, end, acknowledged = self._store, self._store.log_max_offset, fetch.acknowledged
        try:
            copies = self._copies.acknowledged(
                fetch.member, epoch=fetch.epoch, log_offset=acknowledged, written_end=end
            )
        except (in_sync.UnprovedReplicaError, in_sync.ImpossibleOffsetError) as error:
            raise ForeignReplicaError(str(error), fix="prove the replica's lineage") from error
        follower = self._followers[fetch.member]
        is_known = acknowledged == end or acknowledged in follower.given
        is_boundary = partial(store.log.is_boundary, acknowledged)
        if not is_known and not store.cold.attempt(f"replica {fetch.member}", is_boundary):
            raise ForeignReplicaError(
                f"replica {fetch.member} holds records up to {acknowledged}, but no record of the "
                "master ends there, or a group of records does not",
                fix="prove the replica's lineage",
            )
        if not fetch.sequence:
            follower.end_sequence()
            follower.given_to = acknowledged
        elif fetch.sequence != follower.sequence:
            raise ForeignReplicaError(
                f"replica {fetch.member} has no sequence of runs that began with answer "
                f"{fetch.sequence}",
                fix="begin another one",
            )
        assert acknowledged <= end, "rule 5: nobody holds what is not written"
        self._copies = copies.advanced(store.durable_offset)
        self._lease.quoted(fetch.member, fetch.answer)
        now = self._clock.boottime()
        if acknowledged >= end:
            follower.caught_up_at, follower.has_caught_up = now, True
        elif acknowledged >= follower.end_at_contact:
            follower.caught_up_at, follower.has_caught_up = follower.contact_at, True
        follower.contact_at, follower.end_at_contact = now, end

    def has_run(self, fetch: Fetch) -> bool:
        """Tell whether there is something to copy, or the term is over."""
        return self._is_over or (
            self._followers[fetch.member].given_to < self._store.log_max_offset
        )

    def sequence_count(self, fetch: Fetch) -> int:
        """Return the number of sequences of the fetch's replica that have ended."""
        follower = self._followers.get(fetch.member)
        return -1 if follower is None else follower.sequence_count

    def run(
        self, fetch: Fetch, sequence_count: int | None = None, *, may_have_run: bool = True
    ) -> Run:
        """Return the answer to an acknowledged fetch.

        Args:
            fetch: The fetch.
            sequence_count: What :meth:`sequence_count` returned when it was acknowledged; None:
                now.
            may_have_run: Whether its sequence goes on; else the answer has no run.

        Raises:
            PostponedError: The run is not in memory.
            StaleEpochError: The term is over.
            ForeignReplicaError: The replica was forgotten while its run was read.
            UnavailableError: A record is damaged.
        """
        if self._is_over:
            raise self._over()
        store, end = self._store, self._store.log_max_offset
        follower = self._followers.get(fetch.member)
        if follower is None:
            raise ForeignReplicaError(
                f"replica {fetch.member} does not follow any more", fix="prove its lineage again"
            )
        # The sequence may have ended while the run was read from the disk.
        may_have_run &= sequence_count in (None, follower.sequence_count)
        begin = follower.given_to
        pieces: list[memoryview] = []
        if may_have_run and begin != end:
            read = partial(self._read, begin, end, fetch, is_doubtful=follower.is_doubtful)
            pieces = store.cold.attempt(f"replica {fetch.member}", read, ahead=AHEAD_SIZE)
            follower.is_doubtful = False
        number = self._lease.answering(fetch.member, self._clock.boottime())
        if may_have_run:
            if pieces:
                follower.given_to = begin + sum(map(len, pieces))
                follower.given.append(follower.given_to)
            follower.sequence = follower.sequence or number
        follower.told = self._published_soon
        return Run(
            pieces,
            number,
            self.epoch,
            follower.told,
            store.log_min_offset,
            end,
            self._clock.now_ms(),
        )

    def hold(self, fetch: Fetch, wake: Wake) -> Callable[[], None]:
        """Call *wake* once something is written, at the latest after the fetch's wait.

        Return a function that stops that.
        """
        return self._followers[fetch.member].hold(wake, fetch.wait_seconds)

    def confirm(self) -> None:
        """Publish what is confirmed, and let the replicas know of it (rule 7)."""
        if self._is_over:
            return
        confirmed = self._published_soon
        if confirmed > self._store.confirmed_offset:
            self._store.role.confirm(confirmed)
        self._resolve_waiters()
        if self._telling is None and any(
            follower.held and follower.told < confirmed for follower in self._followers.values()
        ):
            self._telling = self._loop.call_later(TELL_SECONDS, self._tell, confirmed)

    # --- Inside -----------------------------------------------------------------------------------

    def _read(self, begin: int, end: int, fetch: Fetch, *, is_doubtful: bool) -> list[memoryview]:
        if end - begin <= fetch.bytes_max and not is_doubtful:  # both are ends of writes
            return self._store.log.pieces(begin, end)
        return self._store.log.run(begin, fetch.bytes_max, is_proved=is_doubtful)

    @property
    def _published_soon(self) -> int:
        """Log offset before which everything is published, by the next :meth:`confirm`.

        Records of earlier epochs are confirmed with the first one of this epoch, never before it.
        """
        confirmed = self._copies.confirmed
        if confirmed > self._epoch_begun_at:
            return confirmed
        return min(self._shown_offset, self._store.confirmed_offset)

    def _check_term(self, epoch: int) -> None:
        if self._is_over:
            raise self._over()
        if epoch > self.epoch:
            self.on_later_epoch()
        if epoch != self.epoch:
            raise StaleEpochError(
                f"expected epoch {self.epoch}, found {epoch}",
                fix="read the broker group's row again, and follow its master in its epoch",
            )

    def _check_kept(self, member: Member, end: int) -> None:
        """Refuse a store that has less than it has acknowledged in this epoch (rule 1).

        It was restored from a copy, which no start can tell. Once it has left the in-sync set, it
        begins again.
        """
        held = dict(self._copies.held).get(member, 0)
        if end >= held:
            return
        if member in self._copies.waited_for:
            raise ForeignReplicaError(
                f"replica {member} has acknowledged everything up to {held}, but its log ends at "
                f"{end}: it was restored from an older copy",
                fix="delete config/replica.json of a store that is restored",
            )
        self._followers.pop(member).end_sequence()
        self._copies = self._copies.forgotten(member)

    def _over(self) -> StaleEpochError:
        return StaleEpochError(
            f"the master's epoch {self.epoch} is over",
            fix="read the broker group's row again, and follow its master in its epoch",
        )

    def _admit(self, member: Member) -> None:
        """Let *member* follow; if too many do, forget the one that has been silent longest."""
        if member not in self._followers and len(self._followers) >= FOLLOWERS_MAX:
            spare = self._followers.keys() - self._copies.waited_for
            if not spare:
                raise OverloadedError(f"{FOLLOWERS_MAX} replicas follow this master already")
            oldest = min(spare, key=self.silent_since)
            self._followers.pop(oldest).end_sequence()
            self._copies = self._copies.forgotten(oldest)
        now = self._clock.boottime()
        end = self._store.log_max_offset
        follower = self._followers.setdefault(member, ProvedReplica(now, now, end))
        follower.contact_at = now
        follower.end_sequence()
        follower.is_doubtful = True
        self._copies = self._copies.proved(member)

    def _written(self, end_offset: int) -> None:
        """Answer the held fetches: the log has grown to *end_offset*."""
        for follower in self._followers.values():
            while follower.held and follower.given_to < end_offset:
                follower.wake_first()

    def _durable(self, durable_offset: int) -> None:
        """Publish what is confirmed now that the master's own copy is durable that far."""
        self._copies = self._copies.advanced(durable_offset)
        self.confirm()

    def _tell(self, confirmed: int) -> None:
        """Answer the held fetches of replicas that do not know of *confirmed* yet."""
        self._telling = None
        for follower in self._followers.values():
            if follower.held and follower.told < confirmed:
                follower.wake_first()
        self.confirm()  # it has moved on meanwhile

    async def _until(self, holds: Callable[[], bool]) -> None:
        if self._is_over:
            raise self._over()
        if not holds():
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((holds, future))
            await future

    def _resolve_waiters(self) -> None:
        if not self._waiters:
            return
        waiting = []
        for holds, future in self._waiters:
            if not future.done() and holds():
                future.set_result(None)
            elif not future.done():
                waiting.append((holds, future))
        self._waiters = waiting
