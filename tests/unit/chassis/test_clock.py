"""The system's clock: two readings, in the units they are named for."""

from __future__ import annotations

import time

from eruca_chassis.clock import SystemClock


def test_the_wall_clock_is_in_milliseconds() -> None:
    assert abs(SystemClock().now_ms() - time.time() * 1000) < 10_000


def test_the_other_one_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]

    assert readings == sorted(readings)
