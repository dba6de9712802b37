"""Administration: topics, queues, brokers, single messages, the name servers' table.

Generated from ``eruca.aio.admin`` by ``sdk/tools/generate_sync.py``; change that one.
How it works and which threads may do what is said in :mod:`eruca.sync.portal`.
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
        """Transactions that are not over, and what became of others."""
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
        """Create *topic*, or change its settings, on every broker; return it by broker name.

        Returns once the name server's route shows it there, if that takes no longer than a
        request may: a producer that starts now uses all of its queues.

        Settings that are None stay as they are; of a new topic they are what is said below.

        Args:
            topic: Its name.
            queue_count: Queues on each broker; 4.
            read_queue_count: Queues to read, where that differs.
            write_queue_count: Queues to write, where that differs.
            permission: What may be done with it; "rw".
            force: Take queues away although groups have still to read their messages.
            ordered: Whether a sharding key keeps its queue while that queue's broker is away:
                what is sent under it waits for that broker. Else keys are divided over the queues
                of the brokers that live, so that one which comes or goes moves them.
            cluster: On the brokers of this cluster only.
            broker_name: On this broker only.

        Raises:
            BrokerNotFoundError: There is no such broker, or none at all.
            ConflictError: Groups have still to read queues that would be taken away.
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
        """Create *topic*, or change its settings, as :meth:`create_topic` does, on each as told.

        Where the topic is ordered, all of its brokers are told over which queues sharding keys are
        divided from now on: those of every broker where it is ordered and may be written to.

        Args:
            topic: Its name.
            settings: What it is to be, by broker name; fields that are not set stay as they are.
                Their order config is made here.
            without: Brokers that are away and will not come back: their keys go elsewhere.
            force: Take queues away although groups have still to read their messages.

        Raises:
            BrokerNotFoundError: One of *settings* is not there.
            ValidationError: One of *without* is there, or has no keys.
        """
        return self._portal.call(
            self._twin.change_topic, topic, settings, without=without, force=force
        )

    def delete_topic(
        self, topic: str, *, cluster: str | None = None, broker_name: str | None = None
    ) -> list[str]:
        """Delete *topic* on every broker that has it; return their names.

        Raises:
            TopicNotFoundError: No broker has it.
        """
        return self._portal.call(
            self._twin.delete_topic, topic, cluster=cluster, broker_name=broker_name
        )

    def list_topics(self) -> list[str]:
        """Return the topics that some live broker has, by the name server, sorted."""
        return self._portal.call(self._twin.list_topics)

    def topic(
        self,
        topic: str,
        *,
        cluster: str | None = None,
        broker_name: str | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> dict[str, TopicConfig]:
        """Return *topic* as each broker that has it holds it, by broker name.

        Args:
            topic: Its name.
            cluster: On the brokers of this cluster only.
            broker_name: On this broker only.
            unanswered: Takes brokers that do not answer, and how, where others have the topic;
                None: that is an error.

        Raises:
            TopicNotFoundError: None has it.
        """
        return self._portal.call(
            self._twin.topic, topic, cluster=cluster, broker_name=broker_name, unanswered=unanswered
        )

    def topics_of_broker(
        self, broker_name: str, *, include_system: bool = False
    ) -> list[TopicConfig]:
        """Return the topics a broker has, system topics only if asked for."""
        return self._portal.call(
            self._twin.topics_of_broker, broker_name, include_system=include_system
        )

    def route(self, topic: str) -> TopicRoute:
        """Return where *topic* is, as the name server tells it now."""
        return self._portal.call(self._twin.route, topic)

    def queues(
        self, topic: str, *, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[MessageQueue, QueueOffsets]:
        """Return the first and the next offset of each queue of *topic*.

        Args:
            topic: Its name.
            unanswered: Takes brokers that do not answer, and how; None: that is an error.
        """
        return self._portal.call(self._twin.queues, topic, unanswered=unanswered)

    def offset_by_time(
        self,
        queue: MessageQueue,
        timestamp: datetime,
        *,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the offset a time leads to in *queue*, by when its broker stored the messages.

        ``lower``: of the first message stored then or later, or the queue's end. ``upper``: of the
        last one stored then or earlier, or the queue's beginning.
        """
        return self._portal.call(self._twin.offset_by_time, queue, timestamp, boundary=boundary)

    def brokers(self) -> list[BrokerGroup]:
        """Return every live broker."""
        return self._portal.call(self._twin.brokers)

    def clusters(self) -> dict[str, list[str]]:
        """Return broker names by cluster."""
        return self._portal.call(self._twin.clusters)

    def broker_url(self, broker_name: str) -> str:
        """Return where the master of a broker is reached.

        Raises:
            BrokerNotFoundError: It is not registered.
        """
        return self._portal.call(self._twin.broker_url, broker_name)

    def cluster_status(self, cluster: str | None = None) -> dict[str, BrokerStatus]:
        """Return how each broker is doing, by broker name.

        Raises:
            ErucaError: A broker that is in the routes does not answer; see :meth:`broker_status`.
        """
        return self._portal.call(self._twin.cluster_status, cluster)

    def broker_status(self, broker_name: str) -> BrokerStatus:
        """Return how one broker is doing."""
        return self._portal.call(self._twin.broker_status, broker_name)

    def namesrv_statuses(self) -> dict[str, NamesrvStatus | ErucaError]:
        """Return how each name server is doing, by URL; the error, where one does not answer."""
        return self._portal.call(self._twin.namesrv_statuses)

    def message_by_offset_id(self, offset_message_id: str) -> LogRecordView:
        """Return the message an offset id names.

        Raises:
            ValidationError: The text is no message id.
            RecordNotFoundError: It is a unique id; or no broker has that store host, or no record
                starts there.
        """
        return self._portal.call(self._twin.message_by_offset_id, offset_message_id)

    def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        limit: int | None = None,
    ) -> list[PulledMessage]:
        """Return all messages of *topic* with this key or unique id, newest first.

        All brokers of the topic are asked, page by page.

        Args:
            topic: The topic.
            key: One of their keys, or their unique id.
            begin: Stored then or later.
            end: Stored before then.
            limit: How many of the newest; None: all that there are.
        """
        return self._portal.call(
            self._twin.messages_by_key, topic, key, begin=begin, end=end, limit=limit
        )

    def scheduled(
        self, topic: str | None = None, *, unanswered: dict[str, ErucaError] | None = None
    ) -> Iterator[HeldScheduled]:
        """Iterate over the messages that wait for their delivery, as they come due.

        Those of all brokers are among them, and those that groups retry. What is delivered
        meanwhile may be left out.

        Args:
            topic: Only what will be delivered to it.
            unanswered: Takes brokers that do not answer, and how; None: that is an error.
        """
        return self._portal.iterate(self._twin.scheduled(topic, unanswered=unanswered))

    def recall_scheduled(self, recall_handle: str) -> RecallHandle:
        """Recall a message before it is delivered; return the topic and broker it waited for.

        It is never delivered then. Recalling again is harmless. No other message is touched, not
        even one of the same id: ids are unique only within a topic.

        Args:
            recall_handle: That of the send's result, or of :meth:`scheduled`.

        Raises:
            ScheduledNotFoundError: The broker has had no such message.
            AlreadyDeliveredError: It has been delivered, or is being delivered now.
            ValidationError: It is a message's id; ``errors`` names the messages it may mean, with
                their handles.
        """
        return self._portal.call(self._twin.recall_scheduled, recall_handle)

    def kv(self, namespace: str, key: str) -> str:
        """Return a value.

        Raises:
            KeyNotFoundError: There is none.
        """
        return self._portal.call(self._twin.kv, namespace, key)

    def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a value at every name server."""
        self._portal.call(self._twin.put_kv, namespace, key, value)

    def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a value at every name server.

        Raises:
            KeyNotFoundError: None of them has it.
        """
        self._portal.call(self._twin.delete_kv, namespace, key)

    def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty where there is no such namespace."""
        return self._portal.call(self._twin.list_kv, namespace)
