"""The follower: a replica's side of one term.

It proves its lineage, then pulls the master's log by two *pullers*, each with one fetch under way::

    puller 1   fetch, holds X ──► run 1 ──► verify, append ──► fetch, holds X' ──► run 3 …
    puller 2       fetch, holds X ──► run 2 …    (waits)  ──► verify, append ──► fetch, holds X'' …

So the master sends a run while the one before is stored, and has always a fetch to answer. The
answers' numbers tell the order of the runs (:mod:`.run_fetcher`).

It publishes what is confirmed a few milliseconds later, or as soon as that is much: the master
waits for the next acknowledgement, and a replica's projections for nobody. Many small runs are
published together, which costs as much as one.

:data:`eruca_broker.core.replication.following.FOLLOWING` is the table of its states. A failure is
neither raised nor logged each time: it is the *reason* in the status, and the next attempt waits
longer. Answers are not trusted: a run that does not continue this log, is cut, damaged or foreign
changes nothing (:mod:`eruca_broker.core.log.copied_run`).

Rules, with the numbers of the replication design:

4. The first byte of each answer continues the run before, and the first run the replica's log.
7. It publishes what the master has confirmed, and nothing else.
9. It truncates its log only where the master has proved to have the same bytes before; and never
   below what it has shown as confirmed, unless an epoch of the master is unclean.
10. Each fetch that quotes an answer for the first time is a promise not to become master.
13. It does not follow a master whose epoch is older than its own log's.

A replica that lacks a segment or more copies it from the tier, if there is one
(:mod:`.catching_up`).

A replica whose disk is full sends no fetch: a fetch would say that it is alive, and the master
would wait for it.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

import structlog

from eruca.contract.errors import ErucaError, ForeignReplicaError
from eruca.contract.replication import (
    Following,
)
from eruca.services.http import HttpTransport
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.records.times import moment
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.epochs import EpochTable
from eruca_broker.core.replication.following import FOLLOWING, FollowEvent, FollowState
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.processors.replication.catching_up import CatchUp
from eruca_broker.processors.replication.proving import LineageProof
from eruca_broker.processors.replication.run_fetcher import (
    PULLERS,
    RUN_SIZE_MIN,
    WAIT_SECONDS,
    RunFetcher,
    RunHead,
    RunSequence,
)
from eruca_broker.store.files.refusals import renewed
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.copying import TierCopies
from eruca_chassis.clock import Clock

FRESH_SECONDS: Final = WAIT_SECONDS + 0.5  # since the last answer: else the master may be lost
BACK_OFF_SECONDS: Final = 0.05  # after a failure; doubles with each consecutive one
BACK_OFF_SECONDS_MAX: Final = 1.0  # at most, so that a master that returns is found soon
REFUSED_SECONDS: Final = 10.0  # until the lineage is proved again: an operator may have acted
ROOM_SECONDS: Final = 0.5  # between two looks at a disk that was full
PUBLISH_SECONDS: Final = 0.005  # from a confirmation to its publication here, at most
PUBLISH_SIZE: Final = 256 * 1024  # bytes that are published sooner
FIRST_RUNS_MAX: Final = 8  # that a new replica copies before it looks for the tier
_UNREACHED: Final = "the master has not been reached yet"

logger = structlog.get_logger(__name__)


class Follower:
    """Follows one master in one epoch.

    Args:
        store: The replica's store.
        member: It, as the group names it.
        epoch: The master's term.
        url: The master's URL.
        transport: For its requests; the owner closes it.
        promise: Of this process, not to propose itself.
        clock: Compared with the master's.
        shown_offset: Log offset before which this process has already shown records as confirmed.
        tier: Has closed segments of the log; None: there is no tier.
    """

    def __init__(
        self,
        store: MessageStore,
        *,
        member: Member,
        epoch: int,
        url: str,
        transport: HttpTransport,
        promise: Promise,
        clock: Clock,
        shown_offset: int = 0,
        tier: TierCopies | None = None,
    ) -> None:
        self.epoch = epoch
        self.url = url
        # As the master has told; what is here of it is published. Less only after an unclean cut.
        self.confirmed = shown_offset
        self.min_offset = 0  # log offset before which this replica may delete its log
        self.max_offset: int | None = None  # the master's end
        self.skew_seconds: float | None = None  # this clock minus the master's
        self.reason: str | None = _UNREACHED  # None: the last request succeeded
        self.state = FollowState.PROVING
        self.copied_bytes = 0
        self.refused_runs = 0
        self._store = store
        self._member = member
        self._transport = transport
        self._fetcher = RunFetcher(
            url=url, epoch=epoch, member=member, transport=transport, promise=promise, clock=clock
        )
        self._clock = clock
        self._failures_in_a_row = 0
        self._publishing: asyncio.TimerHandle | None = None  # of the next publication
        self._fault: Exception | None = None  # … of the last one
        self._contact_ms: int | None = None
        self._caught_up_at: float | None = None  # boottime; None: never in this epoch
        self._random = random.Random()
        self._master_epochs = EpochTable()
        self._catch_up = None if tier is None else CatchUp(store, tier, self._publish)

    async def run(self) -> int:
        """Follow until cancelled, or until the log must be truncated; return the offset to cut at.

        The owner then opens the store again with ``cut_to``, and makes another follower.
        """
        while True:
            try:
                match self.state:
                    case FollowState.PROVING:
                        if (cut_to := await self._prove()) is not None:
                            self._move(FollowEvent.LONGER)
                            return cut_to
                        self._move(FollowEvent.PROVED)
                    case FollowState.FOLLOWING:
                        await self._follow()
                    case FollowState.HALTED:
                        await asyncio.sleep(ROOM_SECONDS)  # the broker's upkeep looks for room
                        if self._store.refusal is None:
                            self._move(FollowEvent.ROOM)
                    case FollowState.REFUSED:
                        await asyncio.sleep(REFUSED_SECONDS)
                        self._move(FollowEvent.RETRY)
            except (ErucaError, RefusedRunError) as error:
                await self._failed(error)

    @property
    def behind_bytes(self) -> int | None:
        """Bytes of the master's log that this replica lacked at the last answer; None: unknown."""
        if self.max_offset is None:
            return None
        return max(self.max_offset - self._store.log_max_offset, 0)

    @property
    def behind_seconds(self) -> float | None:
        """Time since it last had everything; 0: it has everything; None: it never had yet.

        It has everything as long as the master answers, which it does at least each
        ``WAIT_SECONDS``. Without an answer for longer nobody knows.
        """
        if self._caught_up_at is None:
            return None
        seconds = self._clock.boottime() - self._caught_up_at
        is_fresh = not self.behind_bytes and self.reason is None and seconds <= FRESH_SECONDS
        return 0.0 if is_fresh else seconds

    def status(self) -> Following:
        """Return its progress."""
        return Following(
            state=self.state.value,
            reason=self.reason,
            master_url=self.url,
            behind_bytes=self.behind_bytes,
            behind_seconds=self.behind_seconds,
            tier_bytes=0 if self._catch_up is None else self._catch_up.copied_bytes,
            last_contact_at=None if self._contact_ms is None else moment(self._contact_ms),
            clock_skew_seconds=self.skew_seconds,
        )

    # --- Following --------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Fetch, append, acknowledge; return only by an error, or if the lineage must be proved."""
        store, begun = self._store, asyncio.get_running_loop().create_future()
        sequence = RunSequence(begun)
        if store.durable_offset < store.log_max_offset:  # a flush of its own term is in progress
            await store.upkeep.flush()
        self._fault = None
        if await self._caught_up():
            self._move(FollowEvent.DOUBTED)
            return
        first = asyncio.FIRST_COMPLETED
        pullers = [asyncio.create_task(self._pull(sequence), name="puller")]
        try:
            await asyncio.wait([*pullers, begun], return_when=first)
            if begun.done():
                more = (self._pull(sequence) for _ in range(PULLERS - 1))
                pullers += [asyncio.create_task(pull, name="puller") for pull in more]
            ended, _ = await asyncio.wait(pullers, return_when=first)
        finally:
            for puller in pullers:
                puller.cancel()
            await asyncio.gather(*pullers, return_exceptions=True)  # one may be appending
            if self._publishing is not None:  # by another role the store may be closed
                self._publish()
        ended.pop().result()  # raises

    async def _caught_up(self) -> bool:
        """Copy from the tier what this replica lacks, if that is much; tell whether it did."""
        store, catch_up = self._store, self._catch_up
        if catch_up is None or not catch_up.may_try:
            return False
        await self._beat(is_copied=True)
        for _ in range(FIRST_RUNS_MAX):
            if store.state.log_id or not self.behind_bytes:
                break
            await self._beat(is_copied=True)  # a new replica learns the log's id
        if (self.behind_bytes or 0) < store.segment_bytes:
            return False
        return await catch_up.follow(self._master_epochs, self.confirmed, self._beat)

    async def _beat(self, *, is_copied: bool = False) -> None:
        """Fetch a small run in a sequence of its own, and drop it unless *is_copied*.

        The master learns that this replica is alive, and how far it has come.
        """
        store = self._store
        bytes_max = self._fetcher.bytes_max if is_copied else RUN_SIZE_MIN
        head, run = await self._fetcher.fetch(store.durable_offset, 0, bytes_max)
        if is_copied and run:
            await store.role.copy(memoryview(run), store.log_max_offset)
            self.copied_bytes += len(run)
        self._note(head, end=store.log_max_offset)
        self._failures_in_a_row, self.reason = 0, None
        self._publish()
        if self._fault is not None:
            raise self._fault

    async def _pull(self, sequence: RunSequence) -> None:
        """Fetch, append in turn, acknowledge; return only by an error."""
        store, loop = self._store, asyncio.get_running_loop()
        while True:
            offset = store.durable_offset
            assert sequence.first or offset == store.log_max_offset, "a sequence begins at the end"
            began = loop.time()
            self._publish_later()
            head, run = await self._fetcher.fetch(offset, sequence.first, self._fetcher.bytes_max)
            sequence.begin(head.answer)
            await sequence.turn(head.answer)
            if self._fault is not None:
                raise self._fault
            end = store.log_max_offset
            self._note(head, end=end + len(run))
            if run:
                await store.role.copy(memoryview(run), end)
                self.copied_bytes += len(run)
                self._fetcher.adapt(len(run), loop.time() - began)
            self._failures_in_a_row, self.reason = 0, None
            sequence.done()

    def _publish_later(self) -> None:
        """Publish what the master has confirmed, after the fetch that is about to be sent."""
        size = min(self.confirmed, self._store.log_max_offset) - self._store.confirmed_offset
        if size >= PUBLISH_SIZE:
            asyncio.get_running_loop().call_soon(self._publish)
        elif size > 0 and self._publishing is None:
            self._publishing = asyncio.get_running_loop().call_later(PUBLISH_SECONDS, self._publish)

    def _publish(self) -> None:
        """Publish what the master has confirmed."""
        if self._publishing is not None:
            self._publishing.cancel()
            self._publishing = None
        try:
            self._store.role.confirm(min(self.confirmed, self._store.log_max_offset))
        except Exception as error:  # a puller raises it
            self._fault = error

    def _note(self, head: RunHead, *, end: int) -> None:
        now_ms = self._clock.now_ms()
        self.confirmed = max(self.confirmed, head.confirmed)
        self.min_offset = max(self.min_offset, head.min_offset)
        self.max_offset = head.max_offset
        self.skew_seconds = (now_ms - head.now_ms) / 1000
        self._contact_ms = now_ms
        if end >= head.max_offset:
            self._caught_up_at = self._clock.boottime()

    async def _prove(self) -> int | None:
        """Prove the lineage; return the log offset to truncate at, or None: it is proved.

        Raises:
            ForeignReplicaError: The logs do not have a common beginning.
            ErucaError: The master cannot be asked now.
        """
        try:
            return await self._proved()
        except ForeignReplicaError as error:
            # Any other refusal says that this log is not the master's: nothing of it is changed.
            begin = error.master_begin
            if begin is None or begin < self._store.log_max_offset or not await self._bridged():
                raise
            return await self._proved()

    async def _proved(self) -> int | None:
        """Prove the lineage as the log is now; see :meth:`_prove`."""
        proof = LineageProof(
            self._store,
            member=self._member,
            epoch=self.epoch,
            url=self.url,
            transport=self._transport,
            shown_offset=self.confirmed,
        )
        cut_to = await proof.run()
        self.confirmed, self._master_epochs = proof.confirmed, proof.epochs
        return cut_to

    async def _bridged(self) -> bool:
        """Copy from the tier what the master has no more; tell whether anything was copied.

        Raises:
            ErucaError: Writes are refused here.
        """
        catch_up, refusal = self._catch_up, self._store.refusal
        if catch_up is None or not catch_up.may_try or self._store.role.epochs().last > self.epoch:
            return False
        if refusal is not None:  # the tier is not read before there is room
            raise renewed(refusal)

        def confirm(log_offset: int) -> None:
            self.confirmed = max(self.confirmed, log_offset)
            self._publish()

        return await catch_up.bridge(confirm)

    # --- Failures ---------------------------------------------------------------------------------

    def _move(self, event: FollowEvent) -> None:
        self.state = FOLLOWING.step(self.state, event)
        logger.info(
            "following", state=self.state.value, master=self.url, epoch=self.epoch,
            log_end=self._store.log_max_offset,
        )  # fmt: skip

    async def _failed(self, error: ErucaError | RefusedRunError) -> None:
        """Remember why the last attempt failed, and wait before the next."""
        before, self.reason = self.reason, str(error)
        if isinstance(error, RefusedRunError):
            self.refused_runs += 1
        is_foreign = isinstance(error, ForeignReplicaError)
        match self.state:
            case FollowState.FOLLOWING if self._store.refusal is not None:
                self._move(FollowEvent.DISK_FAILED)
                return
            case FollowState.PROVING if self._store.refusal is not None and not is_foreign:
                self._move(FollowEvent.DISK_FAILED)
                return
            case FollowState.FOLLOWING if is_foreign or isinstance(error, RefusedRunError):
                self._move(FollowEvent.DOUBTED)
            case FollowState.PROVING if is_foreign:
                if before != self.reason:
                    logger.error("this replica is refused", reason=self.reason, master=self.url)
                self._move(FollowEvent.FOREIGN)
                return
        pause = min(BACK_OFF_SECONDS * (1 << self._failures_in_a_row), BACK_OFF_SECONDS_MAX)
        self._failures_in_a_row = min(self._failures_in_a_row + 1, 16)
        await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
