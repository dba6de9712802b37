"""Flow control: when to pull more of a queue, and when what is held is enough.

Three bounds, each for its own danger: *count* and *bytes* bound the memory, *span* bounds how much
a crash can repeat when one slow message holds the committed offset back while later ones are done.
The span does not matter to an orderly consumer: nothing overtakes there.

Pulling begins again once half of the room is free, so that pulls are few and large. What was
handled and only waits for a commit leaves that much less room, and does not keep the rest of it
from being filled: the message whose handler says COMMIT may be still to come.

Source: RocketMQ 5.3, ``DefaultMQPushConsumerImpl.pullMessage``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """What may be held of one queue."""

    count_max: int
    size_max: int  # bytes
    span_max: int | None  # None: it does not matter

    def has_room(
        self, *, count: int, size: int, span: int, kept_count: int = 0, kept_size: int = 0
    ) -> bool:
        """Tell whether to pull more.

        Args:
            count: Messages held.
            size: Their bytes.
            span: From the first one to the last.
            kept_count: Messages held that were handled, and wait for a commit.
            kept_size: Their bytes.
        """
        return (
            _has_half(self.count_max, count, kept_count)
            and _has_half(self.size_max, size, kept_size)
            and (self.span_max is None or span <= self.span_max)
        )


def _has_half(maximum: int, held: int, kept: int) -> bool:
    """Tell whether half of the room that is not taken by what is kept is free."""
    room = maximum - kept
    return room > 0 and held - kept <= room // 2
