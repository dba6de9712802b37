"""Choose the next messages of a queue to lease, from the unfinished and the new ones.

Messages to redeliver go before new ones, each in the queue's order. A message that has been handed
out as often as its group allows becomes a dead letter instead.

In an **ordered** group a message waits while an earlier one of its sharding key is unfinished. A
message without a key waits for all messages before it, and all messages behind it wait for it. So
at most one message of each key is handed out at a time. To reach other keys, new messages may
overtake earlier ones. Then the overtaken messages are unfinished although they were never handed
out. The caller decides how far to look ahead; the number of unfinished messages is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from eruca_broker.core.state.leases import QueueLeases

OrderKey: TypeAlias = Callable[[int], str | None]  # a message's sharding key, by its offset


@dataclass(frozen=True, slots=True)
class Ahead:
    """The content of a queue from its position on."""

    offsets: Sequence[int]  # of the messages that the filter lets pass, ascending
    end: int  # everything before it has been looked at


@dataclass(frozen=True, slots=True)
class ChoiceLimits:
    """The limits of a choice."""

    count_max: int  # to hand out, and as many dead letters
    unfinished_max: int  # of the queue, afterwards; limits new messages only
    attempts_max: int  # maximum number of times that a message is handed out


@dataclass(slots=True)
class Choice:
    """The changes to a queue, decided for one of its positions."""

    position: int
    leased: list[tuple[int, int]] = field(default_factory=list)  # offset, attempt
    overtaken: list[int] = field(default_factory=list)
    dead: list[int] = field(default_factory=list)  # were handed out too often
    gone: list[int] = field(default_factory=list)  # due, but can no longer be read
    is_blocked: bool = False  # something would be due, but for an earlier message of its key
    is_throttled: bool = False  # something new exists, but too much is unfinished


def choose(
    queue: QueueLeases,
    ahead: Ahead,
    limits: ChoiceLimits,
    *,
    now_ms: int,
    min_offset: int,
    order_key: OrderKey | None,
) -> Choice:
    """Return the messages to hand out next.

    Args:
        queue: Its position and its unfinished messages.
        ahead: The messages from the position on.
        limits: The limits of this choice.
        now_ms: The time, in ms since the epoch.
        min_offset: The first message that is still stored.
        order_key: Returns a message's sharding key in an ordered group; None in any other group.
    """
    assert not ahead.offsets or queue.position <= ahead.offsets[0] <= ahead.offsets[-1] < ahead.end
    choice = Choice(queue.position)
    order = _Order(order_key)
    for offset, known in queue.unfinished.items():
        if known.due_at <= now_ms:
            if offset < min_offset:
                choice.gone.append(offset)
                continue
            if known.attempt >= limits.attempts_max and len(choice.dead) < limits.count_max:
                choice.dead.append(offset)
                continue
            if known.attempt < limits.attempts_max and len(choice.leased) < limits.count_max:
                if order.is_free(offset):
                    choice.leased.append((offset, known.attempt + 1))
                else:
                    choice.is_blocked = True
        order.add(offset)
    unfinished = len(queue.unfinished) - len(choice.gone) - len(choice.dead)
    _choose_new(choice, ahead, order, limits, room=limits.unfinished_max - unfinished)
    assert max(len(choice.leased), len(choice.dead)) <= limits.count_max
    return choice


def _choose_new(
    choice: Choice, ahead: Ahead, order: _Order, limits: ChoiceLimits, *, room: int
) -> None:
    overtaken: list[int] = []
    stopped_at = ahead.end
    for offset in ahead.offsets:
        if len(choice.leased) >= limits.count_max or order.is_walled:
            stopped_at = offset
            break
        if room <= len(overtaken):
            choice.is_throttled = True
            stopped_at = offset
            break
        if order.is_free(offset):
            room -= len(overtaken) + 1
            choice.overtaken += overtaken
            overtaken = []
            choice.leased.append((offset, 1))
        else:
            overtaken.append(offset)
        order.add(offset)
    if overtaken or order.is_walled:
        choice.is_blocked = True
    if overtaken:
        stopped_at = overtaken[0]
    assert stopped_at >= choice.position
    choice.position = stopped_at


class _Order:
    """The sharding keys that earlier unfinished messages of the queue occupy."""

    def __init__(self, key_of: OrderKey | None) -> None:
        self._key_of = key_of
        self._taken: set[str] = set()
        self._is_first = True
        self.is_walled = False  # a message without a key blocks all messages behind it

    def is_free(self, offset: int) -> bool:
        if self._key_of is None:
            return True
        if self.is_walled:
            return False
        key = self._key_of(offset)
        return self._is_first if key is None else key not in self._taken

    def add(self, offset: int) -> None:
        if self._key_of is None or self.is_walled:
            return
        self._is_first = False
        key = self._key_of(offset)
        if key is None:
            self.is_walled = True
        else:
            self._taken.add(key)
