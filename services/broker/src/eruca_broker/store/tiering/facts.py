"""Facts about an open store that the tier's writer needs: its log's part here, and its queues."""

from __future__ import annotations

from eruca.contract.names import is_system_topic
from eruca_broker.core.tier.queue_tables import Key, Run
from eruca_broker.core.tier.steps import LogExtent, Writer
from eruca_broker.store.message_store import MessageStore


class StoreFacts:
    """The facts about one store, as they are now.

    Args:
        store: The store.
        cluster: Its broker's.
        broker_name: Its broker's.
    """

    def __init__(self, store: MessageStore, cluster: str, broker_name: str) -> None:
        self._store = store
        self._cluster = cluster
        self._broker_name = broker_name

    @property
    def extent(self) -> LogExtent:
        """The part of the log that is here."""
        store = self._store
        return LogExtent(
            min_offset=store.log_min_offset,
            end_offset=store.log_max_offset,
            safe_offset=min(store.visible_offset, store.flushed_offset),
            segment_bytes=store.segment_bytes,
        )

    @property
    def writer(self) -> Writer:
        """This broker, as it writes manifests."""
        store = self._store
        return Writer(
            self._cluster, self._broker_name, store.state.log_id, store.role.epochs().last
        )

    def beginnings(self, base: int) -> dict[Key, Run]:
        """Return where each queue stands before the first segment of a tier."""
        if not base:
            return {}  # each queue begins with its first record
        return {
            key: Run(begin, 0, max(self._created_at(key[0]), base), 0)
            for key, begin in self._store.queues.beginnings()
        }

    def is_current(self, key: Key, run: Run) -> bool:
        """Tell whether a queue is still that of an existing topic."""
        if key[0] not in self._store.state.topics:
            return is_system_topic(key[0])
        return run.log_offset >= self._created_at(key[0])

    def _created_at(self, topic: str) -> int:
        known = self._store.state.topics.get(topic)
        return 0 if known is None else known.created_at
