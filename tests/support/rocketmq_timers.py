"""RocketMQ's rules for its notes on delayed messages when it opens a store, written independently.

Source: RocketMQ 5.3, ``TimerMessageStore.recover``, ``recoverAndRevise``, ``reviseQueueOffset``,
``dequeue``; ``TimerWheel.reviseSlot``; ``ScheduleMessageService.load``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC

_UNIT = struct.Struct(">iqiqiqiiq")
_ENTRY = struct.Struct(">qiq")
_BLANK_MAGIC = -875_286_124
_ROLL, _DELETE = 2, 4


class Slotted(NamedTuple):
    """A message in the wheel."""

    second: int
    log_offset: int
    is_rolled: bool


def in_wheel(directory: Path, *, file_size: int) -> tuple[list[Slotted], int | None]:
    """Return what the timer log puts into the wheel, and the last unit's log offset."""
    units: dict[int, tuple[int, ...]] = {}
    slots: dict[int, int] = {}
    last: int | None = None
    files = sorted((directory / "timerlog").glob("*"))
    for file in files:
        assert file.stat().st_size == file_size, "RocketMQ refuses a file of another size"
        content = file.read_bytes()
        for at in range(0, file_size - _UNIT.size + 1, _UNIT.size):
            unit = _UNIT.unpack_from(content, at)
            size, _, magic, written_at, delay, log_offset = unit[:6]
            if magic == _BLANK_MAGIC or size != _UNIT.size:
                break
            place = int(file.name) + at
            units[place] = unit
            slots[(written_at + delay) // 1_000] = place
            last = log_offset
    checked = struct.unpack_from(">4q", (directory / "config" / "timercheck").read_bytes())
    found = []
    for second, last_place in slots.items():
        place = last_place
        while place != -1:
            _, previous, magic, _, _, log_offset = units[place][:6]
            place = previous
            if second >= checked[0] // 1_000 and not magic & _DELETE:
                found.append(Slotted(second, log_offset, bool(magic & _ROLL)))
    return sorted(found), last


def would_deliver(directory: Path) -> tuple[list[int], list[int]]:
    """Return the log offsets of what it would deliver: of delay levels, of the timer topic."""
    delayed = directory / "config" / "delayOffset.json"
    table = json.loads(delayed.read_bytes())["offsetTable"] if delayed.exists() else {}
    levels = []
    for queue in (directory / "consumequeue" / SCHEDULE_TOPIC).glob("*"):
        levels += list(_entries(queue))[table.get(str(int(queue.name) + 1), 0) :]
    return sorted(levels), sorted(_timed(directory))


def _timed(directory: Path) -> list[int]:
    queue = list(_entries(directory / "consumequeue" / TIMER_TOPIC / "0"))
    checkpoint = directory / "config" / "timercheck"
    if not checkpoint.exists():
        return queue
    _, flushed, noted, masters = struct.unpack_from(">4q", checkpoint.read_bytes())
    assert flushed == 0  # all of the timer log is looked at
    if not (directory / "timerlog").exists():
        return queue[min(noted, masters) :]
    wheel, last = in_wheel(directory, file_size=100 * 1024 * 1024)
    first = noted if last is None else queue.index(last) + 1
    return [slotted.log_offset for slotted in wheel] + queue[min(first, masters) :]


def _entries(queue: Path) -> Iterator[int]:
    for file in sorted(queue.glob("*")):
        for log_offset, size, _ in _ENTRY.iter_unpack(file.read_bytes()):
            if size > 0:
                yield log_offset
