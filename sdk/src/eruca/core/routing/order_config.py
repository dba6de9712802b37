"""Over which queues an ordered topic's sharding keys are divided, after its settings have changed.

Each broker of the topic holds the whole *order config*. It lists every broker where the topic is
ordered and may be written to, with its queues. One that is away keeps its entry, and so its keys,
until it is given up by name. A config that says something else than the one before has the next
version; brokers that were away meanwhile hold an older one, which counts no longer.

Source: RocketMQ 5.3, ``UpdateTopicSubCommand`` with ``-o true``, ``UpdateOrderConfCommand``; there
name servers hold the config, here the brokers' logs do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from eruca.contract.topics import OrderConfig, TopicConfig, TopicSettings


def order_config_of(
    topics: Mapping[str, TopicConfig | TopicSettings],
    known: OrderConfig | None,
    *,
    live: Collection[str],
    without: Collection[str] = (),
) -> OrderConfig | None:
    """Return a topic's order config; None where it is ordered nowhere.

    Args:
        topics: The topic by broker name, as it is to be on each broker that answers.
        known: Its order config so far.
        live: The brokers that answer, with the topic or without it.
        without: Brokers whose keys go elsewhere, for they will not come back.
    """
    here = {
        name: topic.write_queue_count
        for name, topic in topics.items()
        if topic.ordered and "w" in topic.permission and topic.write_queue_count
    }
    if not here:
        return None
    before = {} if known is None else known.queues
    gone = {*live, *without}
    queues = {name: count for name, count in before.items() if name not in gone} | here
    if known is not None and queues == known.queues:
        return known
    return OrderConfig(version=1 if known is None else known.version + 1, queues=queues)


def latest_order_config(topics: Mapping[str, TopicConfig]) -> OrderConfig | None:
    """Return the order config that counts of those that brokers hold."""
    configs = [topic.order_config for topic in topics.values() if topic.order_config is not None]
    return max(configs, key=lambda config: (config.version, config.text), default=None)
