"""Questions to the cluster, as one caller. Recent answers are given again.

Each answer says when it was got. An answer that several brokers give together (:class:`Gathered`)
also names the brokers that gave their part, and those that did not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from pydantic import BaseModel

from eruca import (
    AsyncClient,
    GroupLag,
    HeldDeadLetter,
    HeldScheduled,
    MessageQueue,
    QueueOffsets,
)
from eruca.contract.access import AccessExplanation, AccessQuestion
from eruca.contract.broker_groups import BrokerGroupHistory, BrokerGroupView
from eruca.contract.errors import AccessError, BrokerNotFoundError, ErucaError
from eruca.contract.fields import MASTER_ID
from eruca.contract.groups import GroupConfig, MemberList
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.messages import PulledMessage
from eruca.contract.policies import AccessStatus
from eruca.contract.queries import MessageFound, MessagePage, QueryStatus, Timeline
from eruca.contract.replication import ReplicationStatus
from eruca.contract.routes import BrokerAddress, BrokerGroup
from eruca.contract.status import BrokerStatus, NamesrvStatus
from eruca.contract.topics import TopicConfig
from eruca.contract.transactions import (
    CheckedTransaction,
    TransactionDetail,
    TransactionSummary,
)
from eruca.core.routing.route_table import address_for
from eruca.core.routing.services import CONTROLLER, TXN_CHECKER
from eruca.services.cluster import Instances, parsed, send_model
from eruca_console.cluster.audit import AuditRecords, audit_of
from eruca_console.cluster.brokers import KnownBrokers
from eruca_console.cluster.cache import AnswerCache, Answered
from eruca_console.cluster.outcomes import outcomes

UNFINISHED_COUNT_MAX: Final = 10  # each costs a request

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Gathered(Generic[T]):
    """An answer that brokers give together.

    Attributes:
        value: The part of those that answered.
        silent: The others, each with its error.
        names: The live brokers that are not among the silent ones.
    """

    value: T
    silent: Mapping[str, ErucaError]
    names: Sequence[str] = ()

    @property
    def is_whole(self) -> bool:
        """True if every broker has given its part."""
        return not self.silent


@dataclass(frozen=True, slots=True)
class ShownTransaction:
    """A transaction as its broker knows it.

    Attributes:
        detail: Its state and its events.
        body: The half message's, as it was sent; None: retention has deleted it, or it is damaged.
    """

    detail: TransactionDetail
    body: bytes | None


class Reading:
    """Questions of one caller.

    Args:
        client: The caller's.
        known: The brokers that were seen lately.
    """

    def __init__(self, client: AsyncClient, known: KnownBrokers) -> None:
        self.client = client
        self.known = known
        self.cache = AnswerCache()
        seconds = client.settings.timeout_seconds
        self._checkers = Instances(TXN_CHECKER, client.context, timeout=seconds)
        self._controllers = Instances(CONTROLLER, client.context, timeout=seconds)

    async def brokers(self) -> Answered[Sequence[BrokerGroup]]:
        """Return the live brokers, by the name servers."""
        answered = await self.cache.get("brokers", self.client.admin.brokers)
        self.known.learn(group.broker_name for group in answered.value)
        return answered

    async def away(self) -> list[str]:
        """Return the brokers that were seen lately, and are registered no more."""
        live = {group.broker_name for group in (await self.brokers()).value}
        return self.known.without(live)

    def url_of(self, group: BrokerGroup) -> str | None:
        """Return the URL of a broker's master; None: none is registered."""
        network = self.client.settings.network
        for one in group.brokers:
            if one.broker_id == MASTER_ID:
                return address_for(one.urls, network)
        return None

    def master_url(self, group: BrokerGroup) -> str:
        """Return the URL of a broker's master.

        Raises:
            BrokerNotFoundError: None is registered.
        """
        url = self.url_of(group)
        if url is None:
            raise BrokerNotFoundError(f"{group.broker_name} has no registered master")
        return url

    async def any_broker_url(self) -> str:
        """Return the URL of a broker, for commands to copy: name servers know no groups."""
        try:
            groups = (await self.brokers()).value
        except ErucaError:
            groups = ()
        return next((url for url in map(self.url_of, groups) if url), "http://BROKER:10911")

    async def url_of_broker(self, broker_name: str) -> str:
        """Return the URL of a broker's master, for commands to copy."""
        try:
            groups = (await self.brokers()).value
        except ErucaError:
            groups = ()
        found = (self.url_of(one) for one in groups if one.broker_name == broker_name)
        return next((url for url in found if url), "http://BROKER:10911")

    async def status(self, group: BrokerGroup) -> Answered[BrokerStatus]:
        """Return the status of a broker's master.

        Raises:
            BrokerNotFoundError: None is registered.
        """
        url = self.master_url(group)
        return await self.cache.get(
            ("status", url), lambda: self.client.context.broker_api.status(url)
        )

    async def replica(self, address: BrokerAddress) -> Answered[ReplicationStatus]:
        """Return the part of a broker process in its group, by its own answer."""
        url = address_for(address.urls, self.client.settings.network)
        return await self.cache.get(("replica", url), lambda: self.replica_at(url))

    async def replica_at(self, url: str) -> ReplicationStatus:
        """Return the part of the broker process at *url*, as it is now."""
        return await self._asked(ReplicationStatus, url, "/v1/replication/status")

    async def access_status(self, group: BrokerGroup) -> Answered[AccessStatus]:
        """Return the rules that are in force at a broker's master."""
        url = self.master_url(group)
        return await self.cache.get(
            ("access", url), lambda: self._asked(AccessStatus, url, "/v1/access")
        )

    async def explained(
        self, group: BrokerGroup, question: AccessQuestion
    ) -> Answered[AccessExplanation]:
        """Return whether a principal has a right, by the rules of a broker's master."""
        url, target = self.master_url(group), "/v1/access:explain"
        context = self.client.context
        seconds = context.settings.timeout_seconds

        async def ask() -> AccessExplanation:
            answer = await send_model(
                context.transport, "POST", url, target, question, timeout=seconds
            )
            return parsed(AccessExplanation, answer, url + target)

        return await self.cache.get(("explain", url, question.model_dump_json()), ask)

    async def broker_group(self, broker_name: str) -> Answered[BrokerGroupView]:
        """Return a broker's row at the arbiter.

        Raises:
            NoRouteError: No controller is known.
            NotFoundError: The controller has no such row: the broker is alone.
        """
        target = f"/v1/broker-groups/{quote(broker_name, safe='')}"

        async def ask() -> BrokerGroupView:
            answer, url = await self._controllers.request("GET", target)
            return parsed(BrokerGroupView, answer, url + target)

        return await self.cache.get(("broker group", broker_name), ask)

    async def broker_history(self, broker_name: str) -> Answered[BrokerGroupHistory]:
        """Return the last changes of a broker's row; raises as :meth:`broker_group`."""
        target = f"/v1/broker-groups/{quote(broker_name, safe='')}/history"

        async def ask() -> BrokerGroupHistory:
            answer, url = await self._controllers.request("GET", target)
            return parsed(BrokerGroupHistory, answer, url + target)

        return await self.cache.get(("broker history", broker_name), ask)

    async def name_servers(self) -> Answered[Mapping[str, NamesrvStatus | ErucaError]]:
        """Return the status of each name server by URL, or its error."""
        return await self.cache.get("name servers", self.client.admin.namesrv_statuses)

    async def query_status(self) -> Answered[QueryStatus]:
        """Return the status of a query service."""
        answered = await self.cache.get("query", self.client.query.status)
        self.known.learn(log.broker_name for log in answered.value.followed)
        return answered

    async def topics(self) -> Answered[Gathered[Mapping[str, Mapping[str, TopicConfig]]]]:
        """Return the settings of all topics: by topic, then by broker."""

        async def of_broker(url: str) -> Answered[list[TopicConfig]]:
            return await self.cache.get(("topics", url), lambda: self._topics_at(url))

        async def ask() -> Gathered[Mapping[str, Mapping[str, TopicConfig]]]:
            groups = (await self.brokers()).value
            urls = {group.broker_name: self.url_of(group) for group in groups}
            named = {url: name for name, url in urls.items() if url is not None}
            answers = await outcomes(named, of_broker)
            found: dict[str, dict[str, TopicConfig]] = {}
            errors: dict[str, ErucaError] = {
                name: BrokerNotFoundError(f"{name} has no registered master")
                for name, url in urls.items()
                if url is None
            }
            for url, answer in answers.items():
                if answer.error is not None:
                    errors[named[url]] = answer.error
                for config in answer.value or ():
                    found.setdefault(config.topic, {})[named[url]] = config
            errors |= await self.absent()
            return Gathered(found, errors, sorted(urls.keys() - errors.keys()))

        return await self.cache.get("topics", ask)

    async def topic(self, topic: str) -> Answered[Gathered[Mapping[str, TopicConfig]]]:
        """Return the settings of a topic by broker; raises as ``admin.topic``."""
        return await self._gathered(
            ("topic", topic), lambda silent: self.client.admin.topic(topic, unanswered=silent)
        )

    async def queues(self, topic: str) -> Answered[Gathered[Mapping[MessageQueue, QueueOffsets]]]:
        """Return the offsets of a topic's queues; raises as ``admin.queues``."""
        return await self._gathered(
            ("queues", topic), lambda silent: self.client.admin.queues(topic, unanswered=silent)
        )

    async def groups(self) -> Answered[Gathered[Mapping[str, Mapping[str, GroupConfig]]]]:
        """Return the settings of all groups: by group, then by broker."""
        return await self._gathered(
            "groups", lambda silent: self.client.admin.groups.list(unanswered=silent)
        )

    async def group(self, group: str) -> Answered[Gathered[Mapping[str, GroupConfig]]]:
        """Return the settings of a group by broker; raises as ``admin.groups.get``."""
        return await self._gathered(
            ("group", group), lambda silent: self.client.admin.groups.get(group, unanswered=silent)
        )

    async def members(self, group: str) -> Answered[Gathered[Mapping[str, MemberList]]]:
        """Return the members of a group as each broker sees them."""
        return await self._gathered(
            ("members", group),
            lambda silent: self.client.admin.groups.members(group, unanswered=silent),
        )

    async def lag(self, group: str, topic: str | None = None) -> Answered[Gathered[GroupLag]]:
        """Return the lag of a group, in one topic or in all; without a broker it is unknown."""
        answered = await self._gathered(
            ("lag", group, topic),
            lambda silent: self.client.admin.groups.lag(group, topic=topic, unanswered=silent),
        )
        gathered = answered.value
        if gathered.is_whole:
            return answered
        unknown = replace(gathered.value, lag=None, oldest_unconsumed_at=None)
        return replace(answered, value=replace(gathered, value=unknown))

    async def dead_letters(
        self, group: str, maximum: int
    ) -> Answered[Gathered[Sequence[HeldDeadLetter]]]:
        """Return the first dead letters of a group; raises as ``admin.groups.dead_letters``."""

        async def ask(silent: dict[str, ErucaError]) -> Sequence[HeldDeadLetter]:
            found: list[HeldDeadLetter] = []
            async for held in self.client.admin.groups.dead_letters(group, unanswered=silent):
                found.append(held)
                if len(found) == maximum:
                    break
            return found

        return await self._gathered(("dead letters", group, maximum), ask)

    async def unfinished(self, group: str, topic: str) -> Answered[MessagePage]:
        """Return the newest messages that a group has not finished, by the query service."""
        return await self.cache.get(
            ("unfinished", group, topic),
            lambda: self.client.query.find(
                topic, group=group, group_state="not_yet", limit=UNFINISHED_COUNT_MAX
            ),
        )

    async def message(self, message_id: str) -> Answered[MessageFound]:
        """Return a message with its body; raises as ``query.message``."""
        return await self.cache.get(
            ("message", message_id), lambda: self.client.query.message(message_id)
        )

    async def messages(
        self,
        topic: str,
        *,
        key: str | None,
        tag: str | None,
        since: datetime | None,
        until: datetime | None,
        limit: int,
        cursor: str | None,
    ) -> Answered[MessagePage]:
        """Return a page of a topic's messages, newest first; raises as ``query.find``."""
        return await self.cache.get(
            ("messages", topic, key, tag, since, until, limit, cursor),
            lambda: self.client.query.find(
                topic, key=key, tag=tag, since=since, until=until, limit=limit, cursor=cursor
            ),
        )

    async def query_url(self) -> str:
        """Return the URL of a query service, for commands to copy."""
        try:
            urls = (await self.cache.get("query urls", self.client.query.urls)).value
        except ErucaError:
            urls = []
        return urls[0] if urls else "http://QUERY:10931"

    async def timeline(self, message_id: str) -> Answered[Timeline]:
        """Return a message's history; raises as ``query.timeline``."""
        return await self.cache.get(
            ("timeline", message_id), lambda: self.client.query.timeline(message_id)
        )

    async def scheduled(
        self, topic: str | None, maximum: int
    ) -> Answered[Gathered[Sequence[HeldScheduled]]]:
        """Return the scheduled messages that are delivered first."""

        async def ask(silent: dict[str, ErucaError]) -> Sequence[HeldScheduled]:
            found: list[HeldScheduled] = []
            async for held in self.client.admin.scheduled(topic, unanswered=silent):
                found.append(held)
                if len(found) == maximum:
                    break
            return found

        return await self._gathered(("scheduled", topic, maximum), ask)

    async def audit(self, hours: int) -> Answered[Gathered[Sequence[AuditRecords]]]:
        """Return the newest audit records of each broker, of the last *hours*.

        Raises:
            ForbiddenError: The caller may not read them.
        """

        async def ask(silent: dict[str, ErucaError]) -> Sequence[AuditRecords]:
            since = datetime.now(UTC) - timedelta(hours=hours)
            found: list[AuditRecords] = []
            for group in (await self.brokers()).value:
                try:
                    found.append(await audit_of(self.client, self.master_url(group), since))
                except AccessError:
                    raise
                except ErucaError as error:
                    silent[group.broker_name] = error
            return found

        return await self._gathered(("audit", hours), ask)

    async def transactions(
        self, state: Literal["pending", "parked"], maximum: int
    ) -> Answered[Gathered[Sequence[TransactionSummary]]]:
        """Return the oldest transactions of a state."""

        async def ask(silent: dict[str, ErucaError]) -> Sequence[TransactionSummary]:
            found: list[TransactionSummary] = []
            undecided = self.client.admin.transactions.undecided(state=state, unanswered=silent)
            async for summary in undecided:
                found.append(summary)
                if len(found) == maximum:
                    break
            return found

        return await self._gathered(("transactions", state, maximum), ask)

    async def transaction(
        self, broker_name: str, transaction_id: str
    ) -> Answered[ShownTransaction]:
        """Return a transaction by its broker.

        Raises:
            BrokerNotFoundError: The broker is not registered.
            TransactionNotFoundError: It does not know the transaction.
        """
        target = f"/v1/transactions/{quote(transaction_id, safe='')}"

        async def ask() -> ShownTransaction:
            url = await self.client.admin.broker_url(broker_name)
            context = self.client.context
            answer = await send_model(
                context.transport, "GET", url, target, timeout=context.settings.timeout_seconds
            )
            detail = parsed(TransactionDetail, answer, url + target)
            # The model's numbers are floats; a body is shown with the digits that were sent.
            raw = msgspec.json.decode(answer.body, type=dict[str, msgspec.Raw])
            half = msgspec.json.decode(raw["message"], type=PulledMessage | None)
            body = None if half is None else half.body
            return ShownTransaction(detail, None if body is None else body.octets())

        return await self.cache.get(("transaction", broker_name, transaction_id), ask)

    async def checks(self, broker_name: str, transaction_id: str) -> Answered[CheckedTransaction]:
        """Return a transaction with its checks, by a transaction checker.

        Raises:
            NoRouteError: No checker is known.
            TransactionNotFoundError: It has not read of it yet, or has forgotten it.
        """
        query = urlencode({"broker_name": broker_name})
        target = f"/v1/transactions/{quote(transaction_id, safe='')}?{query}"

        async def ask() -> CheckedTransaction:
            answer, url = await self._checkers.request("GET", target)
            return parsed(CheckedTransaction, answer, url + target)

        return await self.cache.get(("checks", broker_name, transaction_id), ask)

    async def _asked(self, model: type[M], url: str, target: str) -> M:
        context = self.client.context
        seconds = context.settings.timeout_seconds
        answer = await send_model(context.transport, "GET", url, target, timeout=seconds)
        return parsed(model, answer, url + target)

    async def _gathered(
        self, key: Hashable, ask: Callable[[dict[str, ErucaError]], Awaitable[T]]
    ) -> Answered[Gathered[T]]:
        async def asked() -> Gathered[T]:
            silent: dict[str, ErucaError] = {}
            value = await ask(silent)
            live = {group.broker_name for group in (await self.brokers()).value}
            silent |= await self.absent()
            return Gathered(value, silent, sorted(live - silent.keys()))

        return await self.cache.get(key, asked)

    async def absent(self) -> dict[str, ErucaError]:
        """Return the brokers that are away, each with the error that says so."""
        return {
            name: BrokerNotFoundError("no process of this name is registered")
            for name in await self.away()
        }

    async def _topics_at(self, url: str) -> list[TopicConfig]:
        found: list[TopicConfig] = []
        cursor: str | None = None
        while True:
            page = await self.client.context.broker_api.list_topics(
                url, cursor=cursor, limit=LIST_LIMIT_MAX, include_system=False
            )
            found += page.topics
            cursor = page.next_cursor
            if cursor is None:
                return found
