"""One queue of an orderly consumer that keeps the order of each sharding key, and no other order.

A message whose handler fails *blocks its key*. That message and all later ones of the key wait;
messages of other keys continue. After the pause the key's messages are handed out first, oldest
first, until none is left. Only then does the key flow with the others again. Messages without a
sharding key count as one key.

The offset that may be committed stays at the first blocked message. So a crash or a hand-over while
a key is blocked repeats messages of other keys that were consumed after it. Their number is limited
by the consumer's prefetch limits.

Source: none; RocketMQ suspends the whole queue.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic

from eruca.core.consuming.process_queue import M, ProcessQueue


@dataclass(slots=True)
class _Blocked(Generic[M]):
    until: float  # infinite while a handler has one of its messages
    messages: deque[M] = field(default_factory=deque)


class KeyedQueue(Generic[M]):
    """The messages of one queue, handed out in order per key; not thread-safe.

    Args:
        held: Counts the messages, and determines the offset that may be committed.
        key_of: Returns a message's key.
    """

    __slots__ = ("_blocked", "_key_of", "_waiting", "held")

    def __init__(self, held: ProcessQueue[M], key_of: Callable[[M], str | None]) -> None:
        self.held = held
        self._key_of = key_of
        self._waiting: deque[M] = deque()
        self._blocked: dict[str | None, _Blocked[M]] = {}

    @property
    def blocked_keys(self) -> list[str | None]:
        """The blocked keys."""
        return list(self._blocked)

    def add(self, messages: Sequence[M]) -> None:
        """Add pulled messages after the present ones; those of a blocked key wait with it."""
        if not self._blocked:
            self._waiting.extend(messages)
            return
        for message in messages:
            blocked = self._blocked.get(self._key_of(message))
            (self._waiting if blocked is None else blocked.messages).append(message)

    def ready_at(self) -> float | None:
        """Return the time from which a message is available, 0: now; None: there is no message."""
        if self._waiting:
            return 0.0
        due = min((blocked.until for blocked in self._blocked.values()), default=math.inf)
        return due if due < math.inf else None

    def take(self, count_max: int, now: float) -> list[M]:
        """Hand out the next messages: of a blocked key whose pause is over, else of all others."""
        for blocked in self._blocked.values():
            if blocked.until <= now:
                blocked.until = math.inf
                return _taken(blocked.messages, count_max)
        return _taken(self._waiting, count_max)

    def succeed(self, messages: Sequence[M]) -> int:
        """Record that messages are finished; return their bytes."""
        if self._blocked:
            self._go_on(messages)
        return self.held.remove(messages)

    def block(self, messages: Sequence[M], until: float) -> None:
        """Put back messages, and block their keys."""
        assert until < math.inf, "its key would stay blocked for ever"
        by_key: dict[str | None, list[M]] = {}
        for message in messages:
            by_key.setdefault(self._key_of(message), []).append(message)
        fresh = by_key.keys() - self._blocked.keys()
        for key, failed in by_key.items():
            blocked = self._blocked.setdefault(key, _Blocked(until))
            blocked.until = until
            blocked.messages.extendleft(reversed(failed))
        if fresh and self._waiting:
            waiting, self._waiting = self._waiting, deque()
            self.add(waiting)

    def give_back(self, messages: Sequence[M], now: float) -> None:
        """Put back messages that were taken and not handled."""
        if not messages:
            return
        blocked = self._blocked.get(self._key_of(messages[0]))
        if blocked is None:
            self._waiting.extendleft(reversed(messages))
        else:
            blocked.until = now
            blocked.messages.extendleft(reversed(messages))

    def _go_on(self, messages: Sequence[M]) -> None:
        for key in {self._key_of(message) for message in messages}:
            blocked = self._blocked.get(key)
            if blocked is not None and blocked.until == math.inf:
                if blocked.messages:
                    blocked.until = 0.0
                else:
                    del self._blocked[key]


def _taken(queue: deque[M], count_max: int) -> list[M]:
    return [queue.popleft() for _ in range(min(count_max, len(queue)))]
