"""RocketMQ's timer log: what its reader makes of the files, also where there are several."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, given, settings

from eruca_broker.core.state.timer_log import ROLL_WINDOW_MS, timer_checkpoint, timer_log
from support.rocketmq_timers import Slotted, in_wheel

NOW = 1_700_000_000_123
FILE_SIZE = 52 * 4 + 16  # four units, and what ends a file


def write(directory: Path, files: list[bytes], file_size: int = FILE_SIZE) -> None:
    (directory / "timerlog").mkdir(exist_ok=True)
    (directory / "config").mkdir(exist_ok=True)
    (directory / "config" / "timercheck").write_bytes(timer_checkpoint(0, NOW))
    for old in (directory / "timerlog").iterdir():
        old.unlink()
    for number, content in enumerate(files):
        path = directory / "timerlog" / f"{number * file_size:020}"
        path.write_bytes(content.ljust(file_size, b"\0"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(-5_000, 2 * ROLL_WINDOW_MS), min_size=1, max_size=14), st.booleans())
def test_each_pending_message_is_in_the_wheel_once(
    tmp_path: Path, delays: list[int], is_last_pending: bool
) -> None:
    due_ms = np.array(delays, np.int64) + NOW
    ids = np.arange(len(delays), dtype=np.int64) * 100
    files = timer_log(
        due_ms,
        ids,
        np.full(len(delays), 90, np.int64),
        is_last_pending=is_last_pending,
        now_ms=NOW,
        file_size=FILE_SIZE,
    )
    write(tmp_path, files)

    found, last = in_wheel(tmp_path, file_size=FILE_SIZE)

    pending = ids.tolist() if is_last_pending else ids.tolist()[:-1]
    assert sorted(slotted.log_offset for slotted in found) == pending
    assert last == ids[-1]  # RocketMQ reads on behind it
    for second, log_offset, is_rolled in found:
        delay = delays[log_offset // 100]
        if not is_rolled:
            assert second == max(NOW + delay, NOW) // 1_000
        else:
            assert NOW // 1_000 < second <= (NOW + delay) // 1_000
            assert second - NOW // 1_000 <= ROLL_WINDOW_MS // 1_000


def test_what_waits_longer_than_the_wheel_turns_is_rolled(tmp_path: Path) -> None:
    due_ms = NOW // 1_000 * 1_000 + np.array([ROLL_WINDOW_MS - 1, ROLL_WINDOW_MS], np.int64)
    ids, sizes = np.array([0, 100]), np.array([90, 90])
    write(
        tmp_path,
        timer_log(due_ms, ids, sizes, is_last_pending=True, now_ms=NOW, file_size=FILE_SIZE),
    )

    found, _ = in_wheel(tmp_path, file_size=FILE_SIZE)

    now = NOW // 1_000
    half = ROLL_WINDOW_MS // 2_000
    assert found == [
        Slotted(now + half, 100, True),
        Slotted(now + ROLL_WINDOW_MS // 1_000 - 1, 0, False),
    ]
