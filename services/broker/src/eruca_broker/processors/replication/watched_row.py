"""The arbiter's row, kept up to date, and requests to change it that are carried to their end.

One request for the row is always held by a controller until the row changes. A change that this
process makes itself is known at once: an answer to that request that may be older is dropped.

Source: PacificA, section 2.2, the configuration manager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

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
        self.is_read = False  # whether ``known`` says anything
        self.stopping = asyncio.Event()
        self._arbiter = arbiter
        self._on_change = on_change
        self._changes = 0  # that this process has made, or has looked for
        self._loop = BackgroundLoop("broker group", self._watch, period_seconds=0)

    def start(self) -> None:
        """Begin to watch."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop watching; a change that is being carried out ends as if it were lost."""
        self.stopping.set()
        await self._loop.stop()

    async def read(self) -> KnownRow | None:
        """Return the row as it is now.

        Raises:
            UnansweredError: No controller answers.
        """
        row = await self._arbiter.read()
        self._note(row)
        return row

    async def swap(self, expected: str | None, row: GroupRow, reason: str) -> KnownRow:
        """Change the row once, as :meth:`.Arbiter.swap` does."""
        changed = await self._arbiter.swap(expected, row, reason=reason)
        self._note(changed)
        return changed

    async def settle_term(self, expected: str | None, asked: GroupRow, reason: str) -> Outcome:
        """Ask for a term, and return once it is known what became of that.

        If the process ends meanwhile, it makes no use of the term, so that it counts as lost.
        """
        was_sent = False
        while not self.stopping.is_set():
            try:
                await self.swap(expected, asked, reason)
            except UnansweredError as error:
                was_sent |= error.was_sent
                if not was_sent:
                    return Outcome.LOST  # nobody has received it
                await self.pause()
                continue
            except StaleVersionError:
                row = await self._read_again()
            else:
                return Outcome.WON
            if row is None:
                return Outcome.LOST
            has_moved, is_ours = row.version != expected, self._arbiter.is_ours(row)
            outcome = outcome_of_term(asked.group, row.group, has_moved=has_moved, is_ours=is_ours)
            if outcome is not Outcome.REPEAT:
                return outcome
            await self.pause()
        return Outcome.LOST

    async def settle_change(
        self, epoch: int, expected: str, asked: GroupRow, reason: str
    ) -> Outcome:
        """Ask for another in-sync set of *epoch*, and return once it is known which one there is.

        ``WON`` means that the known row has the set to adopt, whichever it is. ``LOST`` means that
        nothing has changed: nobody has received the request, or the process ends.
        """
        was_sent = has_warned = False
        while not self.stopping.is_set():
            row: KnownRow | None
            try:
                row = await self.swap(expected, asked, reason)
            except UnansweredError as error:
                was_sent |= error.was_sent
                if not was_sent:
                    return Outcome.LOST
                await self.pause()
                continue
            except StaleVersionError:
                row = await self._read_again()
            if row is not None:
                has_moved = row.version != expected
                outcome = outcome_of_change(epoch, row.group, has_moved=has_moved)
                if outcome in (Outcome.WON, Outcome.SUPERSEDED):
                    return outcome
                if outcome is Outcome.ARBITER_BEHIND and not has_warned:
                    has_warned = True
                    logger.error("the arbiter's row is older than this master's term", epoch=epoch)
            await self.pause()
        return Outcome.LOST

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
