"""Administration: topics, queues, brokers, single messages, the name servers' key-value table.

A change of a topic goes to all masters of a cluster, or to those that have the topic; see
:mod:`eruca.aio.cluster.masters`. Consumer groups are in :mod:`eruca.aio.group_admin`, transactions
in :mod:`eruca.aio.transaction_admin`.

Source: RocketMQ 5.3, ``DefaultMQAdminExt``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from eruca.aio.cluster.key_searches import KeySearches
from eruca.aio.cluster.kv_table import KvTable
from eruca.aio.cluster.masters import Masters, on_each, on_those_that_know
from eruca.aio.cluster.requests import checked_request, parsed
from eruca.aio.cluster.stored_records import StoredRecords
from eruca.aio.group_admin import AsyncGroupAdmin
from eruca.aio.http.transport import HttpResponse, problem_error, target_of
from eruca.aio.scheduled import HeldScheduled, Scheduled
from eruca.aio.topic_changes import TopicChanges
from eruca.aio.transaction_admin import AsyncTransactionAdmin
from eruca.contract.errors import ErucaError, TopicNotFoundError, TransportError
from eruca.contract.fields import Permission
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.messages import LogRecordView, PulledMessage
from eruca.contract.recall_handles import RecallHandle
from eruca.contract.routes import BrokerGroup, ClusterList, TopicNames, TopicRoute
from eruca.contract.status import BrokerStatus, NamesrvStatus
from eruca.contract.topics import QueueOffsets, TopicConfig, TopicSettings
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_names import check_topic
from eruca.core.checked_numbers import check_above_zero
from eruca.core.messages.message_queue import MessageQueue, checked_queue

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext


@checked_calls()
class AsyncAdmin:
    """Administration of one cluster; made by :attr:`eruca.AsyncClient.admin`."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._masters = Masters(context)
        self._topics = TopicChanges(context, self._masters)
        self._scheduled = Scheduled(self._masters)
        self._records = StoredRecords(context, self._masters)
        self._searches = KeySearches(context, self._masters)
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
        """Transactions: the pending ones, and the outcomes of the others."""
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
        return await self._topics.change(topic, settings, without, is_forced=force)

    async def delete_topic(
        self, topic: str, *, cluster: str | None = None, broker_name: str | None = None
    ) -> list[str]:
        """Delete *topic* on every broker that has it; return their names.

        Raises:
            TopicNotFoundError: No broker has the topic.
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
            fix = "list the topics: eruca topic list, or GET /v1/topics"
            raise TopicNotFoundError(f"no broker has topic {topic}", fix=fix)
        self._context.routes.refresh_soon(topic)
        if cluster is not None or broker_name is not None:
            # other brokers may still have it: all keys are theirs now
            await self._topics.change(topic, {})
        return deleted

    async def list_topics(self) -> list[str]:
        """Return the topics of live brokers, sorted, as the name server reports them."""
        # Selects a name server that knows a live broker. Raises if the URL belongs to a broker,
        # which also lists topics.
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
        """Return the topics of a broker; system topics only with *include_system*."""
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
        """Return the current route of *topic* from the name server."""
        return await self._context.routes.route(topic)

    # Queues and offsets.

    async def queues(
        self, topic: str, *, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[MessageQueue, QueueOffsets]:
        """Return the first and the next offset of each queue of *topic*.

        Args:
            topic: Its name.
            unanswered: Collects the brokers that do not answer, each with its error. None: an
                unanswered request raises.
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
        """Return the offset in *queue* for a time, compared with the broker's store times.

        ``lower``: the first message stored at *timestamp* or later, or the queue's end. ``upper``:
        the last message stored at *timestamp* or earlier, or the queue's beginning.
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
        """Return the URL of a broker's master.

        Raises:
            BrokerNotFoundError: The broker is not registered.
        """
        return await self._masters.of_broker(broker_name)

    async def cluster_status(self, cluster: str | None = None) -> dict[str, BrokerStatus]:
        """Return the status of each broker, by broker name.

        Raises:
            ErucaError: A broker of the routes does not answer; see :meth:`broker_status`.
        """
        return await on_each(await self._masters.all(cluster), self._context.broker_api.status)

    async def broker_status(self, broker_name: str) -> BrokerStatus:
        """Return the status of one broker."""
        url = await self.broker_url(broker_name)
        return await self._context.broker_api.status(url)

    async def namesrv_statuses(self) -> dict[str, NamesrvStatus | ErucaError]:
        """Return the status of each name server by URL; its error, if it does not answer."""
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
        """Return the message with an offset id.

        Raises:
            ValidationError: The text is not a message id.
            RecordNotFoundError: The text is a unique id, no live broker has its store host, or no
                record starts at its offset.
            MessageDamagedError: The record at its offset is damaged.
        """
        return await self._records.by_id(offset_message_id)

    async def messages_by_key(
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
        if limit is not None:
            check_above_zero("limit", limit)
        return await self._searches.all(
            topic, key, since=since, until=until, limit=limit, incomplete=incomplete
        )

    async def message_by_unique_id(self, topic: str, unique_id: str) -> PulledMessage:
        """Return the message of *topic* with a unique id; search no further than it is found.

        Args:
            topic: The topic.
            unique_id: The id that its producer gave it.

        Raises:
            RecordNotFoundError: There is none.
            SearchIncompleteError: None was found, but not everything could be searched.
        """
        return await self._searches.by_unique_id(topic, unique_id)

    # Scheduled messages.

    async def scheduled(
        self, topic: str | None = None, *, unanswered: dict[str, ErucaError] | None = None
    ) -> AsyncIterator[HeldScheduled]:
        """Iterate over the scheduled messages of all brokers, in the order of their delivery times.

        They include messages that wait for a retry. A message that is delivered during the
        iteration may be missing.

        Args:
            topic: Only messages that will be delivered to this topic.
            unanswered: Collects the brokers that do not answer, each with its error. None: an
                unanswered request raises.
        """
        if topic is not None:
            check_topic(topic)
        async for held in self._scheduled.waiting(topic, unanswered):
            yield held

    async def recall_scheduled(self, recall_handle: str) -> RecallHandle:
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
        return await self._scheduled.recall(recall_handle)

    # The name servers' key-value table.

    async def kv(self, namespace: str, key: str) -> str:
        """Return a value.

        Raises:
            KeyNotFoundError: No name server has the key.
        """
        return await self._kv.get(namespace, key)

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Store a value at every name server."""
        await self._kv.put(namespace, key, value)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a value at every name server.

        Raises:
            KeyNotFoundError: No name server has the key.
        """
        await self._kv.delete(namespace, key)

    async def list_kv(self, namespace: str) -> dict[str, str]:
        """Return all keys and values of a namespace; empty if the namespace does not exist."""
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
            f"expected a name server at {url}, found broker {broker.broker_name}",
            fix="give the address of a name server; it has another port than a broker",
        ) from None


def _unknown(topic: str) -> TopicNotFoundError:
    fix = TopicNotFoundError.fix_of(topic)
    return TopicNotFoundError(f"no broker has topic {topic}", fix=fix)
