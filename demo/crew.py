"""Two members share the flights. One is killed, the other takes over; the counts still agree."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import eruca
from demo.journey import TOPIC, Progress
from demo.ledger import Ledger
from demo.member import count_handled, read_handled

GROUP: Final = "ground-crew"

_LOOK_SECONDS: Final = 0.1
_STALLED_SECONDS: Final = 60.0  # no progress for so long, although flights are left: a fault
_STOP_SECONDS: Final = 30.0


@dataclass(slots=True)
class Shift:
    """The work of the two members."""

    first_count: int = 0  # flights handled by the member that is killed
    second_count: int = 0
    repeated: int = 0  # flights handled by both
    take_over_seconds: float | None = None  # from the kill until the other member has all queues
    seconds: float = 0.0
    by_carrier: Counter[str] = field(default_factory=Counter)  # each flight once
    lag: int | None = None  # of the group, at the end

    def faults(self, ledger: Ledger) -> list[str]:
        """Return the discrepancies with the file."""
        found = [
            f"the group handled {self.by_carrier[carrier]} flights of {carrier}, expected {sent}"
            for carrier, sent in sorted(ledger.sent_by_carrier.items())
            if self.by_carrier[carrier] != sent
        ]
        if self.lag != 0:
            found.append(f"the group's lag is {self.lag}, expected 0")
        return found


async def work_a_shift(
    client: eruca.AsyncClient, namesrv_url: str, count: int, progress: Progress
) -> Shift:
    """Let two members handle all *count* flights; kill one after a third of them."""
    await client.admin.groups.create(GROUP, start="earliest")
    shift = Shift()
    started_at = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="eruca-crew-") as directory:
        first_file, second_file = Path(directory) / "first", Path(directory) / "second"
        first = await _member(namesrv_url, first_file)
        second = await _member(namesrv_url, second_file)
        try:
            while (done := count_handled(first_file) + count_handled(second_file)) < count // 3:
                progress(done)
                await asyncio.sleep(_LOOK_SECONDS)
            first.kill()
            await first.wait()
            await _until_done(client, shift, progress, count, (first_file, second_file))
            second.terminate()
            async with asyncio.timeout(_STOP_SECONDS):
                await second.wait()
        finally:
            for member in (first, second):
                if member.returncode is None:
                    member.kill()
                    await member.wait()
        shift.first_count = count_handled(first_file)
        shift.second_count = count_handled(second_file)
        handled = dict([*read_handled(first_file), *read_handled(second_file)])
    shift.repeated = shift.first_count + shift.second_count - len(handled)
    shift.by_carrier = Counter(handled.values())
    shift.lag = (await client.admin.groups.lag(GROUP)).lag
    shift.seconds = time.perf_counter() - started_at
    return shift


async def _until_done(
    client: eruca.AsyncClient,
    shift: Shift,
    progress: Progress,
    count: int,
    files: tuple[Path, Path],
) -> None:
    """Return when the group has nothing left, or made no progress for too long."""
    killed_at = moved_at = time.perf_counter()
    before = -1
    while time.perf_counter() - moved_at < _STALLED_SECONDS:
        done = sum(map(count_handled, files))
        progress(min(done, count - 1))
        owners = await _owners(client)
        if shift.take_over_seconds is None and len(set(owners)) == 1:
            shift.take_over_seconds = time.perf_counter() - killed_at
        if done != before:
            before, moved_at = done, time.perf_counter()
        if done >= count and (await client.admin.groups.lag(GROUP)).lag == 0:
            progress(count)
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _owners(client: eruca.AsyncClient) -> list[str | None]:
    """Return the owner of each queue of the flights, as the brokers know it."""
    offsets = await client.admin.groups.offsets(GROUP, topic=TOPIC)
    return [committed.owner for committed in offsets.values()]


async def _member(namesrv_url: str, path: Path) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "demo.member", namesrv_url, GROUP, TOPIC, str(path)
    )
