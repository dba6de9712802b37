"""Events of leases, each with the dead letters that it causes, in one write."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eruca.contract.names import dead_letter_topic
from eruca_broker.core.state.lease_events import DeliveriesLeased, DeliveriesNacked
from eruca_broker.core.state.state import Topic
from eruca_broker.processors.deliveries.counts import DeliveryCounts
from eruca_broker.processors.deliveries.letters import DeadDelivery, letter_batches
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.topics import Topics
from eruca_chassis.finishing import finished


class DeliveryWriter:
    """Writes them, in the group's turn."""

    def __init__(self, work: GroupWork, topics: Topics, counts: DeliveryCounts) -> None:
        self._work = work
        self._topics = topics
        self._counts = counts

    async def write(
        self, event: DeliveriesLeased | DeliveriesNacked, dead: Sequence[DeadDelivery]
    ) -> None:
        """Record an event with its dead letters; in effect on return."""
        if not dead:
            await self._work.changes.record(event)
            return
        letters = Topic(dead_letter_topic(event.group), 1, 1, "rw")
        await self._topics.created(letters, is_for_group=True)
        batches = letter_batches(
            event.group,
            dead,
            now_ms=self._work.clock.now_ms(),
            host=self._work.store.settings.store_host,
        )
        size = sum(batch.size for batch in batches)
        head = msgspec.structs.replace(event, group_size=size)
        # The turn must not end earlier.
        await finished(self._work.store.append_group(batches, head))
        self._counts.dead += sum(batch.count for batch in batches)
