"""The ranges of queues: their first messages, here and in the tier, and their ends."""

from __future__ import annotations

from collections.abc import Iterator

from eruca.contract.errors import UnavailableError
from eruca.contract.limits import QUEUE_COUNT_MAX
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.lagging import Key, ProjectionError, queue_failed
from eruca_broker.store.queues.queue_files import DamagedQueueError
from eruca_broker.store.tier.reader import TierReader


class QueueRanges:
    """The ranges of one store's queues.

    Args:
        queues: Its consume queues.
        dispatcher: Knows the lagging queues.
        state: Knows where the queues of deleted topics ended.

    Attributes:
        tier: Has what retention has deleted here; None: nothing.
    """

    def __init__(self, queues: ConsumeQueues, dispatcher: Dispatcher, state: BrokerState) -> None:
        self.tier: TierReader | None = None
        self._queues = queues
        self._dispatcher = dispatcher
        self._state = state

    def range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the offsets of the first message that can be read, and of the next message.

        The first one is in the tier, if there is one; see :meth:`local_range`.

        Raises:
            UnavailableError: The queue's files cannot be read; or it is not known yet what is in
                the tier.
        """
        try:
            return self._range(topic, queue_id)
        except (OSError, DamagedQueueError) as error:
            raise self.failed((topic, queue_id), error) from error

    def range_for(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        """Return the range of a queue for a reader at *offset*.

        It is that of :meth:`range`. But if *offset* is here or at the end, and it is not known yet
        what is in the tier, it begins with the first message here: the reader passes none.

        Raises:
            UnavailableError: As of :meth:`range`, if *offset* is elsewhere.
        """
        try:
            return self._range_for(topic, queue_id, offset)
        except (OSError, DamagedQueueError) as error:
            raise self.failed((topic, queue_id), error) from error

    def local_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the offsets of the first message here, without the tier, and of the next message.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        try:
            return self._local_range(topic, queue_id)
        except (OSError, DamagedQueueError) as error:
            raise self.failed((topic, queue_id), error) from error

    def beginnings(self) -> Iterator[tuple[Key, int]]:
        """Yield each queue, past ones included, with the offset of its first message here."""
        for key in {*self._queues, *self._state.queue_ends}:
            yield key, self.local_range(*key)[0]

    def lag_of(self, topic: str, queue_id: int) -> UnavailableError | None:
        """Return why a queue lacks messages of the log; None if it lacks none."""
        key = (topic, queue_id)
        lag = self._dispatcher.lagging.get(key)
        return None if lag is None else queue_failed(key, lag.error)

    def count(self, topic: str) -> int:
        """Return the number of queues of *topic*, past ones included: the last id plus one."""
        ids = range(QUEUE_COUNT_MAX - 1, -1, -1)
        return next(
            (i + 1 for i in ids if (topic, i) in self._queues or self._ended_at(topic, i)), 0
        )

    def created_at(self, topic: str) -> int:
        """Return the log offset from which records of *topic* are the present topic's."""
        known = self._state.topics.get(topic)
        return known.created_at if known else 0

    def failed(self, key: Key, error: ProjectionError) -> UnavailableError:
        """Return the error for a queue whose files failed; a damaged one is rebuilt soon."""
        if isinstance(error, DamagedQueueError) and key not in self._dispatcher.rebuilding:
            self._queues.note_damage(*key, str(error))
        return queue_failed(key, error)

    # --- Inside -----------------------------------------------------------------------------------

    def _range(self, topic: str, queue_id: int) -> tuple[int, int]:
        lowest, highest = self._local_range(topic, queue_id)
        if self.tier is not None and lowest:
            lowest = self.tier.begin_of((topic, queue_id), self.created_at(topic), lowest)
        return lowest, highest

    def _range_for(self, topic: str, queue_id: int, offset: int) -> tuple[int, int]:
        try:
            return self._range(topic, queue_id)
        except UnavailableError:
            lowest, highest = self._local_range(topic, queue_id)
            if lowest <= offset <= highest:
                return lowest, highest
            raise  # the reader would continue elsewhere, and perhaps pass messages in the tier

    def _local_range(self, topic: str, queue_id: int) -> tuple[int, int]:
        if (topic, queue_id) in self._dispatcher.rebuilding:
            raise DamagedQueueError("it is being rebuilt from the log")  # its end is unknown
        queue = self._queues.existing(topic, queue_id)
        if queue is None or queue.min_offset == queue.max_offset:
            end = max(queue.max_offset if queue else 0, self._ended_at(topic, queue_id))
            return end, end
        return queue.min_offset, queue.max_offset

    def _ended_at(self, topic: str, queue_id: int) -> int:
        return self._state.queue_ends.get((topic, queue_id), 0)
