"""Fetch runs of a master's log: the requests of a replica, and the order of their answers.

Each fetch acknowledges what is durable here. The first that quotes an answer is also a promise not
to become master (rule 10). An answer's headers are checked before its bytes are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from eruca.contract.errors import StaleEpochError, TransportError
from eruca.contract.replication import (
    ANSWER_HEADER,
    NOW_HEADER,
    RUN_MEDIA_TYPE,
    RUN_SIZE_DEFAULT,
    RUN_SIZE_MAX,
    RunRequest,
)
from eruca.contract.wire import CONFIRMED_HEADER, EPOCH_HEADER, MAX_OFFSET_HEADER, MIN_OFFSET_HEADER
from eruca.services.http import JSON_HEADER, HttpTransport, problem_error, target_of
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.master_lease import Promise
from eruca_chassis.clock import Clock

PULLERS: Final = 2  # fetches under way
WAIT_SECONDS: Final = 1.0  # of a fetch at the log's end; less than a third of the lease
ANSWER_SECONDS: Final = 5.0  # for the answer beyond that
RUN_SIZE_MIN: Final = 64 * 1024  # bytes requested at least
_FAST_SECONDS: Final = 0.25  # a large run that took less is followed by a larger one
_SLOW_SECONDS: Final = 1.0  # … more, by a smaller one: the lease must be renewed

_JSON: Final = (JSON_HEADER,)
_ENCODE: Final = msgspec.json.Encoder().encode
_LOG_TARGET: Final = "/v1/replication/log"


class RunHead(NamedTuple):
    """The headers of an answer, checked."""

    epoch: int
    confirmed: int
    min_offset: int
    max_offset: int
    answer: int
    now_ms: int


@dataclass(slots=True)
class RunSequence:
    """A sequence of runs, and whose turn it is to append one."""

    begun: asyncio.Future[None]
    first: int = 0  # number of its first answer; 0: there is none yet
    next: int = 0  # … of the answer whose run is appended next
    waiting: dict[int, asyncio.Future[None]] = field(default_factory=dict)  # for their turns

    def begin(self, number: int) -> None:
        """Note the number of the first answer, before anything of it is appended."""
        if not self.first:
            self.first = self.next = number
            self.begun.set_result(None)

    async def turn(self, number: int) -> None:
        """Return once the runs of all answers before *number* are appended.

        Raises:
            TransportError: No answer can have that number.
        """
        if not self.next <= number < self.next + PULLERS or number in self.waiting:
            raise TransportError(f"expected answer {self.next}, found answer {number}")
        if number != self.next:
            self.waiting[number] = asyncio.get_running_loop().create_future()
            await self.waiting[number]

    def done(self) -> None:
        """Let the next answer's run be appended."""
        self.next += 1
        waiting = self.waiting.pop(self.next, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)


class RunFetcher:
    """Fetches runs of one master's log in one epoch.

    Args:
        url: The master's URL.
        epoch: Its term.
        member: This replica, as the group names it.
        transport: For the requests; the owner closes it.
        promise: Of this process, not to propose itself.
        clock: Times the promise.

    Attributes:
        bytes_max: Bytes that the next fetch should request; :meth:`adapt` changes them.
    """

    def __init__(
        self,
        *,
        url: str,
        epoch: int,
        member: Member,
        transport: HttpTransport,
        promise: Promise,
        clock: Clock,
    ) -> None:
        self.bytes_max = RUN_SIZE_DEFAULT
        self._url = url
        self._epoch = epoch
        self._target = target_of(
            _LOG_TARGET, epoch=epoch, replica_id=member.replica_id, uid=member.uid
        )
        self._transport = transport
        self._promise = promise
        self._clock = clock
        self._answer = 0  # number of the last answer
        self._quoted = 0  # … of the last one that was quoted

    async def fetch(self, offset: int, sequence: int, bytes_max: int) -> tuple[RunHead, bytes]:
        """Fetch one run; wait for it at the end of the log.

        Args:
            offset: Log offset up to which this replica's log is durable.
            sequence: The first answer's number of this sequence; 0: a new one begins.
            bytes_max: Maximum bytes of the run.

        Raises:
            StaleEpochError: The answer is of another epoch.
            ErucaError: The master cannot be reached, has refused, or its answer is invalid.
        """
        answer = self._answer
        if answer != self._quoted:  # one that was quoted before proves nothing new
            self._promise.fetching(self._clock.boottime())
            self._quoted = answer
        request = RunRequest(offset, sequence, answer, WAIT_SECONDS, bytes_max)
        response = await self._transport.request(
            *("POST", self._url, self._target),
            headers=_JSON,
            body=(_ENCODE(request),),
            timeout=WAIT_SECONDS + ANSWER_SECONDS,
        )
        if response.status != 200:
            raise problem_error(response, f"POST {self._url}{_LOG_TARGET}")
        head = self._head_of(response.headers)
        self._answer = max(self._answer, head.answer)
        return head, response.body

    def _head_of(self, headers: Mapping[str, str]) -> RunHead:
        if headers.get("content-type") != RUN_MEDIA_TYPE:
            raise TransportError(f"{self._url}: the answer is not a run of a log")
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
                raise TransportError(
                    f"{self._url}: expected a number in {name}, found {text!r:.40}"
                )
            numbers.append(int(text))
        head = RunHead(*numbers)
        if head.epoch != self._epoch:
            raise StaleEpochError(f"expected epoch {self._epoch}, found {head.epoch}")
        if not head.min_offset <= head.max_offset >= head.confirmed:
            raise TransportError(f"{self._url}: the answer's offsets contradict each other: {head}")
        return head

    def adapt(self, size: int, seconds: float) -> None:
        """Request larger runs while they are fast, smaller ones while they are slow."""
        if seconds > _SLOW_SECONDS:
            self.bytes_max = max(self.bytes_max // 2, RUN_SIZE_MIN)
        elif seconds < _FAST_SECONDS and 2 * size > self.bytes_max:
            self.bytes_max = min(self.bytes_max * 2, RUN_SIZE_MAX)
