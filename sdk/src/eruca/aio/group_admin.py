"""Administration of consumer groups: settings, members, positions, dead letters.

A group exists on every broker by itself: each has its own copy of the settings and the positions in
its own queues. What is said about a group as a whole is put together here. Unknown stays None: a
total with an unknown part is unknown.

Source: RocketMQ 5.3, ``DefaultMQAdminExt``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from eruca.aio.cluster.group_api import group_path, unknown_group
from eruca.aio.cluster.masters import Masters, on_each, on_those_that_know
from eruca.aio.cluster.requests import checked_request
from eruca.aio.dead_letters import DeadLetters, HeldDeadLetter, RedriveStep, RedriveSummary
from eruca.aio.http.transport import target_of
from eruca.contract.errors import ErucaError, ValidationError
from eruca.contract.groups import (
    CommittedOffset,
    GroupConfig,
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


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The lag of a group."""

    lag: int | None  # messages to be consumed in all queues there are; None: unknown
    oldest_unconsumed_at: datetime | None  # when the oldest of them was stored
    queues: Mapping[MessageQueue, CommittedOffset]


@checked_calls()
class AsyncGroupAdmin:
    """Consumer groups of one cluster; made by :attr:`AsyncAdmin.groups`."""

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._masters = Masters(context)
        self._dead_letters = DeadLetters(self._masters)

    # Settings and members.

    async def create(
        self,
        group: str,
        *,
        start: Literal["earliest", "latest"] | datetime | None = None,
        retry_max_times: int | None = None,
        retry_policy: RetryPolicy | Literal["rocketmq"] | None = None,
        ordered: bool | None = None,
        consume_enabled: bool | None = None,
        broadcast_enabled: bool | None = None,
        subscription_mode: SubscriptionMode | None = None,
        broker_name: str | None = None,
    ) -> dict[str, GroupConfig]:
        """Create *group*, or change its settings, on every broker; return it by broker name.

        Settings that are None stay as they are; of a new group they are what is said below.

        Args:
            group: Its name.
            start: Where it begins in a topic it meets for the first time; "latest".
            retry_max_times: How often a message is retried before it is a dead letter; 16.
            retry_policy: Delays before retries, a :class:`eruca.CustomizedRetryPolicy` or
                :class:`eruca.ExponentialRetryPolicy`; "rocketmq" for its delay levels.
            ordered: Whether each queue is consumed in order; False.
            consume_enabled: Whether members get anything; True.
            broadcast_enabled: Whether members may be broadcasting; True.
            subscription_mode: Whether members must subscribe to the same; "shared".
            broker_name: On this broker only.
        """
        check_own_group(group)
        named: dict[str, object] = {
            "start": start,
            "retry_max_times": retry_max_times,
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
        """Return *group* as each broker that knows it holds it, by broker name.

        Args:
            group: Its name.
            unanswered: Takes brokers that do not answer, and how, where others know the group;
                None: that is an error.

        Raises:
            GroupNotFoundError: None does.
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
        """Return every group as each broker holds it: by group, then by broker name.

        Args:
            include_system: The system's own as well.
            unanswered: Takes brokers that do not answer, and how; None: that is an error.
        """

        async def of_broker(url: str) -> Sequence[GroupConfig]:
            groups: Sequence[GroupConfig] = []
            cursor: str | None = None
            while True:
                target = target_of(
                    "/v1/groups",
                    cursor=cursor,
                    limit=LIST_LIMIT_MAX,
                    include_system=include_system or None,
                )
                page = await self._masters.call(GroupList, "GET", url, target)
                groups = [*groups, *page.groups]
                cursor = page.next_cursor
                if cursor is None:
                    return groups

        found: dict[str, dict[str, GroupConfig]] = {}
        answers = await on_each(await self._masters.all(), of_broker, unanswered)
        for broker_name, groups in answers.items():
            for config in groups:
                found.setdefault(config.group, {})[broker_name] = config
        return dict(sorted(found.items()))

    async def delete(self, group: str) -> Sequence[str]:
        """Delete *group* and its positions on every broker that knows it; return their names.

        Raises:
            GroupNotFoundError: None does.
            ConflictError: It has live members.
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
        """Return who is in *group*, as each broker that knows it sees it, by broker name.

        Args:
            group: Its name.
            unanswered: Takes brokers that do not answer, and how, where others know the group;
                None: that is an error.
        """
        check_group(group)
        return await on_those_that_know(
            await self._masters.all(),
            lambda url: self._masters.call(MemberList, "GET", url, f"{group_path(group)}/members"),
            unknown_group(group),
            unanswered,
        )

    # Positions.

    async def offsets(
        self, group: str, *, topic: str | None = None
    ) -> dict[MessageQueue, CommittedOffset]:
        """Return where *group* stands: in every queue of *topic*, or wherever it has begun."""
        return dict((await self.lag(group, topic=topic)).queues)

    async def lag(
        self,
        group: str,
        *,
        topic: str | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> GroupLag:
        """Return how far *group* is behind, in all and in each queue.

        Args:
            group: Its name.
            topic: In this topic only.
            unanswered: Takes brokers that do not answer, and how: then it is known of the others'
                queues only, and not in all. None: that is an error.
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
        behind = group_lag(queues)
        if answers.keys() != urls.keys():
            return replace(behind, lag=None, oldest_unconsumed_at=None)
        return behind

    async def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store where *group* stands; each broker stores all of its queues or none.

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
        """Have *group* go on elsewhere in *topic*: at a time, an end, or an offset.

        Members that read the queues now stop, and go on at the new place. All brokers are asked
        first whether it can be done.

        Args:
            group: The group.
            topic: The topic.
            to: Where; an offset is the same number in every queue.
            queues: Only these; None for all of the topic.
            dry_run: Only tell what would happen.

        Raises:
            ValidationError: The offset is not in one of the queues; nothing has been changed.
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
                    f"queues: {topic} is not on {', '.join(unknown) or 'no broker'}"
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
        begin: datetime | None = None,
        end: datetime | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> AsyncIterator[HeldDeadLetter]:
        """Iterate over what *group* gave up on, broker by broker, oldest first.

        Args:
            group: The group.
            topic: Only those that came from this topic.
            reason: Only those with this reason.
            begin: Only those that died then or later.
            end: Only those that died before then.
            unanswered: Takes brokers that do not answer, and how, where others know the group;
                None: that is an error.
        """
        found = self._dead_letters.of_group(
            group, topic=topic, reason=reason, begin=begin, end=end, unanswered=unanswered
        )
        async for held in found:
            yield held

    async def dead_letter(
        self, group: str, broker_name: str, dead_letter_id: int
    ) -> DeadLetterDetail:
        """Return one dead letter with its message.

        Raises:
            DeadLetterNotFoundError: It is not there, or not any more.
        """
        return await self._dead_letters.get(group, broker_name, dead_letter_id)

    async def redrive(
        self,
        group: str,
        *,
        ids: Mapping[str, Sequence[int]] | None = None,
        topic: str | None = None,
        reason: str | None = None,
        begin: datetime | None = None,
        end: datetime | None = None,
        per_second: float | None = None,
        dry_run: bool = False,
        on_step: Callable[[RedriveStep], object] | None = None,
    ) -> RedriveSummary:
        """Send dead letters to where they came from; return how many.

        It ends with what was dead when it began, whatever dies again meanwhile. If it is
        interrupted, a further call goes on: what was redriven is skipped.

        Args:
            group: The group.
            ids: These, by broker name; None for those that the other arguments find.
            topic: Those that came from this topic.
            reason: Those with this reason.
            begin: Those that died then or later.
            end: Those that died before then.
            per_second: How many a second at most, over all brokers.
            dry_run: Only tell what would happen.
            on_step: Called after each request, with what became of each dead letter. It must not
                use the client.
        """
        return await self._dead_letters.redrive(
            group,
            ids=ids,
            topic=topic,
            reason=reason,
            begin=begin,
            end=end,
            per_second=per_second,
            dry_run=dry_run,
            on_step=on_step,
        )


def group_lag(queues: Mapping[MessageQueue, CommittedOffset]) -> GroupLag:
    """Return the lag of a group that stands so in *queues*."""
    # A queue that is gone has nothing to consume, and does not hide what the others have.
    lags = [committed.lag for committed in queues.values() if committed.max_offset is not None]
    known = [lag for lag in lags if lag is not None]
    waiting = [c.oldest_unconsumed_at for c in queues.values() if c.oldest_unconsumed_at]
    return GroupLag(
        lag=sum(known) if lags and len(known) == len(lags) else None,
        oldest_unconsumed_at=min(waiting, default=None),
        queues=queues,
    )
