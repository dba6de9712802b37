"""Encode events as the control records of one store."""

from __future__ import annotations

from collections.abc import Sequence

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Host
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, Event, encode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_chassis.clock import Clock


class ControlRecords:
    """Makes the batches of control records that one store appends.

    Args:
        host: The host that is written into every record.
        clock: Their creation times.
    """

    def __init__(self, host: Host, clock: Clock) -> None:
        self._host = host
        self._clock = clock

    def batch(self, event: Event) -> Batch:
        """Return a batch of one record, the event's."""
        record = encode_event(event, now_ms=self._clock.now_ms(), host=self._host)
        return batch_of_records(EVENTS_TOPIC, EVENTS_QUEUE_ID, [record])

    def group(
        self, head: Event | None, batches: Sequence[Batch]
    ) -> list[tuple[Batch, Event | None]]:
        """Return *batches* as parts of one append, with the control record of *head* before them.

        Args:
            head: An event that is recorded before them; if it heads a group, the batches are the
                group. None: there is none.
            batches: The broker's own.
        """
        parts: list[tuple[Batch, Event | None]] = [(batch, None) for batch in batches]
        if head is None:
            return parts
        if isinstance(head, GROUP_HEADS):
            size = sum(batch.size for batch in batches)
            assert head.group_size == size, "by its size a start tells a torn group"
        return [(self.batch(head), head), *parts]
