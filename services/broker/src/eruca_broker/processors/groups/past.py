"""Groups as of an earlier log offset: folded again from the log, or unknown with the reason."""

from __future__ import annotations

from eruca.contract.errors import ValidationError
from eruca.contract.groups import GroupAsOf, QueueAsOf
from eruca_broker.core.state.group_state import Group, Queue
from eruca_broker.core.state.past import about_group
from eruca_broker.core.state.state import BrokerState
from eruca_broker.processors.groups.views import subscription
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.state.past_states import UnknownPastError


def check_past(store: MessageStore, log_offset: int) -> None:
    """Check that *log_offset* is in the past: at most the end of what is visible.

    Raises:
        ValidationError: It is not.
    """
    end = store.visible_offset
    if log_offset > end:
        raise ValidationError.at(
            "/query/log_offset",
            f"expected at most {end}, the end of the log, found {log_offset}",
            fix="use the log offset of a message or of an event",
        )


class PastOfGroups:
    """Earlier states of groups on this broker."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def of_group(self, name: str, log_offset: int) -> GroupAsOf:
        """Return a group as it was after all records before *log_offset*.

        Raises:
            ValidationError: The log does not reach that far yet.
            OverloadedError: Too many such questions wait.
        """
        check_past(self._store, log_offset)
        try:
            past = await self._store.past.before(log_offset, about_group(name))
        except UnknownPastError as error:
            return GroupAsOf(group=name, log_offset=log_offset, unknown=str(error), exists=None)
        group = past.state.groups.get(name)
        if group is None:
            return GroupAsOf(
                group=name,
                log_offset=log_offset,
                unknown=None,
                exists=False,
                snapshot_log_offset=past.snapshot_offset,
            )
        queues = sorted(group.offsets.keys() | group.starts.keys() | group.locks.keys())
        return GroupAsOf(
            group=name,
            log_offset=log_offset,
            unknown=None,
            exists=True,
            consume_enabled=group.settings.consume_enabled,
            subscriptions=[subscription(entry) for entry in group.subscriptions],
            queues=[await self._queue(past.state, group, queue, log_offset) for queue in queues],
            snapshot_log_offset=past.snapshot_offset,
        )

    async def _queue(
        self, state: BrokerState, group: Group, queue: Queue, log_offset: int
    ) -> QueueAsOf:
        topic, queue_id = queue
        leases = state.leases.of_queue(group.name, queue)
        lock = group.locks.get(queue)
        position, end = group.position(queue), await self._end(queue, log_offset)
        return QueueAsOf(
            topic=topic,
            queue_id=queue_id,
            committed_offset=group.offsets.get(queue),
            max_offset=end,
            lag=None if position is None or end is None else max(end - position, 0),
            unfinished_count=0 if leases is None else len(leases.unfinished),
            owner=None if lock is None else lock.owner.client_id,
        )

    async def _end(self, queue: Queue, log_offset: int) -> int | None:
        """Return a queue's next offset then; None: the queue is now one of a later topic."""
        topic = self._store.state.topics.get(queue[0])
        if topic is None or topic.created_at > log_offset:
            return None
        return await self._store.past.queue_end(*queue, log_offset, topic.created_at)
