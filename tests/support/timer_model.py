"""The correct state of every delayed message, computed from the records of the log alone.

The codec reads the log; nothing here is shared with the broker's own fold.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from eruca.contract.names import EVENTS_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.records import Record

WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC)


@dataclass
class TimerModel:
    """A fold over all records there ever were; every delayed message has a body of its own."""

    waiting: dict[int, bytes] = field(default_factory=dict)  # log offset → body, of all ever
    delivered: Counter[bytes] = field(default_factory=Counter)
    delivered_at: dict[bytes, int] = field(default_factory=dict)  # store time
    ended: dict[int, str] = field(default_factory=dict)  # log offset → the event that ended it

    def __init__(self, records: Iterable[Record]) -> None:
        self.waiting, self.ended, self.delivered_at = {}, {}, {}
        self.delivered = Counter()
        for record in records:
            if record.topic in WAITING_TOPICS:
                self.waiting[record.log_offset] = record.body
            elif record.topic == EVENTS_TOPIC:
                event = json.loads(record.body)
                for timer in event.get("timers", ()) if event["event"] != "snapshot" else ():
                    assert timer in self.waiting, f"timer {timer} was never set"
                    assert timer not in self.ended, f"timer {timer} ended twice"
                    self.ended[timer] = event["event"]
            else:
                self.delivered[record.body] += 1
                self.delivered_at[record.body] = record.store_timestamp

    @property
    def pending(self) -> dict[int, bytes]:
        """The pending messages, by log offset."""
        return {at: body for at, body in self.waiting.items() if at not in self.ended}

    @property
    def cancelled(self) -> set[bytes]:
        """The cancelled messages."""
        return {self.waiting[at] for at, by in self.ended.items() if by == "timers_cancelled"}

    def check(self, *, gone: frozenset[bytes] = frozenset()) -> None:
        """Check that each delayed message waits once, or came once, or was recalled.

        Args:
            gone: Bodies of those whose topic was deleted before their time.
        """
        pending = Counter(self.pending.values())
        for body in set(self.waiting.values()):
            fates = pending[body] + self.delivered[body] + (body in self.cancelled)
            assert fates == (0 if body in gone else 1), (body, pending[body], self.delivered[body])
