"""The follower: a replica's side of one term.

It proves its lineage, then pulls the master's log without pause::

    fetch X ──► run ──► verify, append ──► fetch X' ──► publish what is confirmed, while waiting
      ▲                                       │
      └── "I hold everything before X" ◄──────┘ one request is always under way

:data:`eruca_broker.core.replication.following.FOLLOWING` is the table of its states. A failure is
neither raised nor logged each time: it is the *reason* in the status, and the next attempt waits
longer. Answers are not trusted: a run that does not continue this log, is cut, damaged or foreign
changes nothing (:mod:`eruca_broker.core.log.copied_run`).

Rules, with the numbers of the replication design:

4. The first byte of each fetch's answer continues the replica's log.
7. It publishes what the master has confirmed, and nothing else.
9. It truncates its log only where the master has proved to have the same bytes before; and never
   below what it has shown as confirmed, unless an epoch of the master is unclean.
10. Each fetch that quotes an answer for the first time is a promise not to become master.
13. It does not follow a master whose epoch is older than its own log's.

A replica whose disk is full sends no fetch: a fetch would say that it is alive, and the master
would wait for it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Final, NamedTuple

import structlog

from eruca.contract.errors import (
    ErucaError,
    ForeignReplicaError,
    StaleEpochError,
    TransportError,
)
from eruca.contract.replication import (
    ANSWER_HEADER,
    CONFIRMED_HEADER,
    NOW_HEADER,
    RUN_MEDIA_TYPE,
    RUN_SIZE_DEFAULT,
    RUN_SIZE_MAX,
    Following,
    LineageAnswer,
    LineageRequest,
    LineageTail,
)
from eruca.contract.wire import EPOCH_HEADER, MAX_OFFSET_HEADER, MIN_OFFSET_HEADER
from eruca.services.cluster import parsed, send_model
from eruca.services.http import HttpTransport, problem_error, target_of
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.log.recovery import walk
from eruca_broker.core.records.times import moment
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.following import FOLLOWING, FollowEvent, FollowState
from eruca_broker.core.replication.lineage import UncleanCutError, check_cut
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.processors.replication.lineage import digest_of, epoch_table, log_epochs
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

WAIT_SECONDS: Final = 1.0  # of a fetch at the log's end; less than a third of the lease
ANSWER_SECONDS: Final = 5.0  # for the answer beyond that
BACK_OFF_SECONDS: Final = 0.05  # after a failure; doubles with each consecutive one
BACK_OFF_SECONDS_MAX: Final = 1.0  # at most, so that a master that returns is found soon
REFUSED_SECONDS: Final = 10.0  # until the lineage is proved again: an operator may have acted
ROOM_SECONDS: Final = 0.5  # between two looks at a disk that was full
PROOFS_MAX: Final = 4  # questions of one proof; more only if the master's retention interferes
RUN_SIZE_MIN: Final = 64 * 1024  # bytes requested at least
_FAST_SECONDS: Final = 0.25  # a large run that took less is followed by a larger one
_SLOW_SECONDS: Final = 1.0  # … more, by a smaller one: the lease must be renewed

_LOG_TARGET: Final = "/v1/replication/log"
_LINEAGE_TARGET: Final = "/v1/replication/lineage"
_UNREACHED: Final = "the master has not been reached yet"

logger = structlog.get_logger(__name__)


class _Head(NamedTuple):
    """The headers of an answer."""

    epoch: int
    confirmed: int
    min_offset: int
    max_offset: int
    answer: int
    now_ms: int


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
        self._target = target_of(
            _LOG_TARGET,
            epoch=epoch,
            replica_id=member.replica_id,
            uid=member.uid,
            wait_seconds=WAIT_SECONDS,
        )
        self._transport = transport
        self._promise = promise
        self._clock = clock
        self._answer = 0  # number of the last answer
        self._quoted = 0  # … of the last one that was quoted
        self._bytes_max = RUN_SIZE_DEFAULT
        self._failures_in_a_row = 0
        self._contact_ms: int | None = None
        self._caught_up_at: float | None = None  # monotonic; None: never in this epoch
        self._random = random.Random()

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
        """Time since it last had everything; 0 if it had at the last answer; None: never yet."""
        if self._caught_up_at is None:
            return None
        if not self.behind_bytes and self.reason is None:
            return 0.0
        return self._clock.monotonic() - self._caught_up_at

    def status(self) -> Following:
        """Return its progress."""
        return Following(
            state=self.state.value,
            reason=self.reason,
            master_url=self.url,
            behind_bytes=self.behind_bytes,
            behind_seconds=self.behind_seconds,
            last_contact_at=None if self._contact_ms is None else moment(self._contact_ms),
            clock_skew_seconds=self.skew_seconds,
        )

    # --- Following --------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Fetch, append, acknowledge; return only by an error."""
        store, loop = self._store, asyncio.get_running_loop()
        if store.durable_offset < store.log_max_offset:  # a flush of its own term is in progress
            await store.flush()
        while True:
            offset = store.log_max_offset
            assert store.durable_offset == offset, "an acknowledgement would promise too much"
            began = loop.time()
            # In a task, so that it is sent before this replica publishes: the master waits for it.
            fetch = loop.create_task(self._fetch(offset))
            try:
                if store.confirmed_offset < min(self.confirmed, offset):
                    await asyncio.sleep(0)
                    store.confirm(min(self.confirmed, offset))
                head, run = await fetch
            except BaseException:
                fetch.cancel()
                raise
            self._note(head, end=offset + len(run))
            if run:
                await store.copy(memoryview(run), offset)
                self.copied_bytes += len(run)
                self._adapt(len(run), loop.time() - began)
            self._failures_in_a_row, self.reason = 0, None

    async def _fetch(self, offset: int) -> tuple[_Head, bytes]:
        answer = self._answer
        if answer != self._quoted:  # one that was quoted before proves nothing new
            self._promise.fetching(self._clock.boottime())
            self._quoted = answer
        target = f"{self._target}&from_offset={offset}&answer={answer}&bytes_max={self._bytes_max}"
        response = await self._transport.request(
            "GET", self.url, target, timeout=WAIT_SECONDS + ANSWER_SECONDS
        )
        if response.status != 200:
            raise problem_error(response, f"GET {self.url}{_LOG_TARGET}")
        return self._head_of(response.headers), response.body

    def _head_of(self, headers: Mapping[str, str]) -> _Head:
        if headers.get("content-type") != RUN_MEDIA_TYPE:
            raise TransportError(f"{self.url}: the answer is not a run of a log")
        numbers = []
        for name in (
            EPOCH_HEADER,
            CONFIRMED_HEADER,
            MIN_OFFSET_HEADER,
            MAX_OFFSET_HEADER,
            ANSWER_HEADER,
            NOW_HEADER,
        ):
            text = headers.get(name, "")
            if not (text.isascii() and text.isdigit() and len(text) < 20):
                raise TransportError(f"{self.url}: expected a number in {name}, found {text!r:.40}")
            numbers.append(int(text))
        head = _Head(*numbers)
        if head.epoch != self.epoch:
            raise StaleEpochError(f"expected epoch {self.epoch}, found {head.epoch}")
        if not head.min_offset <= head.max_offset >= head.confirmed:
            raise TransportError(f"{self.url}: the answer's offsets contradict each other: {head}")
        return head

    def _note(self, head: _Head, *, end: int) -> None:
        now_ms = self._clock.now_ms()
        self._answer = head.answer
        self.confirmed = max(self.confirmed, head.confirmed)
        self.min_offset = max(self.min_offset, head.min_offset)
        self.max_offset = head.max_offset
        self.skew_seconds = (now_ms - head.now_ms) / 1000
        self._contact_ms = now_ms
        if end >= head.max_offset:
            self._caught_up_at = self._clock.monotonic()

    def _adapt(self, size: int, seconds: float) -> None:
        """Request larger runs while they are fast, smaller ones while they are slow."""
        if seconds > _SLOW_SECONDS:
            self._bytes_max = max(self._bytes_max // 2, RUN_SIZE_MIN)
        elif seconds < _FAST_SECONDS and 2 * size > self._bytes_max:
            self._bytes_max = min(self._bytes_max * 2, RUN_SIZE_MAX)

    # --- Lineage ----------------------------------------------------------------------------------

    async def _prove(self) -> int | None:
        """Prove the lineage; return the log offset to truncate at, or None: it is proved.

        Raises:
            ForeignReplicaError: The logs do not have a common beginning.
            ErucaError: The master cannot be asked now.
        """
        store, tail = self._store, None
        if (last := store.epochs().last) > self.epoch:
            raise ForeignReplicaError(
                f"the master's epoch {self.epoch} is older than epoch {last} of this log: the "
                "arbiter has lost changes",
                fix="raise the broker group's epoch at the arbiter",
            )
        for _ in range(PROOFS_MAX):
            answer = await self._ask(tail)
            if answer.proved:
                self.confirmed = max(self.confirmed, answer.confirmed)
                return None
            if store.log_min_offset == store.log_max_offset:
                store.begin_at(answer.cut_to, segment_bytes=answer.segment_bytes)
                continue
            if (
                not store.log_min_offset
                <= answer.tail_begin
                < answer.cut_to
                <= (store.log_max_offset)
            ):
                raise TransportError(f"{self.url}: the answer's offsets are outside this log")
            if tail is not None and (tail.begin, tail.end) == (answer.tail_begin, answer.cut_to):
                self._check_cut(answer)
                return answer.cut_to
            tail = LineageTail(
                begin=answer.tail_begin,
                end=answer.cut_to,
                digest=digest_of(store.log_bytes(answer.tail_begin, answer.cut_to)),
            )
        raise TransportError(f"{self.url}: the lineage was not proved in {PROOFS_MAX} answers")

    async def _ask(self, tail: LineageTail | None) -> LineageAnswer:
        store = self._store
        request = LineageRequest(
            replica_id=self._member.replica_id,
            uid=self._member.uid,
            epoch=self.epoch,
            log_id=store.state.log_id or None,
            epochs=log_epochs(store.epochs()),
            min_offset=store.log_min_offset,
            end=store.log_max_offset,
            segment_bytes=store.segment_bytes,
            tail=tail,
        )
        response = await send_model(
            *(self._transport, "POST", self.url, _LINEAGE_TARGET, request),
            timeout=ANSWER_SECONDS,
        )
        answer = parsed(LineageAnswer, response, self.url + _LINEAGE_TARGET)
        if answer.epoch != self.epoch:
            raise StaleEpochError(f"expected epoch {self.epoch}, found {answer.epoch}")
        return answer

    def _check_cut(self, answer: LineageAnswer) -> None:
        """Check that the log may be truncated, and log what goes."""
        shown, end = self.confirmed, self._store.log_max_offset
        try:
            check_cut(
                answer.cut_to, visible_offset=min(shown, end), master=epoch_table(answer.epochs)
            )
        except UncleanCutError as error:
            raise ForeignReplicaError(str(error)) from error
        is_loss = answer.cut_to < min(shown, end)
        write = logger.error if is_loss else logger.warning
        write(
            "confirmed records go: an operator chose a master that lacked them"
            if is_loss
            else "the log's unconfirmed end is truncated",
            log_offset=answer.cut_to,
            log_end=end,
            records=self._record_count(answer.cut_to, end),
            epoch=self.epoch,
        )
        self.confirmed = min(shown, answer.cut_to)

    def _record_count(self, begin: int, end: int) -> int:
        count = 0
        for piece in self._store.log_bytes(begin, end):
            for step in walk(piece, 0, begin):
                count += 0 if step.columns is None else len(step.columns.starts)
            begin += len(piece)
        return count

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
        match self.state:
            case FollowState.FOLLOWING:
                if self._store.refusal is not None:
                    self._move(FollowEvent.DISK_FAILED)
                    return
                if isinstance(error, RefusedRunError | ForeignReplicaError):
                    self._move(FollowEvent.DOUBTED)
            case FollowState.PROVING if isinstance(error, ForeignReplicaError):
                if before != self.reason:
                    logger.error("this replica is refused", reason=self.reason, master=self.url)
                self._move(FollowEvent.FOREIGN)
                return
        pause = min(BACK_OFF_SECONDS * (1 << self._failures_in_a_row), BACK_OFF_SECONDS_MAX)
        self._failures_in_a_row = min(self._failures_in_a_row + 1, 16)
        await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
