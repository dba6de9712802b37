"""Compute an ordered topic's order config after a change of the topic's settings.

Each broker of the topic has the whole *order config*. It lists every broker where the topic is
ordered and writable, with its queues. Sharding keys are divided over these queues. A broker that is
away keeps its entry, and so its keys, until an operator removes it by name. A changed config gets
the next version. A broker that was away meanwhile has an older version, which does not count.

Source: RocketMQ 5.3, ``UpdateTopicSubCommand`` with ``-o true``, ``UpdateOrderConfCommand``. In
RocketMQ the name servers have the config, here the brokers' logs have it.
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
    """Return a topic's order config; None if it is not ordered on any broker.

    Args:
        topics: The topic's new settings, by broker name, on each broker that answers.
        known: Its order config so far.
        live: The brokers that answer, with the topic or without it.
        without: Brokers that will not return, so their keys move to others.
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
    """Return the latest of the brokers' order configs."""
    configs = [topic.order_config for topic in topics.values() if topic.order_config is not None]
    return max(configs, key=lambda config: (config.version, config.text), default=None)
