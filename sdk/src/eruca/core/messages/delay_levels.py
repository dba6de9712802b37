"""Delayed delivery: fixed delay levels, arbitrary times, and the place of a delayed message.

A message with a delay level waits in the schedule topic, in the level's queue. A message with its
own delivery time waits in the timer topic. Its real topic and queue are stored in properties. The
broker restores them at the delivery time.

A level takes precedence over a time. Among the timer properties, seconds take precedence over
milliseconds, and both over an absolute time. A time in the past causes no delay.

Source: RocketMQ 5.3, ``ScheduleMessageService``, ``HookUtils.handleScheduleMessage``. Numbers are
parsed and overflow like Java's ``long``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.properties import (
    TIMER_DELAY_MS,
    TIMER_DELAY_SECONDS,
    TIMER_DELETE_UNIQ_KEY,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from eruca.contract.records import SysFlag

LEVELS_DEFAULT: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
TIMER_UNITS: Final = (
    (TIMER_DELAY_SECONDS, 1_000, True),
    (TIMER_DELAY_MS, 1, True),
    (TIMER_DELIVER_MS, 1, False),
)
"""Timer properties: name, unit in ms, whether it counts from now. The first one present wins."""
UNKNOWN_LEVEL_DELAY_MS: Final = 1_000  # of a level that is not in the table
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_INTEGER: Final = re.compile(r"[+-]?\d+")


class DelayLevelsError(ValueError):
    """A list of levels is invalid; the error has the levels before the invalid item."""

    def __init__(self, text: str, item: str, delays_ms: tuple[int, ...]) -> None:
        super().__init__(f"{item!r} in {text!r} is not a number and one of s, m, h and d")
        self.delays_ms = delays_ms
        self.max_level = len(delays_ms) + bool(item)


class TimerError(ValueError):
    """A timer property is not a number, or its time is beyond the limit."""


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """A table of delays; level 1 is the first."""

    delays_ms: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """Return the levels in *text*: numbers with a unit, separated by one blank.

        Raises:
            DelayLevelsError: An item is invalid.
        """
        delays: tuple[int, ...] = ()
        items = text.split(" ")
        while len(items) > 1 and not items[-1]:
            items.pop()  # trailing blanks do not count
        if items == [""] and text:
            items = []
        for item in items:
            number, unit = _java_long(item[:-1]), _UNIT_MS.get(item[-1:])
            if number is None or unit is None:
                raise DelayLevelsError(text, item, delays)
            delays += (_int64(number * unit),)
        return cls(delays)

    @property
    def max_level(self) -> int:
        """The highest level; higher ones count as this one."""
        return len(self.delays_ms)

    def deliver_at_ms(self, level: int, stored_at_ms: int) -> int:
        """Return the delivery time of a message with this level and store time."""
        is_known = 1 <= level <= self.max_level
        return stored_at_ms + (self.delays_ms[level - 1] if is_known else UNKNOWN_LEVEL_DELAY_MS)


@dataclass(frozen=True, slots=True)
class TimerLimits:
    """Limits of arbitrary delivery times: their precision and their maximum delay."""

    precision_ms: int = 1_000
    max_delay_seconds: int = 3 * 86_400


@dataclass(frozen=True, slots=True)
class Placement:
    """The topic and queue that store a message, and the properties added for it."""

    topic: str
    queue_id: int
    level: int
    real_topic: str | None = None  # None: it is not delayed, and stored in its own topic
    real_queue_id: int | None = None
    timer_out_ms: int | None = None  # when the timer delivers it


def queue_of_level(level: int) -> int:
    """Return the schedule topic's queue for a level."""
    return level - 1


def level_of_queue(queue_id: int) -> int:
    """Return the level of a queue of the schedule topic."""
    return queue_id + 1


def place(
    topic: str,
    queue_id: int,
    *,
    level: int,
    properties: Mapping[str, str],
    sys_flag: int,
    levels: DelayLevels,
    now_ms: int,
    limits: TimerLimits,
) -> Placement:
    """Return the topic and queue that store a message to *topic* now.

    A half message and a rollback are not delayed. A committed message is.

    Raises:
        TimerError: The time is invalid, or too far ahead.
    """
    as_it_is = Placement(topic, queue_id, level)
    if sys_flag & SysFlag.ROLLBACK not in (0, SysFlag.COMMIT):
        return as_it_is
    if level > 0:
        held = min(level, levels.max_level)
        return Placement(SCHEDULE_TOPIC, queue_of_level(held), held, topic, queue_id)
    if topic == TIMER_TOPIC or TIMER_OUT_MS in properties:
        return as_it_is  # it has already been in the timer
    deliver_ms = _deliver_ms(properties, now_ms)
    if deliver_ms is None:
        return as_it_is
    if deliver_ms <= now_ms:
        if TIMER_DELETE_UNIQ_KEY in properties:
            raise TimerError("a message cannot be recalled after its time")
        return as_it_is
    if deliver_ms - now_ms > limits.max_delay_seconds * 1_000:
        raise TimerError(f"a delivery time may be {limits.max_delay_seconds} seconds ahead")
    # Down to a tick, and an exact tick to the one before: the timer delivers after the tick.
    out_ms = (deliver_ms - 1) // limits.precision_ms * limits.precision_ms
    return Placement(TIMER_TOPIC, 0, level, topic, queue_id, out_ms)


def _deliver_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    for name, unit_ms, is_from_now in TIMER_UNITS:
        text = properties.get(name)
        if text is not None:
            number = _java_long(text)
            if number is None:
                raise TimerError(f"property {name}: expected a number, found {text!r}")
            return _int64(is_from_now * now_ms + number * unit_ms)
    return None


def _java_long(text: str) -> int | None:
    """Parse a number like ``Long.parseLong``: sign, digits, 64 bits; None where it throws."""
    if not _INTEGER.fullmatch(text) or len(text) > 1_000:
        return None
    number = int(text)
    return number if _int64(number) == number else None


def _int64(number: int) -> int:
    return ((number + 2**63) & (2**64 - 1)) - 2**63
