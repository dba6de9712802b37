"""Administration of consumer groups: settings, members, offsets, dead letters.

A group exists on every broker separately: each broker has its own copy of the settings, and the
offsets of its own queues. This module combines them. Unknown stays None: a total with an unknown
part is unknown.

Source: RocketMQ 5.3, ``DefaultMQAdminExt``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeVar

from eruca.aio.cluster.group_api import group_path, unknown_group
from eruca.aio.cluster.masters import Masters, on_each, on_those_that_know
from eruca.aio.cluster.requests import checked_request
from eruca.aio.dead_letters import DeadLetters, HeldDeadLetter, RedriveStep, RedriveSummary
from eruca.aio.http.transport import target_of
from eruca.contract.errors import ErucaError, NotFoundError, UnavailableError, ValidationError
from eruca.contract.groups import (
    CommittedOffset,
    GroupAsOf,
    GroupConfig,
    GroupLagList,
    GroupLagTotal,
    GroupList,
    GroupSettings,
    MemberList,
    OffsetCommit,
    OffsetReset,
    QueueReset,
    ResetAnswer,
    ResetToOffset,
    RetryPolicy,
    SubscriptionMode,
)
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.retries import DeadLetterDetail
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_names import check_group, check_own_group
from eruca.core.messages.message_queue import MessageQueue, checked_queue

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

_PageT = TypeVar("_PageT", GroupList, GroupLagList)


@dataclass(frozen=True, slots=True)
class BrokerTraffic:
    """Messages of a topic that a group took over at one broker: by commits and acknowledgements."""

    topic: str
    broker_name: str
    message_count: int | None  # None: the broker counts it together with others
    size_bytes: int | None  # of their records
    since: datetime  # when the broker began to count


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group."""

    lag: int | None  # unread messages in all existing queues; None: unknown
    oldest_unconsumed_at: datetime | None  # of the oldest unread message; None: none, or unknown
    queues: Mapping[MessageQueue, CommittedOffset]
    traffic: Sequence[BrokerTraffic] = ()  # of the brokers that answered, and count it


@dataclass(frozen=True, slots=True)
class TotalLag:
    """The lag of a group in all queues of the cluster in which it has begun."""

    lag: int | None  # unread messages; None: unknown
    oldest_unconsumed_at: datetime | None  # of the oldest unread message; None: none, or unknown


@checked_calls()
class AsyncGroupAdmin:
    """Consumer groups of one cluster; made by :attr:`AsyncAdmin.groups`."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._masters = Masters(context)
        self._dead_letters = DeadLetters(self._masters)

    async def _pages(
        self, model: type[_PageT], url: str, path: str, *, include_system: bool
    ) -> AsyncIterator[_PageT]:
        cursor: str | None = None
        while True:
            target = target_of(
                path, cursor=cursor, limit=LIST_LIMIT_MAX, include_system=include_system or None
            )
            page = await self._masters.call(model, "GET", url, target)
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    # Settings and members.

    async def create(
        self,
        group: str,
        *,
        start: Literal["earliest", "latest"] | datetime | None = None,
        retries_max: int | None = None,
        retry_policy: RetryPolicy | Literal["rocketmq"] | None = None,
        ordered: bool | None = None,
        consume_enabled: bool | None = None,
        broadcast_enabled: bool | None = None,
        subscription_mode: SubscriptionMode | None = None,
        broker_name: str | None = None,
    ) -> dict[str, GroupConfig]:
        """Create *group*, or change its settings, on every broker; return them by broker name.

        A setting that is None keeps its value. A new group gets the defaults below.

        Args:
            group: Its name.
            start: Where it begins in a topic that is new to it; default "latest".
            retries_max: Maximum number of retries before a message becomes a dead letter;
                default 16.
            retry_policy: Delays before retries: a :class:`eruca.CustomizedRetryPolicy`, an
                :class:`eruca.ExponentialRetryPolicy`, or "rocketmq" for its delay levels.
            ordered: Whether each queue is consumed in order; default False.
            consume_enabled: Whether members receive messages; default True.
            broadcast_enabled: Whether broadcasting members are allowed; default True.
            subscription_mode: Whether all members must have the same subscriptions; default
                "shared".
            broker_name: Only on this broker.
        """
        check_own_group(group)
        named: dict[str, object] = {
            "start": start,
            "retries_max": retries_max,
            "retry_policy": retry_policy,
            "ordered": ordered,
            "consume_enabled": consume_enabled,
            "broadcast_enabled": broadcast_enabled,
            "subscription_mode": subscription_mode,
        }
        given = {name: value for name, value in named.items() if value is not None}
        if retry_policy == "rocketmq":
            given["retry_policy"] = None
        with checked_request():
            settings = GroupSettings.model_validate(given)
        return await on_each(
            await self._masters.all(broker_name=broker_name),
            lambda url: self._masters.call(GroupConfig, "PUT", url, group_path(group), settings),
        )

    async def get(
        self, group: str, *, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[str, GroupConfig]:
        """Return the settings of *group* by broker name, as each broker stores them.

        Args:
            group: Its name.
            unanswered: Collects the brokers that do not answer, each with its error, if another
                broker knows the group. None: an unanswered request raises.

        Raises:
            GroupNotFoundError: No broker knows the group.
        """
        check_group(group)
        return await on_those_that_know(
            await self._masters.all(),
            lambda url: self._masters.call(GroupConfig, "GET", url, group_path(group)),
            unknown_group(group),
            unanswered,
        )

    async def list(
        self,
        *,
        include_system: bool = False,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> dict[str, dict[str, GroupConfig]]:
        """Return the settings of all groups: by group, then by broker name.

        Args:
            include_system: Whether to include system groups.
            unanswered: Collects the brokers that do not answer, each with its error. None: an
                unanswered request raises.
        """

        async def of_broker(url: str) -> Sequence[GroupConfig]:
            pages = self._pages(GroupList, url, "/v1/groups", include_system=include_system)
            return [config async for page in pages for config in page.groups]

        found: dict[str, dict[str, GroupConfig]] = {}
        answers = await on_each(await self._masters.all(), of_broker, unanswered)
        for broker_name, groups in answers.items():
            for config in groups:
                found.setdefault(config.group, {})[broker_name] = config
        return dict(sorted(found.items()))

    async def delete(self, group: str) -> Sequence[str]:
        """Delete *group* and its offsets on every broker that knows it; return their names.

        Raises:
            GroupNotFoundError: No broker knows the group.
            ConflictError: The group has live members.
        """
        check_group(group)
        urls = await self._masters.all()
        deleted = await on_those_that_know(
            urls,
            lambda url: self._masters.send("DELETE", url, group_path(group)),
            unknown_group(group),
        )
        return sorted(deleted)

    async def members(
        self, group: str, *, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[str, MemberList]:
        """Return the members of *group* by broker name, as each broker sees them.

        Args:
            group: Its name.
            unanswered: Collects the brokers that do not answer, each with its error, if another
                broker knows the group. None: an unanswered request raises.
        """
        check_group(group)
        return await on_those_that_know(
            await self._masters.all(),
            lambda url: self._masters.call(MemberList, "GET", url, f"{group_path(group)}/members"),
            unknown_group(group),
            unanswered,
        )

    # Offsets.

    async def offsets(
        self, group: str, *, topic: str | None = None
    ) -> dict[MessageQueue, CommittedOffset]:
        """Return the offsets of *group*: in all queues of *topic*, or in all that have one."""
        return dict((await self.lag(group, topic=topic)).queues)

    async def lag(
        self,
        group: str,
        *,
        topic: str | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> GroupLag:
        """Return the lag of *group*, in total and for each queue.

        Args:
            group: Its name.
            topic: Only in this topic.
            unanswered: Collects the brokers that do not answer, each with its error. The total is
                unknown then, and their queues are missing. None: an unanswered request raises.
        """
        check_group(group)
        urls = await (self._masters.all() if topic is None else self._masters.of_topic(topic))
        answers = await on_each(
            urls, lambda url: self._context.broker_api.group_offsets(url, group, topic), unanswered
        )
        queues = {
            MessageQueue(offset.topic, broker_name, offset.queue_id): offset
            for broker_name, answer in sorted(answers.items())
            for offset in answer.offsets
        }
        traffic = [
            BrokerTraffic(
                one.topic, broker_name, one.message_count, one.size_bytes, answer.traffic_since
            )
            for broker_name, answer in sorted(answers.items())
            if answer.traffic_since is not None
            for one in answer.traffic
        ]
        behind = replace(group_lag(queues), traffic=traffic)
        if answers.keys() != urls.keys():
            return replace(behind, lag=None, oldest_unconsumed_at=None)
        return behind

    async def lags(
        self,
        *,
        include_system: bool = False,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> dict[str, TotalLag]:
        """Return the lag of all groups in total, by the names of the groups.

        It is the total of :meth:`lag`, by one request for a thousand groups.

        Args:
            include_system: Whether to include system groups.
            unanswered: Collects the brokers that do not answer, each with its error. All lags are
                unknown then. None: an unanswered request raises.
        """

        async def of_broker(url: str) -> Sequence[GroupLagTotal]:
            pages = self._pages(GroupLagList, url, "/v1/group-lags", include_system=include_system)
            try:
                return [total async for page in pages for total in page.lags]
            except NotFoundError as error:
                raise UnavailableError(
                    f"the broker at {url} does not list lags: it is of an earlier version",
                    fix="upgrade it",
                ) from error

        urls = await self._masters.all()
        answers = await on_each(urls, of_broker, unanswered)
        by_group: dict[str, list[GroupLagTotal]] = {}
        for totals in answers.values():
            for total in totals:
                by_group.setdefault(total.group, []).append(total)
        is_whole = answers.keys() == urls.keys()
        return {
            group: total_lag(totals) if is_whole else TotalLag(None, None)
            for group, totals in sorted(by_group.items())
        }

    async def as_of(self, group: str, *, broker_name: str, log_offset: int) -> GroupAsOf:
        """Return *group* at one broker as of an earlier offset of its log.

        Args:
            group: Its name.
            broker_name: The broker; each has a log of its own.
            log_offset: The state is that after all records before it.

        Raises:
            ValidationError: The log does not reach that far.
        """
        check_group(group)
        url = await self._masters.of_broker(broker_name)
        target = target_of(f"{group_path(group)}/as-of", log_offset=log_offset)
        return await self._masters.call(GroupAsOf, "GET", url, target)

    async def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of *group*; each broker stores all of its queues or none.

        Raises:
            ConflictError: A live member reads one of the queues; see :meth:`reset`.
        """
        check_group(group)
        commits: dict[str, list[OffsetCommit]] = {}
        for queue in offsets:
            checked_queue(queue, "offsets")
        for queue, offset in sorted(offsets.items()):
            with checked_request():
                commit = OffsetCommit(topic=queue.topic, queue_id=queue.queue_id, offset=offset)
            commits.setdefault(await self._masters.url_of(queue), []).append(commit)

        api = self._context.broker_api
        await on_each(
            {url: url for url in commits},
            lambda url: api.commit_offsets(url, group, commits[url]),
        )

    async def reset(
        self,
        group: str,
        topic: str,
        to: Literal["earliest", "latest"] | datetime | int,
        *,
        queues: Iterable[MessageQueue] | None = None,
        dry_run: bool = False,
    ) -> dict[MessageQueue, QueueReset]:
        """Reset the offsets of *group* in *topic* to a time, an end, or an offset.

        Members that read the queues stop and continue at the new offset. All brokers are first
        asked whether they can do it.

        Args:
            group: The group.
            topic: The topic.
            to: The new place; an offset is the same number in every queue.
            queues: Only these queues; None: all queues of the topic.
            dry_run: Return the changes without making them.

        Raises:
            ValidationError: The offset is outside one of the queues; nothing was changed.
        """
        check_group(group)
        urls = await self._masters.of_topic(topic)
        ids: dict[str, list[int]] | None = None
        if queues is not None:
            ids = {}
            for queue in queues:
                checked_queue(queue, "queues")
                ids.setdefault(queue.broker_name, []).append(queue.queue_id)
            unknown = sorted(ids.keys() - urls.keys())
            if unknown or not ids:
                raise ValidationError(
                    f"queues: {topic} is not on {', '.join(unknown) or 'any broker'}"
                )
        with checked_request():
            place = ResetToOffset(offset=to) if isinstance(to, int) else to
        names = {url: name for name, url in urls.items()}

        async def ask(url: str, *, dry_run: bool) -> ResetAnswer:
            with checked_request():
                request = OffsetReset(
                    topic=topic,
                    to=place,
                    queue_ids=None if ids is None else ids[names[url]],
                    dry_run=dry_run,
                )
            return await self._masters.call(
                ResetAnswer, "POST", url, f"{group_path(group)}/offsets:reset", request
            )

        asked = urls if ids is None else {name: urls[name] for name in ids}
        answers = await on_each(asked, lambda url: ask(url, dry_run=True))
        if not dry_run:
            answers = await on_each(asked, lambda url: ask(url, dry_run=False))
        return {
            MessageQueue(topic, broker_name, done.queue_id): done
            for broker_name, answer in sorted(answers.items())
            for done in answer.queues
        }

    # Dead letters.

    async def dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> AsyncIterator[HeldDeadLetter]:
        """Iterate over the dead letters of *group*, broker by broker, oldest first.

        Args:
            group: The group.
            topic: Only letters that came from this topic.
            reason: Only letters with this reason.
            since: Only letters that died at this time or later.
            until: Only letters that died before this time.
            unanswered: Collects the brokers that do not answer, each with its error, if another
                broker knows the group. None: an unanswered request raises.
        """
        found = self._dead_letters.of_group(
            group, topic=topic, reason=reason, since=since, until=until, unanswered=unanswered
        )
        async for held in found:
            yield held

    async def dead_letter(
        self, group: str, broker_name: str, dead_letter_id: int
    ) -> DeadLetterDetail:
        """Return one dead letter with its message.

        Raises:
            DeadLetterNotFoundError: It does not exist, or not any more.
        """
        return await self._dead_letters.get(group, broker_name, dead_letter_id)

    async def redrive(
        self,
        group: str,
        *,
        ids: Mapping[str, Sequence[int]] | None = None,
        topic: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        per_second: float | None = None,
        dry_run: bool = False,
        on_step: Callable[[RedriveStep], object] | None = None,
    ) -> RedriveSummary:
        """Send dead letters to their topics of origin; return the counts.

        The call covers the letters that exist when it begins. It skips letters that die again
        meanwhile. If it is interrupted, a second call continues: it skips redriven letters.

        Args:
            group: The group.
            ids: These letters, by broker name; None: those that the other arguments match.
            topic: Letters that came from this topic.
            reason: Letters with this reason.
            since: Letters that died at this time or later.
            until: Letters that died before this time.
            per_second: Maximum number per second, over all brokers.
            dry_run: Return the counts without sending anything.
            on_step: Called after each request with the outcome of each dead letter. It must not use
                the client.
        """
        return await self._dead_letters.redrive(
            group,
            ids=ids,
            topic=topic,
            reason=reason,
            since=since,
            until=until,
            per_second=per_second,
            dry_run=dry_run,
            on_step=on_step,
        )


def total_lag(totals: Sequence[GroupLagTotal]) -> TotalLag:
    """Return the lag of a group of which each broker has said its part."""
    begun = [one for one in totals if one.queue_count != 0]
    known = [one.lag for one in begun if one.lag is not None]
    waiting = [one.oldest_unconsumed_at for one in begun if one.lag != 0]
    is_known = bool(begun) and len(known) == len(begun)
    return TotalLag(
        lag=sum(known) if is_known else None,
        oldest_unconsumed_at=_oldest(waiting),
    )


def group_lag(queues: Mapping[MessageQueue, CommittedOffset]) -> GroupLag:
    """Return the lag of a group with these offsets in *queues*."""
    # A deleted queue has no unread messages, and must not make the total unknown.
    lags = [committed.lag for committed in queues.values() if committed.max_offset is not None]
    known = [lag for lag in lags if lag is not None]
    waiting = [
        c.oldest_unconsumed_at for c in queues.values() if c.lag != 0 and c.max_offset is not None
    ]
    return GroupLag(
        lag=sum(known) if lags and len(known) == len(lags) else None,
        oldest_unconsumed_at=_oldest(waiting),
        queues=queues,
    )


def _oldest(times: Sequence[datetime | None]) -> datetime | None:
    """Return the earliest of *times*; None: there is none, or one is unknown."""
    known = [time for time in times if time is not None]
    return min(known, default=None) if len(known) == len(times) else None
