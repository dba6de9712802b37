"""Flow control: decide when to pull more messages of a queue.

There are three bounds. *count* and *bytes* bound the memory. *span* bounds how many messages a
crash can repeat, when one slow message holds the committed offset back while later ones complete.
An orderly consumer needs no span: no message overtakes another there.

Pulling resumes when half of the room is free, so that pulls are few and large. Messages that only
wait for a commit reduce the room. They do not block the rest of it, because the message whose
handler returns COMMIT may not have been pulled yet.

Source: RocketMQ 5.3, ``DefaultMQPushConsumerImpl.pullMessage``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of the messages held of one queue."""

    count_max: int
    size_max: int  # bytes
    span_max: int | None  # None: it does not matter

    def has_room(
        self, *, count: int, size: int, span: int, kept_count: int = 0, kept_size: int = 0
    ) -> bool:
        """Return whether to pull more.

        Args:
            count: Messages held.
            size: Their bytes.
            span: Offsets from the first held message to the last.
            kept_count: Held messages that were handled and wait for a commit.
            kept_size: Their bytes.
        """
        return (
            _has_half(self.count_max, count, kept_count)
            and _has_half(self.size_max, size, kept_size)
            and (self.span_max is None or span <= self.span_max)
        )


def _has_half(maximum: int, held: int, kept: int) -> bool:
    """Return whether half of the room that kept messages leave is free."""
    room = maximum - kept
    return room > 0 and held - kept <= room // 2
