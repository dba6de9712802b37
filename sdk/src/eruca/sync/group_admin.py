"""Administration of consumer groups: settings, members, offsets, dead letters.

Generated from ``eruca.aio.group_admin`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eruca.aio.group_admin import AsyncGroupAdmin, GroupLag, TotalLag
from eruca.sync.portal import Portal, read_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from eruca.aio.dead_letters import HeldDeadLetter, RedriveStep, RedriveSummary
    from eruca.contract.errors import ErucaError
    from eruca.contract.groups import (
        CommittedOffset,
        GroupAsOf,
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
        return self._portal.call(
            self._twin.create,
            group,
            start=start,
            retries_max=retries_max,
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
        """Return the settings of *group* by broker name, as each broker stores them.

        Args:
            group: Its name.
            unanswered: Collects the brokers that do not answer, each with its error, if another
                broker knows the group. None: an unanswered request raises.

        Raises:
            GroupNotFoundError: No broker knows the group.
        """
        return self._portal.call(self._twin.get, group, unanswered=unanswered)

    def list(
        self, *, include_system: bool = False, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[str, dict[str, GroupConfig]]:
        """Return the settings of all groups: by group, then by broker name.

        Args:
            include_system: Whether to include system groups.
            unanswered: Collects the brokers that do not answer, each with its error. None: an
                unanswered request raises.
        """
        return self._portal.call(
            self._twin.list, include_system=include_system, unanswered=unanswered
        )

    def delete(self, group: str) -> Sequence[str]:
        """Delete *group* and its offsets on every broker that knows it; return their names.

        Raises:
            GroupNotFoundError: No broker knows the group.
            ConflictError: The group has live members.
        """
        return self._portal.call(self._twin.delete, group)

    def members(
        self, group: str, *, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[str, MemberList]:
        """Return the members of *group* by broker name, as each broker sees them.

        Args:
            group: Its name.
            unanswered: Collects the brokers that do not answer, each with its error, if another
                broker knows the group. None: an unanswered request raises.
        """
        return self._portal.call(self._twin.members, group, unanswered=unanswered)

    def offsets(
        self, group: str, *, topic: str | None = None
    ) -> dict[MessageQueue, CommittedOffset]:
        """Return the offsets of *group*: in all queues of *topic*, or in all that have one."""
        return self._portal.call(self._twin.offsets, group, topic=topic)

    def lag(
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
        return self._portal.call(self._twin.lag, group, topic=topic, unanswered=unanswered)

    def lags(
        self, *, include_system: bool = False, unanswered: dict[str, ErucaError] | None = None
    ) -> dict[str, TotalLag]:
        """Return the lag of all groups in total, by the names of the groups.

        It is the total of :meth:`lag`, by one request for a thousand groups.

        Args:
            include_system: Whether to include system groups.
            unanswered: Collects the brokers that do not answer, each with its error. All lags are
                unknown then. None: an unanswered request raises.
        """
        return self._portal.call(
            self._twin.lags, include_system=include_system, unanswered=unanswered
        )

    def as_of(self, group: str, *, broker_name: str, log_offset: int) -> GroupAsOf:
        """Return *group* at one broker as of an earlier offset of its log.

        Args:
            group: Its name.
            broker_name: The broker; each has a log of its own.
            log_offset: The state is that after all records before it.

        Raises:
            ValidationError: The log does not reach that far.
        """
        return self._portal.call(
            self._twin.as_of, group, broker_name=broker_name, log_offset=log_offset
        )

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit offsets of *group*; each broker stores all of its queues or none.

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
        return self._portal.call(
            self._twin.reset, group, topic, to, queues=read_here(queues), dry_run=dry_run
        )

    def dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> Iterator[HeldDeadLetter]:
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
        return self._portal.iterate(
            self._twin.dead_letters(
                group, topic=topic, reason=reason, since=since, until=until, unanswered=unanswered
            )
        )

    def dead_letter(self, group: str, broker_name: str, dead_letter_id: int) -> DeadLetterDetail:
        """Return one dead letter with its message.

        Raises:
            DeadLetterNotFoundError: It does not exist, or not any more.
        """
        return self._portal.call(self._twin.dead_letter, group, broker_name, dead_letter_id)

    def redrive(
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
        return self._portal.call(
            self._twin.redrive,
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
