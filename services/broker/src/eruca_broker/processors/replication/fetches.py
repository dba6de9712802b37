"""Fetches of one replica at its master: their sequence, and those that are held.

A sequence begins where the replica's log ends. Each later fetch of it continues where the last run
ended, whatever is acknowledged by then (:mod:`.feed`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from eruca_broker.core.replication.broker_group import Member

GIVEN_MAX: Final = 16  # ends of runs that are known to be ends of writes
HELD_MAX: Final = 4  # fetches of one replica; one more answers the first


class Fetch(NamedTuple):
    """A replica's request for a run."""

    member: Member
    epoch: int
    acknowledged: int  # the replica holds everything before it
    answer: int  # number of the last answer that it has received; 0: none
    wait_seconds: float
    bytes_max: int
    sequence: int = 0  # the first answer's number; 0: another one begins, at `acknowledged`


class Run(NamedTuple):
    """The answer to a fetch."""

    pieces: list[memoryview]  # whole writes of the log, by segment
    number: int  # of this answer
    epoch: int
    confirmed: int
    min_offset: int
    max_offset: int
    now_ms: int


class Wake(Protocol):
    """Answers a held fetch."""

    def __call__(self, *, may_have_run: bool) -> None:
        """Answer now; *may_have_run* tells whether its sequence goes on."""
        ...


@dataclass(slots=True, eq=False)
class _Held:
    """A held fetch; *wake* is called at most once."""

    wake: Wake
    until: float  # by the loop's clock


@dataclass(slots=True, eq=False)
class ProvedReplica:
    """A replica that has proved its lineage in this epoch. Times are the clock's boottime."""

    contact_at: float  # of its last request
    caught_up_at: float  # it had everything written then; or it was admitted then
    end_at_contact: int  # the master's end at its last request
    sequence: int = 0  # number of the first answer of its present sequence; 0: not answered yet
    sequence_count: int = 0  # sequences that have ended
    given_to: int = -1  # end of the last run of the sequence; -1: there is none
    given: deque[int] = field(default_factory=lambda: deque(maxlen=GIVEN_MAX))  # … of the last few
    is_doubtful: bool = True  # it may have refused a run
    has_caught_up: bool = False  # in this epoch
    told: int = 0  # the confirmed offset in its last answer
    held: deque[_Held] = field(default_factory=deque)  # in the order of the fetches
    expiry: asyncio.TimerHandle | None = None  # of the earliest of them

    def hold(self, wake: Wake, wait_seconds: float) -> Callable[[], None]:
        """Call *wake* once something is written, at the latest after the wait.

        Return a function that stops that.
        """
        if len(self.held) == HELD_MAX:
            self.wake_first()
        loop = asyncio.get_running_loop()
        held = _Held(wake, loop.time() + wait_seconds)
        self.held.append(held)
        if self.expiry is None or held.until < self.expiry.when():
            if self.expiry is not None:
                self.expiry.cancel()
            self.expiry = loop.call_at(held.until, self._expire)

        def release() -> None:
            if held in self.held:
                self.held.remove(held)

        return release

    def wake_first(self) -> None:
        """Answer the first held fetch."""
        self.held.popleft().wake(may_have_run=True)

    def end_sequence(self) -> None:
        """Answer held fetches without a run; a later one must begin another sequence."""
        self.sequence, self.given_to = 0, -1
        self.sequence_count += 1
        self.given.clear()
        held, self.held = self.held, deque()
        for one in held:
            one.wake(may_have_run=False)
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None

    def _expire(self) -> None:
        """Answer the held fetches whose wait is over."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for one in [one for one in self.held if one.until <= now]:
            self.held.remove(one)
            one.wake(may_have_run=True)
        first = min((one.until for one in self.held), default=None)
        self.expiry = None if first is None else loop.call_at(first, self._expire)
