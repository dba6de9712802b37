"""The ordered topics of each broker, remembered while the broker is away.

A topic without a live broker is unknown, and a client may create it on a live broker by sending to
it. For an ordered topic that would be wrong. Its sharding keys keep their queues, so a message
waits for its queue's broker, however long that is away and whichever name server starts meanwhile.
So this module keeps the ordered topics that a broker registers, with their order configs, until
the broker registers others. An ordered topic without an order config is kept too, with empty text.

They are stored in the key-value table, one entry per broker, as RocketMQ stores its order configs.
So they are as durable as the table, visible, and an operator can delete the entry of a broker that
will not return. Routes are not stored: only the broker itself knows its address.

They are also sent to all brokers, and a broker sends them to a name server that has just started.
So they outlive a table in memory while any broker lives. Once settled, a name server ignores what
brokers say about others; otherwise an operator's deletion would be undone.

While a live broker has the topic, only the live brokers' registrations count.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from eruca.contract.errors import KeyNotFoundError
from eruca.contract.names import ORDERED_TOPICS_NAMESPACE
from eruca.contract.ordered_topics import OrderedTopicsEntry, ordered_topics_of
from eruca.contract.topics import OrderConfig, TopicConfig
from eruca_namesrv.kv import KvTable


class OrderedTopics:
    """Ordered topics that brokers have registered, with their order configs."""

    def __init__(self, kv: KvTable) -> None:
        self._kv = kv
        self._known: OrderedTopicsEntry = {}  # topic → its order config with the highest version
        self.digest = ""  # of the table's entries
        self.read()

    def order_config(self, topic: str) -> str | None:
        """Return a topic's order config, perhaps empty; None if no broker has it as ordered."""
        order = self._known.get(topic)
        return None if order is None else order[1]

    async def remember(self, broker_name: str, topics: Iterable[TopicConfig]) -> None:
        """Store a master's ordered topics in place of those it registered before.

        Raises:
            TooLargeError: The table would grow beyond ``kv_characters_max``.
            UnavailableError: The table's file cannot be written now.
        """
        orders = {
            config.topic: _order_of(config.order_config) for config in topics if config.ordered
        }
        text = json.dumps(orders, ensure_ascii=False, sort_keys=True) if orders else None
        if text == self.entries().get(broker_name):
            return
        if text is not None:
            await self._kv.put(ORDERED_TOPICS_NAMESPACE, broker_name, text)
        else:
            with suppress(KeyNotFoundError):  # already deleted meanwhile
                await self._kv.delete(ORDERED_TOPICS_NAMESPACE, broker_name)

    async def absorb(self, entries: Mapping[str, str], *, live: Collection[str]) -> None:
        """Store what a broker knows about others that are not live and have no entry yet.

        Raises:
            TooLargeError, UnavailableError: See :meth:`remember`.
        """
        for broker_name in entries.keys() - self.entries().keys() - set(live):
            await self._kv.put(ORDERED_TOPICS_NAMESPACE, broker_name, entries[broker_name])

    def entries(self) -> dict[str, str]:
        """Return the table's entries: broker name → the broker's ordered topics, as text."""
        return self._kv.entries(ORDERED_TOPICS_NAMESPACE)

    def read(self) -> frozenset[str]:
        """Reload the table's entries; return the topics whose order config changed."""
        before, known = self._known, OrderedTopicsEntry()
        entries = self.entries()
        self.digest = hashlib.blake2b(json.dumps(entries).encode(), digest_size=16).hexdigest()
        for text in entries.values():
            for topic, order in ordered_topics_of(text).items():
                known[topic] = max(order, known.get(topic, order))
        self._known = known
        return frozenset(topic for topic, _ in before.items() ^ known.items())


def _order_of(config: OrderConfig | None) -> tuple[int, str]:
    # Real versions start at 1, so any order config wins over none.
    return (0, "") if config is None else (config.version, config.text)
