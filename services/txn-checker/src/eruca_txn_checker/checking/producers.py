"""Held requests of producers that wait for checks, and the order in which they get them.

A check goes to one producer. The producers of a group that wait here are woken in order of arrival,
each for its share of the open checks. A producer that returns goes to the end: round robin. With
several instances a producer may wait at any of them; PostgreSQL ensures that a check is taken once.

PostgreSQL is queried after a notice of open checks, and otherwise by a slow poll. A notice that
arrives while a producer queries for itself causes another query, so it is not lost.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eruca.contract.errors import DatabaseUnavailableError
from eruca.contract.transactions import ProducerCheck
from eruca_chassis.admission.held import HeldPlace, HeldPlaces, Release
from eruca_chassis.asgi import Receive
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.database import Database
from eruca_postgres.notices import notify
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.core.check_rules import REACHABLE_SECONDS_MAX
from eruca_txn_checker.core.notices import DUE
from eruca_txn_checker.projection.check_rows import open_counts, take_for_producer
from eruca_txn_checker.projection.producer_rows import forget_unseen, note_seen

SEEN_SECONDS: Final = 2.0  # how often a waiting group is recorded as reachable
AGAIN_SECONDS: Final = 0.5  # query again after an error, or after checks: some may be left
FORGET_SECONDS: Final = 60.0  # how often groups without waiting producers are deleted


@dataclass(eq=False, slots=True)
class _Waiter:
    place: HeldPlace
    share: int  # of the checks it was woken for


class Producers:
    """The producers that wait at this instance.

    Args:
        database: Holds the checks.
        questions: Turns checks into questions.
        held: Places for held requests.
        clock: The clock that all instances share.
        interval_ms: Time from one check of a transaction to the next.
        poll_seconds: Returns how often to look for checks without a notice.
    """

    def __init__(
        self,
        database: Database,
        questions: Questions,
        held: HeldPlaces,
        clock: Clock,
        *,
        interval_ms: int,
        poll_seconds: Callable[[], float],
    ) -> None:
        self.held = held
        self._database = database
        self._questions = questions
        self._clock = clock
        self._interval_ms = interval_ms
        self._waiting: dict[str, deque[_Waiter]] = {}
        self._poll_seconds = poll_seconds
        self._look_at = 0.0  # next query for checks, monotonic
        self._words = 0  # notices of checks since the start
        self._seen: set[str] = set()  # groups whose producers arrived since the last recording
        self._noted: set[str] = set()  # groups recorded last
        self._note_at = 0.0  # next recording, monotonic
        self._forget_at = 0.0  # next deletion, monotonic
        self._loop = BackgroundLoop("producers", self._step, period_seconds=AGAIN_SECONDS)

    def start(self) -> None:
        """Start looking for checks."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop looking for checks."""
        await self._loop.stop()

    def wake(self, groups: set[str] | None = None) -> None:
        """Announce open checks of *groups*; None if the groups are unknown."""
        self._words += 1
        if groups is None or not groups.isdisjoint(self._waiting):
            self._look_now()

    def _look_now(self) -> None:
        self._look_at = 0.0
        self._loop.wake()

    @property
    def waiting_count(self) -> int:
        """Number of producers that wait here."""
        return sum(map(len, self._waiting.values()))

    async def take(
        self,
        producer_group: str,
        client_id: str,
        *,
        count_max: int,
        wait_seconds: float,
        receive: Receive,
    ) -> list[ProducerCheck]:
        """Return checks for a producer; wait for the first up to *wait_seconds*.

        Raises:
            OverloadedError: The maximum number of requests is held.
            DatabaseUnavailableError: PostgreSQL is unreachable.
        """
        if producer_group not in self._seen:
            self._seen.add(producer_group)
            self._loop.wake()
        ends_at = self._clock.monotonic() + wait_seconds
        with self.held.place() as place:
            waiter = _Waiter(place, count_max)
            while True:
                words = self._words
                checks = await self._take(producer_group, client_id, min(count_max, waiter.share))
                if checks and await place.wait(0) is Release.CLIENT_GONE:
                    await self._questions.give_back([check.check_id for check in checks])
                    return []
                remaining = ends_at - self._clock.monotonic()
                if checks or remaining <= 0:
                    return checks
                if words != self._words:
                    self._look_now()
                if await self._wait(producer_group, waiter, remaining, receive) is not Release.NEWS:
                    return []

    async def _take(self, producer_group: str, client_id: str, limit: int) -> list[ProducerCheck]:
        async with self._database.transaction() as connection:
            taken = await take_for_producer(
                connection,
                producer_group,
                client_id,
                now_ms=self._clock.now_ms(),
                interval_ms=self._interval_ms,
                limit=limit,
                without_brokers=self._questions.away(),
            )
        return await self._questions.prepare(taken) if taken else []

    async def _wait(
        self, producer_group: str, waiter: _Waiter, seconds: float, receive: Receive
    ) -> Release:
        if not self._waiting:
            self._loop.wake()  # it sleeps without looking while nobody waits
        queue = self._waiting.setdefault(producer_group, deque())
        queue.append(waiter)
        try:
            return await waiter.place.wait(seconds, receive)
        finally:
            if waiter in queue:
                queue.remove(waiter)
            if not queue and self._waiting.get(producer_group) is queue:
                del self._waiting[producer_group]

    async def _step(self) -> float | None:
        try:
            await self._note_seen()
            await self._forget_unseen()
            if self._waiting and self._clock.monotonic() >= self._look_at:
                # Set before the query: a notice during the query must cause another one.
                self._look_at = self._clock.monotonic() + self._poll_seconds()
                async with self._database.transaction() as connection:
                    counts = await open_counts(
                        connection,
                        list(self._waiting),
                        now_ms=self._clock.now_ms(),
                        interval_ms=self._interval_ms,
                        without_brokers=self._questions.away(),
                    )
                for group, count in counts.items():
                    self._wake_for(group, count)
                again_seconds = AGAIN_SECONDS if counts else math.inf
                pause_seconds = min(again_seconds, self._questions.away_seconds())
                self._look_at = min(self._look_at, self._clock.monotonic() + pause_seconds)
        except DatabaseUnavailableError:
            self._look_at = 0.0
            return None  # readiness reports it; the producers keep waiting
        return self._quiet_seconds()

    def _quiet_seconds(self) -> float:
        """Return for how long there is nothing to do without a notice."""
        moments = [self._forget_at]
        if self._seen or self._waiting or self._noted:
            moments.append(self._note_at)
        if self._waiting:
            moments.append(self._look_at)
        return max(min(moments) - self._clock.monotonic(), 0)

    def _wake_for(self, group: str, count: int) -> None:
        queue = self._waiting.get(group)
        if queue is None:
            return
        share = math.ceil(count / len(queue))
        for _ in range(min(len(queue), math.ceil(count / share))):
            waiter = queue.popleft()
            waiter.share = share
            waiter.place.wake()

    async def _note_seen(self) -> None:
        now = self._clock.monotonic()
        new = self._seen - self._noted
        if not new and now < self._note_at:
            return
        groups = self._seen | self._waiting.keys()
        if groups:
            async with self._database.transaction() as connection:
                await note_seen(connection, groups, now_ms=self._clock.now_ms())
                if new:
                    await notify(connection, DUE)  # their transactions may have waited for them
        self._seen -= groups
        self._noted = groups
        self._note_at = now + SEEN_SECONDS

    async def _forget_unseen(self) -> None:
        if (now := self._clock.monotonic()) < self._forget_at:
            return
        before_ms = self._clock.now_ms() - REACHABLE_SECONDS_MAX * 1000
        async with self._database.transaction() as connection:
            await forget_unseen(connection, before_ms=before_ms)
        self._forget_at = now + FORGET_SECONDS
