"""The arbiter's row, kept up to date, and requests to change it that are carried to their end.

One request for the row is always held by a controller until the row changes. A change that this
process makes itself is known at once: an answer to that request that may be older is dropped.

Source: PacificA, section 2.2, the configuration manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from eruca_broker.core.replication.broker_group import NO_CHANGE, Change
from eruca_broker.core.replication.roles import Outcome, outcome_of_change, outcome_of_term
from eruca_broker.processors.replication.arbiter import (
    Arbiter,
    GroupRow,
    KnownRow,
    StaleVersionError,
    UnansweredError,
)
from eruca_chassis.loops import BackgroundLoop

WATCH_SECONDS: Final = 20.0  # for which the arbiter may hold the request for the row
RETRY_SECONDS: Final = 0.2  # before the arbiter is asked again

logger = structlog.get_logger(__name__)


async def _always() -> bool:
    return True


class WatchedRow:
    """The row of one broker group.

    Args:
        arbiter: Of the row.
        on_change: Called with the row before and the row now, after it has changed.
    """

    def __init__(
        self,
        arbiter: Arbiter,
        on_change: Callable[[KnownRow | None, KnownRow | None], None],
    ) -> None:
        self.known: KnownRow | None = None  # None: the arbiter knows no such group
        self.latest: KnownRow | None = None  # the latest of all that were known
        self.remembered = NO_CHANGE  # the latest that earlier processes have known
        self.is_read = False  # whether ``known`` says anything
        self.stopping = asyncio.Event()
        self._arbiter = arbiter
        self._on_change = on_change
        self._changes = 0  # that this process has made, or has looked for
        self._looking: asyncio.Task[None] | None = None
        self._loop = BackgroundLoop("broker group", self._watch, period_seconds=0)

    @property
    def latest_change(self) -> Change:
        """The place of the latest row that any process of this store has known."""
        latest = NO_CHANGE if self.latest is None else self.latest.change
        return max(self.remembered, latest)

    def is_older(self, row: KnownRow) -> bool:
        """Tell whether the arbiter has lost changes: *row* is older than one that was known."""
        return row.change < self.latest_change

    def start(self) -> None:
        """Begin to watch."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop watching; a change that is being carried out ends as if it were lost."""
        self.stopping.set()
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        await self._loop.stop()

    async def read(self) -> KnownRow | None:
        """Return the row as it is now.

        Raises:
            UnansweredError: No controller answers.
        """
        while True:
            changes = self._changes
            row = await self._arbiter.read()
            if changes == self._changes:
                self._note(row)
                return row
            # It may be older than what has become known meanwhile: a master that took it would wait
            # no longer for a member that it has just let join (rule 6).

    def look_again(self) -> None:
        """Read the row now: a message has named a later epoch than the known one.

        The held request would tell of it as well, but perhaps late: its controller may be cut off.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="look at the broker group")

    async def swap(self, expected: str | None, row: GroupRow, reason: str) -> KnownRow:
        """Change the row once, as :meth:`.Arbiter.swap` does."""
        changed = await self._arbiter.swap(expected, row, reason=reason)
        self._note(changed)
        return changed

    async def settle_term(
        self,
        expected: str | None,
        asked: GroupRow,
        reason: str,
        *,
        may_repeat: Callable[[], Awaitable[bool]] = _always,
    ) -> Outcome:
        """Ask for a term, and return once it is known what became of that.

        If the process ends meanwhile, it makes no use of the term, so that it counts as lost.

        Args:
            expected: The version from which it is asked for; None: there is no row.
            asked: The row to have.
            reason: For the history.
            may_repeat: Called before the request is repeated. An arbiter that was restored from a
                copy may have the expected version again.
        """

        def judge(row: KnownRow | None) -> Outcome:
            if row is None:
                return Outcome.LOST
            has_moved, is_ours = row.version != expected, self._arbiter.is_ours(row)
            return outcome_of_term(asked.group, row.group, has_moved=has_moved, is_ours=is_ours)

        outcome = await self._settle(expected, asked, reason, judge, may_repeat)
        return Outcome.LOST if outcome is Outcome.REPEAT else outcome

    async def settle_change(
        self, epoch: int, expected: str, asked: GroupRow, reason: str
    ) -> Outcome:
        """Ask for another in-sync set of *epoch*, and return once it is known which one there is.

        ``WON`` means that the known row has the set to adopt, whichever it is. ``LOST`` means that
        nothing has changed: nobody has received the request, or the arbiter has forgotten the row
        from which it was asked for. ``REPEAT`` means that the process ends
        before either is known, so that both sets have to be waited for.
        """
        has_warned = False

        def judge(row: KnownRow | None) -> Outcome:
            nonlocal has_warned
            if row is None:
                return Outcome.REPEAT
            if row.group.epoch == epoch and self.is_older(row):
                return Outcome.LOST  # the version from which it was asked for is forgotten
            outcome = outcome_of_change(epoch, row.group, has_moved=row.version != expected)
            if outcome is not Outcome.ARBITER_BEHIND:
                return outcome
            if not has_warned:
                has_warned = True
                logger.error("the arbiter's row is older than this master's term", epoch=epoch)
            return Outcome.REPEAT

        return await self._settle(expected, asked, reason, judge)

    async def pause(self) -> None:
        """Pause before the arbiter is asked again, but not beyond the beginning of a stop."""
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                await self.stopping.wait()
        except TimeoutError:
            pass  # it goes on

    async def _watch(self) -> float:
        """Wait for a change; return the seconds to pause."""
        changes = self._changes
        reading = asyncio.ensure_future(
            self._arbiter.read(known=self.known, wait_seconds=WATCH_SECONDS)
        )
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return RETRY_SECONDS
            row = reading.result()
        except UnansweredError:
            return RETRY_SECONDS
        finally:
            stopping.cancel()
            reading.cancel()
        if changes == self._changes:  # else the answer may be older than what is known
            self._note(row)
        return RETRY_SECONDS if row is None else 0.0

    async def _settle(
        self,
        expected: str | None,
        asked: GroupRow,
        reason: str,
        judge: Callable[[KnownRow | None], Outcome],
        may_repeat: Callable[[], Awaitable[bool]] = _always,
    ) -> Outcome:
        """Ask for a change until *judge* knows from the row what became of it.

        Return ``REPEAT`` if the process ends before.
        """
        was_sent = False
        while not self.stopping.is_set():
            row: KnownRow | None
            try:
                if was_sent and not await may_repeat():
                    raise StaleVersionError("the arbiter has lost changes")
                row = await self.swap(expected, asked, reason)
            except UnansweredError as error:
                was_sent |= error.was_sent
                if not was_sent:
                    return Outcome.LOST  # nobody has received it
                await self.pause()
                continue
            except StaleVersionError:
                row = await self._read_again()
            if (outcome := judge(row)) is not Outcome.REPEAT:
                return outcome
            await self.pause()
        return Outcome.REPEAT

    async def _look(self) -> None:
        with suppress(UnansweredError):  # the message proves nothing by itself
            await self.read()

    async def _read_again(self) -> KnownRow | None:
        """Return the row, however long the arbiter takes to answer; None: there is none.

        If the process ends meanwhile, None as well.
        """
        while not self.stopping.is_set():
            try:
                return await self.read()
            except UnansweredError:
                await self.pause()
        return None

    def _note(self, row: KnownRow | None) -> None:
        self._changes += 1
        before, self.known = self.known, row
        if row is not None and row.change >= self.latest_change:
            self.latest = row
        is_first, self.is_read = not self.is_read, True
        if not is_first and row == before:
            return
        if row is not None:
            logger.info(
                "broker group",
                epoch=row.group.epoch,
                master=str(row.group.master),
                in_sync=sorted(map(str, row.group.in_sync)),
                by=row.by,
            )
        self._on_change(before, row)
