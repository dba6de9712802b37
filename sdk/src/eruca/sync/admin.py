"""Administration: topics, queues, brokers, single messages, the name servers' key-value table.

Generated from ``eruca.aio.admin`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eruca.aio.admin import AsyncAdmin
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from datetime import datetime

    from eruca.aio.scheduled import HeldScheduled
    from eruca.contract.errors import ErucaError
    from eruca.contract.fields import Permission
    from eruca.contract.messages import LogRecordView, PulledMessage
    from eruca.contract.recall_handles import RecallHandle
    from eruca.contract.routes import BrokerGroup, TopicRoute
    from eruca.contract.status import BrokerStatus, NamesrvStatus
    from eruca.contract.topics import QueueOffsets, TopicConfig, TopicSettings
    from eruca.core.messages.message_queue import MessageQueue
    from eruca.sync.group_admin import GroupAdmin
    from eruca.sync.transaction_admin import TransactionAdmin


class Admin:
    """Administration of one cluster; made by :attr:`eruca.Client.admin`."""

    def __init__(self, portal: Portal, twin: AsyncAdmin) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def groups(self) -> GroupAdmin:
        """Consumer groups, their positions and dead letters."""
        from eruca.sync.group_admin import GroupAdmin  # as the async one, late

        return GroupAdmin(self._portal, self._portal.run(lambda: self._twin.groups))

    @property
    def transactions(self) -> TransactionAdmin:
        """Transactions: the pending ones, and the outcomes of the others."""
        from eruca.sync.transaction_admin import TransactionAdmin  # as the async one, late

        return TransactionAdmin(self._portal, self._portal.run(lambda: self._twin.transactions))

    def create_topic(
        self,
        topic: str,
        *,
        queue_count: int | None = None,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        permission: Permission | None = None,
        ordered: bool | None = None,
        force: bool = False,
        cluster: str | None = None,
        broker_name: str | None = None,
    ) -> dict[str, TopicConfig]:
        """Create *topic*, or change its settings, on every broker; return them by broker name.

        Returns when the name server's route shows the change, or when the request timeout is over.
        A producer that starts after that uses all queues.

        A setting that is None keeps its value. A new topic gets the defaults below.

        Args:
            topic: Its name.
            queue_count: Queues on each broker; default 4.
            read_queue_count: Queues to read, if it differs from *queue_count*.
            write_queue_count: Queues to write, if it differs from *queue_count*.
            permission: Whether the topic may be read and written; default "rw".
            force: Remove queues even if groups have not read all of their messages.
            ordered: Whether a sharding key keeps its queue while that queue's broker is away. If
                true, sends with that key wait for the broker. If false, keys are divided over the
                queues of the live brokers, so they move when a broker comes or goes.
            cluster: Only on the brokers of this cluster.
            broker_name: Only on this broker.

        Raises:
            BrokerNotFoundError: No live broker matches.
            ConflictError: Groups have not read all messages of queues that would be removed.
        """
        return self._portal.call(
            self._twin.create_topic,
            topic,
            queue_count=queue_count,
            read_queue_count=read_queue_count,
            write_queue_count=write_queue_count,
            permission=permission,
            ordered=ordered,
            force=force,
            cluster=cluster,
            broker_name=broker_name,
        )

    def change_topic(
        self,
        topic: str,
        settings: Mapping[str, TopicSettings],
        *,
        without: Collection[str] = (),
        force: bool = False,
    ) -> dict[str, TopicConfig]:
        """Create or change *topic*, as :meth:`create_topic` does, with settings for each broker.

        For an ordered topic, all of its brokers get the new order config. It divides sharding keys
        over the queues of every broker where the topic is ordered and writable.

        Args:
            topic: Its name.
            settings: The new settings by broker name; a field that is not set keeps its value. This
                method computes their order config.
            without: Brokers that are away and will not return; their keys move to other brokers.
            force: Remove queues even if groups have not read all of their messages.

        Raises:
            BrokerNotFoundError: A broker of *settings* is not live.
            ValidationError: A broker of *without* is live, or no keys are assigned to it.
        """
        return self._portal.call(
            self._twin.change_topic, topic, settings, without=without, force=force
        )

    def delete_topic(
        self, topic: str, *, cluster: str | None = None, broker_name: str | None = None
    ) -> list[str]:
        """Delete *topic* on every broker that has it; return their names.

        Raises:
            TopicNotFoundError: No broker has the topic.
        """
        return self._portal.call(
            self._twin.delete_topic, topic, cluster=cluster, broker_name=broker_name
        )

    def list_topics(self) -> list[str]:
        """Return the topics of live brokers, sorted, as the name server reports them."""
        return self._portal.call(self._twin.list_topics)

    def topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker_name: str | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> dict[str, TopicConfig]:
        """Return the settings of *topic* by broker name, as each broker stores them.

        Args:
            topic: Its name.
            cluster: Only on the brokers of this cluster.
            broker_name: Only on this broker.
            unanswered: Collects the brokers that do not answer, each with its error, if another
                broker has the topic. None: an unanswered request raises.

        Raises:
            TopicNotFoundError: No broker has the topic.
        """
        return self._portal.call(
            self._twin.topic, topic, cluster=cluster, broker_name=broker_name, unanswered=unanswered
        )

    def topics_of_broker(
        self, broker_name: str, *, include_system: bool = False
    ) -> list[TopicConfig]:
        """Return the topics of a broker; system topics only with *include_system*."""
        return self._portal.call(
            self._twin.topics_of_broker, broker_name, include_system=include_system
        )

    def route(self, topic: str) -> TopicRoute:
        """Return the current route of *topic* from the name server."""
        return self._portal.call(self._twin.route, topic)

    def queues(
        self, topic: str, *, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[MessageQueue, QueueOffsets]:
        """Return the first and the next offset of each queue of *topic*.

        Args:
            topic: Its name.
            unanswered: Collects the brokers that do not answer, each with its error. None: an
                unanswered request raises.
        """
        return self._portal.call(self._twin.queues, topic, unanswered=unanswered)

    def offset_by_time(
        self,
        queue: MessageQueue,
        timestamp: datetime,
        *,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the offset in *queue* for a time, compared with the broker's store times.

        ``lower``: the first message stored at *timestamp* or later, or the queue's end. ``upper``:
        the last message stored at *timestamp* or earlier, or the queue's beginning.
        """
        return self._portal.call(self._twin.offset_by_time, queue, timestamp, boundary=boundary)

    def brokers(self) -> list[BrokerGroup]:
        """Return every live broker."""
        return self._portal.call(self._twin.brokers)

    def clusters(self) -> dict[str, list[str]]:
        """Return broker names by cluster."""
        return self._portal.call(self._twin.clusters)

    def broker_url(self, broker_name: str) -> str:
        """Return the URL of a broker's master.

        Raises:
            BrokerNotFoundError: The broker is not registered.
        """
        return self._portal.call(self._twin.broker_url, broker_name)

    def cluster_status(self, cluster: str | None = None) -> dict[str, BrokerStatus]:
        """Return the status of each broker, by broker name.

        Raises:
            ErucaError: A broker of the routes does not answer; see :meth:`broker_status`.
        """
        return self._portal.call(self._twin.cluster_status, cluster)

    def broker_status(self, broker_name: str) -> BrokerStatus:
        """Return the status of one broker."""
        return self._portal.call(self._twin.broker_status, broker_name)

    def namesrv_statuses(self) -> dict[str, NamesrvStatus | ErucaError]:
        """Return the status of each name server by URL; its error, if it does not answer."""
        return self._portal.call(self._twin.namesrv_statuses)

    def message_by_offset_id(self, offset_message_id: str) -> LogRecordView:
        """Return the message with an offset id.

        Raises:
            ValidationError: The text is not a message id.
            RecordNotFoundError: The text is a unique id, no live broker has its store host, or no
                record starts at its offset.
            MessageDamagedError: The record at its offset is damaged.
        """
        return self._portal.call(self._twin.message_by_offset_id, offset_message_id)

    def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        incomplete: dict[str, str] | None = None,
    ) -> list[PulledMessage]:
        """Return all messages of *topic* with this key or unique id, newest first.

        The client reads the result of every broker of the topic page by page.

        Args:
            topic: The topic.
            key: A key or the unique id of the messages.
            since: Only messages stored at this time or later.
            until: Only messages stored before this time.
            limit: Maximum number of messages, the newest ones; None: no limit.
            incomplete: Collects the brokers that could not search everything, each with the reason.
                None: an incomplete search raises.

        Raises:
            SearchIncompleteError: More messages may have the key: segments in the tier have no
                keys, or records are damaged.
        """
        return self._portal.call(
            self._twin.messages_by_key,
            topic,
            key,
            since=since,
            until=until,
            limit=limit,
            incomplete=incomplete,
        )

    def message_by_unique_id(self, topic: str, unique_id: str) -> PulledMessage:
        """Return the message of *topic* with a unique id; search no further than it is found.

        Args:
            topic: The topic.
            unique_id: The id that its producer gave it.

        Raises:
            RecordNotFoundError: There is none.
            SearchIncompleteError: None was found, but not everything could be searched.
        """
        return self._portal.call(self._twin.message_by_unique_id, topic, unique_id)

    def scheduled(
        self, topic: str | None = None, *, unanswered: dict[str, ErucaError] | None = None
    ) -> Iterator[HeldScheduled]:
        """Iterate over the scheduled messages of all brokers, in the order of their delivery times.

        They include messages that wait for a retry. A message that is delivered during the
        iteration may be missing.

        Args:
            topic: Only messages that will be delivered to this topic.
            unanswered: Collects the brokers that do not answer, each with its error. None: an
                unanswered request raises.
        """
        return self._portal.iterate(self._twin.scheduled(topic, unanswered=unanswered))

    def recall_scheduled(self, recall_handle: str) -> RecallHandle:
        """Cancel a scheduled message; return its topic and broker.

        The broker never delivers it. Repeating the call is harmless. Other messages are not
        affected, not even one with the same id: ids are unique only within a topic.

        Args:
            recall_handle: The handle from the send's result or from :meth:`scheduled`.

        Raises:
            ScheduledNotFoundError: The broker never had this message.
            AlreadyDeliveredError: The message has been delivered, or its delivery has begun.
            ValidationError: The text is a message id; ``errors`` lists the messages with that id
                and their handles.
        """
        return self._portal.call(self._twin.recall_scheduled, recall_handle)

    def kv(self, namespace: str, key: str) -> str:
        """Return a value.

        Raises:
            KeyNotFoundError: No name server has the key.
        """
        return self._portal.call(self._twin.kv, namespace, key)

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a value at every name server."""
        self._portal.call(self._twin.put_kv, namespace, key, value)

    def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a value at every name server.

        Raises:
            KeyNotFoundError: No name server has the key.
        """
        self._portal.call(self._twin.delete_kv, namespace, key)

    def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty if the namespace does not exist."""
        return self._portal.call(self._twin.list_kv, namespace)
