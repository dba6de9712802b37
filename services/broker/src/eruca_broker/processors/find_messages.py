"""Find messages by key or by unique id, through the key index.

Source: RocketMQ 5.3, ``QueryMessageProcessor``. The index stores hashes; the store compares the
keys themselves, so a collision returns no other key's messages.
"""

from __future__ import annotations

from functools import partial

from eruca_broker.processors.topics import Topics
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading.tiered_keys import FoundByKey


class Finder:
    """Looks messages up in this broker's key index, and in its tier."""

    def __init__(self, store: MessageStore, topics: Topics) -> None:
        self._store = store
        self._topics = topics

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        before_offset: int | None = None,
        reader: str,
    ) -> FoundByKey:
        """Return messages of *topic* that have *key*, or it as their unique id, newest first.

        The times are the broker's store times, both inclusive. With *before_offset*, only records
        before that log offset are returned, where the preceding page ended. A damaged record may
        have the key, so damaged ones are returned beside the messages. With a tier, a page may end
        with a log offset before which there may be more. *reader* pays for what is not in memory.

        Raises:
            PostponedError: Files of the index, or records, are not in memory.
            TopicNotFoundError: There is no such topic.
        """
        self._topics.get(topic)

        look = partial(
            self._store.keys.find,
            topic,
            key,
            count_max=count_max,
            begin_ms=begin_ms,
            end_ms=end_ms,
            before_offset=before_offset,
        )
        return self._store.cold.attempt(reader, look)
