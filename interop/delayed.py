"""Delayed, recalled, retried and dead-lettered messages, handed from one side to the other.

Each message's body names its expected outcome. The writer delivers some, recalls some and leaves
some pending. The reader must deliver the pending ones and no others, whatever lies between them.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Protocol

from interop.checks import Checks
from interop.messages import Message
from interop.side import QUEUE_COUNT

TOPIC: Final = "delayed"
FAILING_TOPIC: Final = "failing"
RETRYING: Final = "interop-retrying"  # a group whose message is retried
DYING: Final = "interop-dying"  # a group without retries
PENDING_SECONDS: Final = 30.0
_SOON_SECONDS: Final = 1.0
_SOON_LEVEL: Final = 1  # one second
_LATER_LEVEL: Final = 4  # 30 seconds
_RECALLED_LEVEL: Final = 3
_SECONDS_MAX: Final = 60.0
_POLL_SECONDS: Final = 0.2


class DelayingSide(Protocol):
    """One side's broker, through its client."""

    name: str

    def create_topic(self, topic: str, queue_count: int) -> None:
        """Create *topic*."""

    def send_later(self, topic: str, body: bytes, *, seconds: float = 0, level: int = 0) -> str:
        """Send a delayed message; return its recall handle."""

    def recall(self, topic: str, handle: str) -> None:
        """Recall a delayed message."""

    def fail_one(self, topic: str, group: str, body: bytes, *, retries_max: int) -> None:
        """Send a message, and let it fail in *group*."""

    def consume_retries(self, topic: str, *, group: str, count: int) -> list[bytes]:
        """Return the bodies of *count* messages of a group, including its retries."""

    def read_topic(self, topic: str) -> list[Message]:
        """Return every message of every queue."""


@dataclass(slots=True)
class Delayed:
    """The messages that the writer left behind."""

    delivered: list[bytes] = field(default_factory=list)  # by the writer
    pending: list[bytes] = field(default_factory=list)


def leave_delayed(checks: Checks, side: DelayingSide, *, recalls_levels: bool) -> Delayed:
    """Send delayed messages, and wait for those that are due soon."""
    side.create_topic(TOPIC, QUEUE_COUNT)
    side.create_topic(FAILING_TOPIC, 1)
    left = Delayed()

    def send(what: str, *, seconds: float = 0, level: int = 0) -> str:
        (left.delivered if "soon" in what else left.pending).append(what.encode())
        return side.send_later(TOPIC, what.encode(), seconds=seconds, level=level)

    def recalled(what: str, *, seconds: float = 0, level: int = 0) -> None:
        handle = side.send_later(TOPIC, what.encode(), seconds=seconds, level=level)
        side.recall(TOPIC, handle)

    send("level, soon", level=_SOON_LEVEL)
    send("level, later", level=_LATER_LEVEL)
    if recalls_levels:
        recalled("level, recalled", level=_RECALLED_LEVEL)
    send("time, soon", seconds=_SOON_SECONDS)
    send("time, later", seconds=PENDING_SECONDS)
    send("time, soon, behind one that waits", seconds=_SOON_SECONDS)
    recalled("time, recalled, between", seconds=PENDING_SECONDS)
    send("time, much later", seconds=PENDING_SECONDS + 2)
    recalled("time, recalled, the last", seconds=PENDING_SECONDS)
    side.fail_one(FAILING_TOPIC, DYING, b"dead", retries_max=0)
    side.fail_one(FAILING_TOPIC, RETRYING, b"retried", retries_max=16)
    found = _bodies_once(side, len(left.delivered))
    checks.equal(f"{side.name} delivers what is due", found, Counter(left.delivered))
    dead = [message.body for message in side.read_topic(f"%DLQ%{DYING}")]
    checks.equal(f"{side.name} has a dead letter", dead, [b"dead"])
    return left


def check_delayed(
    checks: Checks,
    side: DelayingSide,
    left: Delayed,
    *,
    are_soon_exact: bool = True,
    is_retry_due: bool = True,
) -> None:
    """Check that *side* delivers the pending messages, and none that was finished."""
    if is_retry_due:
        retried = side.consume_retries(FAILING_TOPIC, group=RETRYING, count=1)
        checks.equal(f"{side.name} retries what failed", retried, [b"retried"])
    expected = Counter(left.delivered + left.pending)
    found = _bodies_once(side, sum(expected.values()))
    if not are_soon_exact:  # after a kill, RocketMQ may redeliver those behind a pending one
        found = Counter({body: count for body, count in found.items() if b"level" in body})
        expected = Counter({body: count for body, count in expected.items() if b"level" in body})
    checks.equal(f"{side.name} delivers what is pending, and nothing else", found, expected)
    dead = [message.body for message in side.read_topic(f"%DLQ%{DYING}")]
    checks.equal(f"{side.name} reads the dead letter", dead, [b"dead"])


def _bodies_once(side: DelayingSide, count: int) -> Counter[bytes]:
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        bodies = Counter(message.body for message in side.read_topic(TOPIC))
        if bodies.total() >= count or time.monotonic() > deadline:
            return bodies
        time.sleep(_POLL_SECONDS)
