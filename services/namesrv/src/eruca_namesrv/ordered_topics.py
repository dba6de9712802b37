"""The ordered topics of each broker, remembered while it is away.

A topic without a live broker is unknown, and may be created by sending to it: on brokers that live.
For an ordered topic that would be wrong. Its sharding keys keep their queues, so what is sent under
one waits for that queue's broker, however long that is away, and whatever name server starts
meanwhile. So the ordered topics that a broker registers are kept here, with their order configs,
until it registers others. One without an order config counts as well: its text is empty.

They are kept in the key-value table, an entry per broker, as RocketMQ keeps its order configs: so
they are on the disk where the table is, they can be seen, and what is said of a broker that will
not come back can be deleted. Routes are not kept: where a broker is, only the broker tells.

And they are told to all brokers, which tell them to a name server that has just started: so they
outlive one whose table is in memory, while any broker lives. Later it takes no such hearsay, or
what an operator deletes would come back.

As long as a live broker has the topic, its word counts, and nothing of this does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress

from eruca.contract.errors import KeyNotFoundError
from eruca.contract.models import OrderConfig, TopicConfig
from eruca.contract.names import ORDERED_TOPICS_NAMESPACE
from eruca.contract.ordered_topics import OrderedTopicsEntry, ordered_topics_of
from eruca_namesrv.kv import KvTable


class OrderedTopics:
    """Ordered topics that brokers have announced, with their order configs."""

    def __init__(self, kv: KvTable) -> None:
        self._kv = kv
        self._known: OrderedTopicsEntry = {}  # the highest version of each
        self.digest = ""  # of the entries
        self.read()

    def order_config(self, topic: str) -> str | None:
        """Return a topic's order config, perhaps empty; None where no broker has it as ordered."""
        order = self._known.get(topic)
        return None if order is None else order[1]

    async def remember(self, broker_name: str, topics: Iterable[TopicConfig]) -> None:
        """Keep what a master registers of its ordered topics, in place of what it said before.

        Raises:
            TooLargeError: The table would grow beyond ``kv_size_max``.
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
            with suppress(KeyNotFoundError):  # somebody was faster
                await self._kv.delete(ORDERED_TOPICS_NAMESPACE, broker_name)

    async def absorb(self, entries: Mapping[str, str], *, live: Collection[str]) -> None:
        """Keep what a broker was told of others that neither live nor have an entry.

        Raises:
            TooLargeError, UnavailableError: As :meth:`remember` does.
        """
        for broker_name in entries.keys() - self.entries().keys() - set(live):
            await self._kv.put(ORDERED_TOPICS_NAMESPACE, broker_name, entries[broker_name])

    def entries(self) -> dict[str, str]:
        """Return the table's entries: what each broker has said, by name."""
        return self._kv.entries(ORDERED_TOPICS_NAMESPACE)

    def read(self) -> frozenset[str]:
        """Take in what the table holds now; return the topics of which it says something else."""
        before, known = self._known, OrderedTopicsEntry()
        entries = self.entries()
        self.digest = hashlib.blake2b(json.dumps(entries).encode(), digest_size=16).hexdigest()
        for text in entries.values():
            for topic, order in ordered_topics_of(text).items():
                known[topic] = max(order, known.get(topic, order))
        self._known = known
        return frozenset(topic for topic, _ in before.items() ^ known.items())


def _order_of(config: OrderConfig | None) -> tuple[int, str]:
    # Real versions begin with 1: any order config counts before none.
    return (0, "") if config is None else (config.version, config.text)
