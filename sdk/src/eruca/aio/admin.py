"""Administration: topics, queues, brokers, single messages, the name servers' table.

What concerns a topic is done on every broker it concerns: on all masters of a cluster, or those
that have the topic; see :mod:`eruca.aio.cluster.masters`. Groups are in
:mod:`eruca.aio.group_admin`, transactions in :mod:`eruca.aio.transaction_admin`.

Source: RocketMQ 5.3, ``DefaultMQAdminExt``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from eruca.aio.cluster.kv_table import KvTable
from eruca.aio.cluster.masters import Masters, on_each, on_those_that_know
from eruca.aio.cluster.requests import checked_request, parsed
from eruca.aio.group_admin import AsyncGroupAdmin
from eruca.aio.http.transport import HttpResponse, problem_error, target_of
from eruca.aio.scheduled import HeldScheduled, Scheduled
from eruca.aio.topic_changes import TopicChanges
from eruca.aio.transaction_admin import AsyncTransactionAdmin
from eruca.contract.errors import (
    ErucaError,
    RecordNotFoundError,
    TopicNotFoundError,
    TransportError,
    ValidationError,
)
from eruca.contract.fields import Permission
from eruca.contract.limits import KEY_QUERY_COUNT_MAX, LIST_LIMIT_MAX
from eruca.contract.message_ids import UndecodableIdError, decode_offset_id
from eruca.contract.messages import LogRecordView, PulledMessage
from eruca.contract.recall_handles import RecallHandle
from eruca.contract.records import PORT_MAX, Host
from eruca.contract.routes import BrokerGroup, ClusterList, TopicNames, TopicRoute
from eruca.contract.status import BrokerStatus, NamesrvStatus
from eruca.contract.topics import QueueOffsets, TopicConfig, TopicSettings
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_names import check_topic
from eruca.core.checked_numbers import check_above_zero
from eruca.core.messages.message_queue import MessageQueue, checked_queue

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext


_logger = logging.getLogger(__name__)


@checked_calls()
class AsyncAdmin:
    """Administration of one cluster; made by :attr:`eruca.AsyncClient.admin`."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._masters = Masters(context)
        self._topics = TopicChanges(context, self._masters)
        self._scheduled = Scheduled(self._masters)
        self._kv = KvTable(context, self._masters)
        self._groups: AsyncGroupAdmin | None = None
        self._transactions: AsyncTransactionAdmin | None = None

    @property
    def groups(self) -> AsyncGroupAdmin:
        """Consumer groups, their positions and dead letters."""
        if self._groups is None:
            self._groups = AsyncGroupAdmin(self._context)
        return self._groups

    @property
    def transactions(self) -> AsyncTransactionAdmin:
        """Transactions that are not over, and what became of others."""
        if self._transactions is None:
            self._transactions = AsyncTransactionAdmin(self._context)
        return self._transactions

    # Topics.

    async def create_topic(
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
        check_topic(topic)
        named: dict[str, object] = {
            "read_queue_count": queue_count if read_queue_count is None else read_queue_count,
            "write_queue_count": queue_count if write_queue_count is None else write_queue_count,
            "permission": permission,
            "ordered": ordered,
        }
        with checked_request():
            settings = TopicSettings.model_validate(
                {name: value for name, value in named.items() if value is not None}
            )
        names = await self._masters.all(cluster, broker_name)
        return await self.change_topic(topic, dict.fromkeys(names, settings), force=force)

    async def change_topic(
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
        return await self._topics.change(topic, settings, without, is_forced=force)

    async def delete_topic(
        self, topic: str, *, cluster: str | None = None, broker_name: str | None = None
    ) -> list[str]:
        """Delete *topic* on every broker that has it; return their names.

        Raises:
            TopicNotFoundError: No broker has it.
        """
        check_topic(topic)
        urls = await self._masters.all(cluster, broker_name)

        async def delete(url: str) -> bool:
            try:
                await self._context.broker_api.delete_topic(url, topic)
            except TopicNotFoundError:
                return False
            return True

        deleted = [name for name, was_there in (await on_each(urls, delete)).items() if was_there]
        if not deleted:
            fix = "see which there are: eruca topic list, or GET /v1/topics"
            raise TopicNotFoundError(f"no broker has topic {topic}", fix=fix)
        self._context.routes.refresh_soon(topic)
        if cluster is not None or broker_name is not None:
            await self._topics.change(topic, {})  # others may be left: the keys are theirs now
        return deleted

    async def list_topics(self) -> list[str]:
        """Return the topics that some live broker has, by the name server, sorted."""
        # Turns to a name server that knows some; and raises at a broker, who lists topics as well.
        await self._masters.brokers()
        topics: list[str] = []
        cursor: str | None = None
        while True:
            target = target_of("/v1/topics", cursor=cursor, limit=LIST_LIMIT_MAX)
            answer = await self._masters.ask_name_server("GET", target)
            page = parsed(TopicNames, answer, target)
            topics += page.topics
            cursor = page.next_cursor
            if cursor is None:
                return topics

    async def topic(
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
        check_topic(topic)
        return await on_those_that_know(
            await self._masters.all(cluster, broker_name),
            lambda url: self._context.broker_api.get_topic(url, topic),
            _unknown(topic),
            unanswered,
        )

    async def topics_of_broker(
        self, broker_name: str, *, include_system: bool = False
    ) -> list[TopicConfig]:
        """Return the topics a broker has, system topics only if asked for."""
        url = await self.broker_url(broker_name)
        topics: list[TopicConfig] = []
        cursor: str | None = None
        while True:
            page = await self._context.broker_api.list_topics(
                url, cursor=cursor, limit=LIST_LIMIT_MAX, include_system=include_system
            )
            topics += page.topics
            cursor = page.next_cursor
            if cursor is None:
                return topics

    async def route(self, topic: str) -> TopicRoute:
        """Return where *topic* is, as the name server tells it now."""
        return await self._context.routes.route(topic)

    # Queues and offsets.

    async def queues(
        self, topic: str, *, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[MessageQueue, QueueOffsets]:
        """Return the first and the next offset of each queue of *topic*.

        Args:
            topic: Its name.
            unanswered: Takes brokers that do not answer, and how; None: that is an error.
        """
        urls = await self._masters.of_topic(topic)
        answers = await on_each(
            urls, lambda url: self._context.broker_api.topic_queues(url, topic), unanswered
        )
        return {
            MessageQueue(topic, broker_name, offsets.queue_id): offsets
            for broker_name, answer in sorted(answers.items())
            for offsets in answer.queues
        }

    async def offset_by_time(
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
        url = await self._masters.url_of(checked_queue(queue))
        answer = await self._context.broker_api.offset_by_time(
            url, queue.topic, queue.queue_id, timestamp, boundary=boundary
        )
        return answer.offset

    # Brokers.

    async def brokers(self) -> list[BrokerGroup]:
        """Return every live broker."""
        return await self._masters.brokers()

    async def clusters(self) -> dict[str, list[str]]:
        """Return broker names by cluster."""
        return parsed(
            ClusterList, await self._masters.ask_name_server("GET", "/v1/clusters"), "/v1/clusters"
        ).clusters

    async def broker_url(self, broker_name: str) -> str:
        """Return where the master of a broker is reached.

        Raises:
            BrokerNotFoundError: It is not registered.
        """
        return await self._masters.of_broker(broker_name)

    async def cluster_status(self, cluster: str | None = None) -> dict[str, BrokerStatus]:
        """Return how each broker is doing, by broker name.

        Raises:
            ErucaError: A broker that is in the routes does not answer; see :meth:`broker_status`.
        """
        return await on_each(await self._masters.all(cluster), self._context.broker_api.status)

    async def broker_status(self, broker_name: str) -> BrokerStatus:
        """Return how one broker is doing."""
        url = await self.broker_url(broker_name)
        return await self._context.broker_api.status(url)

    async def namesrv_statuses(self) -> dict[str, NamesrvStatus | ErucaError]:
        """Return how each name server is doing, by URL; the error, where one does not answer."""
        statuses: dict[str, NamesrvStatus | ErucaError] = {}
        for url in self._context.name_servers.urls:
            try:
                answer = await self._context.transport.request(
                    "GET", url, "/v1/status", timeout=self._context.settings.timeout_seconds
                )
                if answer.status != 200:
                    raise problem_error(answer, f"GET {url}/v1/status")
                statuses[url] = _namesrv_status(answer, url)
            except ErucaError as error:
                statuses[url] = error
        return statuses

    # Single messages.

    async def message_by_offset_id(self, offset_message_id: str) -> LogRecordView:
        """Return the message an offset id names.

        Raises:
            ValidationError: The text is no message id.
            RecordNotFoundError: It is a unique id; or no broker has that store host, or no record
                starts there.
        """
        try:
            host, log_offset = decode_offset_id(offset_message_id)
        except UndecodableIdError:
            raise ValidationError(
                f"{offset_message_id!r} is no offset id: that is 32 hex digits, or 56 with an IPv6 "
                "address",
                fix="if it is a unique id: look for it with messages_by_key, or in the query "
                "service",
            ) from None
        if not 0 < host.port <= PORT_MAX:
            raise RecordNotFoundError(
                f"{offset_message_id} is a unique id, which does not say where its message lies",
                fix="look for it with messages_by_key, or in the query service",
            )
        for group in await self.brokers():
            for broker in group.brokers:
                if Host.from_text(broker.store_host) == host:
                    url = self._masters.url(broker.urls)
                    return await self._context.broker_api.record(url, log_offset)
        raise RecordNotFoundError(
            f"no live broker has the store host {host.ip}:{host.port} of {offset_message_id}",
            fix="it may be a unique id: look for it with messages_by_key",
        )

    async def messages_by_key(
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
        if limit is not None:
            check_above_zero("limit", limit)
        urls = await self._masters.of_topic(topic)

        async def ask(url: str) -> list[PulledMessage]:
            found: list[PulledMessage] = []
            cursor: str | None = None
            while limit is None or len(found) < limit:
                left = KEY_QUERY_COUNT_MAX if limit is None else limit - len(found)
                page = await self._context.broker_api.messages_by_key(
                    url,
                    topic,
                    key,
                    begin=begin,
                    end=end,
                    limit=min(left, KEY_QUERY_COUNT_MAX),
                    cursor=cursor,
                )
                found += page.messages
                for damaged in page.damaged:
                    _logger.warning(
                        "a record at %s that may have the key %r is not found: %s",
                        *(url, key, damaged.reason),
                    )
                cursor = page.next_cursor
                if cursor is None:
                    break
            return found

        answers = await on_each(urls, ask)
        found = [message for messages in answers.values() for message in messages]
        found.sort(key=lambda message: message.stored_at or "", reverse=True)
        return found[:limit]

    # Messages that are delivered later.

    async def scheduled(
        self, topic: str | None = None, *, unanswered: dict[str, ErucaError] | None = None
    ) -> AsyncIterator[HeldScheduled]:
        """Iterate over the messages that wait for their delivery, as they come due.

        Those of all brokers are among them, and those that groups retry. What is delivered
        meanwhile may be left out.

        Args:
            topic: Only what will be delivered to it.
            unanswered: Takes brokers that do not answer, and how; None: that is an error.
        """
        if topic is not None:
            check_topic(topic)
        async for held in self._scheduled.waiting(topic, unanswered):
            yield held

    async def recall_scheduled(self, recall_handle: str) -> RecallHandle:
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
        return await self._scheduled.recall(recall_handle)

    # The name servers' table.

    async def kv(self, namespace: str, key: str) -> str:
        """Return a value.

        Raises:
            KeyNotFoundError: There is none.
        """
        return await self._kv.get(namespace, key)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a value at every name server."""
        await self._kv.put(namespace, key, value)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a value at every name server.

        Raises:
            KeyNotFoundError: None of them has it.
        """
        await self._kv.delete(namespace, key)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty where there is no such namespace."""
        return await self._kv.entries(namespace)


def _namesrv_status(answer: HttpResponse, url: str) -> NamesrvStatus:
    try:
        return parsed(NamesrvStatus, answer, f"{url}/v1/status")
    except TransportError as error:
        try:
            broker = parsed(BrokerStatus, answer, url)
        except TransportError:
            raise error from None
        raise TransportError(
            f"{url} is no name server: broker {broker.broker_name} answers there",
            fix="give the address of a name server; a broker has another port",
        ) from None


def _unknown(topic: str) -> TopicNotFoundError:
    fix = TopicNotFoundError.fix_of(topic)
    return TopicNotFoundError(f"no broker has topic {topic}", fix=fix)
