"""Administration of consumer groups: settings, members, positions, dead letters.

Generated from ``eruca.aio.group_admin`` by ``sdk/tools/generate_sync.py``; change that one.
How it works and which threads may do what is said in :mod:`eruca.sync.portal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eruca.aio.group_admin import AsyncGroupAdmin, GroupLag
from eruca.sync.portal import Portal, read_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from eruca.aio.dead_letters import HeldDeadLetter, RedriveStep, RedriveSummary
    from eruca.contract.errors import ErucaError
    from eruca.contract.groups import (
        CommittedOffset,
        GroupConfig,
        MemberList,
        QueueReset,
        RetryPolicy,
        SubscriptionMode,
    )
    from eruca.contract.retries import DeadLetterDetail
    from eruca.core.messages.message_queue import MessageQueue


class GroupAdmin:
    """Consumer groups of one cluster; made by :attr:`Admin.groups`."""

    def __init__(self, portal: Portal, twin: AsyncGroupAdmin) -> None:
        self._portal = portal
        self._twin = twin

    def create(
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
        return self._portal.call(
            self._twin.create,
            group,
            start=start,
            retry_max_times=retry_max_times,
            retry_policy=retry_policy,
            ordered=ordered,
            consume_enabled=consume_enabled,
            broadcast_enabled=broadcast_enabled,
            subscription_mode=subscription_mode,
            broker_name=broker_name,
        )

    def get(
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
        return self._portal.call(self._twin.get, group, unanswered=unanswered)

    def list(
        self, *, include_system: bool = False, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[str, dict[str, GroupConfig]]:
        """Return every group as each broker holds it: by group, then by broker name.

        Args:
            include_system: The system's own as well.
            unanswered: Takes brokers that do not answer, and how; None: that is an error.
        """
        return self._portal.call(
            self._twin.list, include_system=include_system, unanswered=unanswered
        )

    def delete(self, group: str) -> Sequence[str]:
        """Delete *group* and its positions on every broker that knows it; return their names.

        Raises:
            GroupNotFoundError: None does.
            ConflictError: It has live members.
        """
        return self._portal.call(self._twin.delete, group)

    def members(
        self, group: str, *, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[str, MemberList]:
        """Return who is in *group*, as each broker that knows it sees it, by broker name.

        Args:
            group: Its name.
            unanswered: Takes brokers that do not answer, and how, where others know the group;
                None: that is an error.
        """
        return self._portal.call(self._twin.members, group, unanswered=unanswered)

    def offsets(
        self, group: str, *, topic: str | None = None
    ) -> dict[MessageQueue, CommittedOffset]:
        """Return where *group* stands: in every queue of *topic*, or wherever it has begun."""
        return self._portal.call(self._twin.offsets, group, topic=topic)

    def lag(
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
        return self._portal.call(self._twin.lag, group, topic=topic, unanswered=unanswered)

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Store where *group* stands; each broker stores all of its queues or none.

        Raises:
            ConflictError: A live member reads one of the queues; see :meth:`reset`.
        """
        self._portal.call(self._twin.commit, group, offsets)

    def reset(
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
        return self._portal.call(
            self._twin.reset, group, topic, to, queues=read_here(queues), dry_run=dry_run
        )

    def dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        reason: str | None = None,
        begin: datetime | None = None,
        end: datetime | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> Iterator[HeldDeadLetter]:
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
        return self._portal.iterate(
            self._twin.dead_letters(
                group, topic=topic, reason=reason, begin=begin, end=end, unanswered=unanswered
            )
        )

    def dead_letter(self, group: str, broker_name: str, dead_letter_id: int) -> DeadLetterDetail:
        """Return one dead letter with its message.

        Raises:
            DeadLetterNotFoundError: It is not there, or not any more.
        """
        return self._portal.call(self._twin.dead_letter, group, broker_name, dead_letter_id)

    def redrive(
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
        return self._portal.call(
            self._twin.redrive,
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
