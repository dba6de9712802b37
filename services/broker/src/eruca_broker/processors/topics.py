"""Topics: their settings, and their creation by the first send.

Source: RocketMQ 5.3, ``TopicConfigManager``, ``AdminBrokerProcessor``. Unlike there, the broker
itself enforces a topic's permission on sending and pulling, not only clients that respect the
route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

from eruca.contract import topics
from eruca.contract.errors import (
    ConflictError,
    DerivedTopicError,
    ErucaError,
    PermissionDeniedError,
    QueueNotFoundError,
    SystemTopicError,
    TopicNotFoundError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.errors.shown import shown
from eruca.contract.limits import BROKER_TOPIC_COUNT_MAX, QUEUE_COUNT_DEFAULT
from eruca.contract.names import (
    TOPIC_NAME_FIX,
    NameFault,
    broker_topic_fault,
    group_of_derived,
    is_derived_topic,
    is_system_topic,
)
from eruca.contract.topics import TopicConfig, TopicSettings
from eruca_broker.core.state.events import TopicDeleted, TopicPut
from eruca_broker.core.state.state import Topic
from eruca_broker.core.state.topic_events import OrderConfig
from eruca_broker.processors.name_pages import page_of
from eruca_broker.processors.standings import unread_count
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.counts import counted

UNREAD_TOLD_MAX: Final = 100  # queues of groups that one refusal names
ORDERED_RETRY_SECONDS: Final = 5.0  # a heartbeat: by then its broker may be back
_KEPT: Final = ("read_queue_count", "write_queue_count", "permission", "ordered")


class NamedQueue(Protocol):
    """A queue in the form of an entry of a request's list."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def queue_id(self) -> int:
        """The queue id."""


class Topics:
    """The broker's topics, as requests see them."""

    def __init__(
        self,
        store: MessageStore,
        *,
        auto_create: bool,
        count_max: int,
        on_change: Callable[[], None],
        changes_known: Callable[[], Awaitable[None]],
        on_delete: Callable[[str], None],
        ordered_at: Callable[[str], Sequence[str]],
    ) -> None:
        self._store = store
        self._auto_create = auto_create
        self._count_max = count_max
        self._on_change = on_change  # the route differs from the one that the name servers know
        self._changes_known = changes_known  # waits for the name servers, for a limited time
        self._on_delete = on_delete  # requests that wait for the topic get an error
        self._ordered_at = ordered_at  # other brokers that have it with an order of their own
        self._changing = asyncio.Lock()  # look, then change: one request at a time

    def get(self, name: str, *, include_system: bool = False) -> Topic:
        """Return a topic.

        Args:
            name: Its name.
            include_system: Whether it may be a topic that the system keeps for itself, such as half
                messages or waiting messages. These can only be read, and only by requests with this
                flag.

        Raises:
            TopicNotFoundError: There is none of this name.
            ValidationError: The name is invalid.
        """
        topic = self._store.state.topics.get(name)
        if topic is None and include_system:
            topic = self._kept_by_the_system(name)
        if topic is None:
            check_topic_name(name)
            raise TopicNotFoundError(
                f"this broker has no topic {name!r}", fix=TopicNotFoundError.fix_of(name)
            )
        return topic

    def page(
        self,
        *,
        after: str | None,
        limit: int,
        include_system: bool,
        sees: Callable[[str], bool] | None = None,
    ) -> tuple[list[Topic], str | None]:
        """Return up to *limit* topics behind *after*, by name, and where the next page begins.

        Args:
            after: The last name of the preceding page; None: there is none.
            limit: The maximum number.
            include_system: Whether system topics are listed, too.
            sees: Returns whether the caller may see a topic; None: it may see all.
        """
        topics = self._store.state.topics
        names = (n for n in topics if include_system or not topics[n].is_system)
        chosen, following = page_of(names, after=after, limit=limit, sees=sees)
        return [topics[name] for name in chosen], following

    async def put(
        self, name: str, settings: TopicSettings, *, is_forced: bool = False
    ) -> tuple[Topic, bool]:
        """Create a topic, or change the named settings of an existing one; durable on return.

        Returns the topic and whether it is new, once name servers know of it, or after a second.
        Unchanged settings cause no write.

        Args:
            name: Its name.
            settings: The settings of a new topic; for an existing one, the settings to replace.
            is_forced: Whether queues with unread messages may be removed. Their messages stay
                stored, and count as lag, but cannot be read.

        Raises:
            ValidationError: It would have more queues to write to than to read.
            SystemTopicError: It is the system's, or follows a group.
            ConflictError: The maximum of topics is reached, or the existing order config is newer,
                or groups have not read a queue that would be removed.
        """
        self._refuse_system(name)
        check_topic_name(name)
        async with self._changing:
            known = self._store.state.topics.get(name)
            settings = _with_what_is_not_named(settings, known)
            settings.check_counts()
            if known is not None and not is_forced:
                self._refuse_hiding(known, settings.read_queue_count)
            wanted = TopicPut(
                name,
                settings.read_queue_count,
                settings.write_queue_count,
                settings.permission,
                settings.ordered,
                _order_config(name, settings, known),
            )
            if known is None:
                self._check_room(name, self._count_max)
            if known is None or _put_of(known) != wanted:
                await self._store.change(wanted)
                self._on_change()
            topic = self._store.state.topics[name]
        await self._changes_known()
        return topic, known is None

    async def delete(self, name: str) -> None:
        """Delete a topic with its queues and every group's offsets in them; durable on return.

        Name servers know of it then, or a second has passed.
        A topic of the same name created later starts at offset 0 again.

        Raises:
            SystemTopicError: It is the system's.
            ConflictError: It follows a group that exists.
        """
        if is_derived_topic(name):
            self._refuse_to_leave_group(name)
        else:
            self._refuse_system(name)
        await self.remove(name)
        await self._changes_known()

    async def remove(self, name: str) -> None:
        """Delete a topic, or one that follows a group; durable on return."""
        async with self._changing:
            self.get(name)
            await self._store.change(TopicDeleted(name))
            self._on_change()
            self._on_delete(name)

    def for_sending(self, name: str, queue_id: int | None) -> Topic:
        """Return the topic to send to, which is not created yet if this send creates it.

        Raises:
            SystemTopicError: Only the broker writes to it; for a group's retries and dead letters
                it is a DerivedTopicError.
            TopicNotFoundError: It does not exist, and sending does not create it.
            PermissionDeniedError: It is not writable.
            QueueNotFoundError: It has no queue *queue_id* to write to.
            UnavailableError: It does not exist here, and other brokers have it as ordered.
        """
        topic = self._store.state.topics.get(name)
        if topic is not None and 0 <= (queue_id or 0) < topic.open_queue_count:
            return topic
        if topic is None or topic.is_system or topic.is_derived:
            topic = self._topic_to_be(name)
        if not topic.is_writable:
            raise PermissionDeniedError(
                f"topic {name!r} is not writable: its permission is {topic.permission!r}"
            )
        if not topic.write_queue_count:  # RocketMQ allows that for a topic that is being drained
            raise PermissionDeniedError(
                f"topic {name!r} is not writable: it has no queues to write to",
                fix="set the topic's write_queue_count to 1 or more",
            )
        if queue_id is not None and not 0 <= queue_id < topic.write_queue_count:
            raise QueueNotFoundError(
                f"expected a writable queue of topic {name!r}, which has 0 to "
                f"{topic.write_queue_count - 1} here, found {queue_id}"
            )
        return topic

    async def created(self, topic: Topic, *, is_for_group: bool = False) -> Topic:
        """Return *topic* as it is in the store, created if it did not exist.

        Args:
            topic: The topic to create.
            is_for_group: Whether it takes a group's unconsumed messages. These must be stored, or
                the group could not move on. So only the limit of name servers applies.

        Raises:
            ConflictError: The maximum of topics is reached.
        """
        known = self._store.state.topics.get(topic.name)
        if known is not None:
            return known
        async with self._changing:
            if topic.name not in self._store.state.topics:
                count_max = BROKER_TOPIC_COUNT_MAX if is_for_group else self._count_max
                self._check_room(topic.name, count_max)
                await self._store.change(_put_of(topic))
                self._on_change()
        return self._store.state.topics[topic.name]

    def for_pulling(self, name: str, queue_id: int, *, include_system: bool = False) -> Topic:
        """Return the topic if its queue is readable; *include_system* is as in :meth:`get`.

        Raises:
            TopicNotFoundError: There is none of this name.
            PermissionDeniedError: It is not readable.
            QueueNotFoundError: It has no queue *queue_id* to read.
        """
        topic = self.get(name, include_system=include_system)
        if not topic.is_readable:
            raise PermissionDeniedError(
                f"topic {name!r} is not readable: its permission is {topic.permission!r}"
            )
        self.check_queue(topic, queue_id)
        return topic

    def check_for_pulling(self, queues: Iterable[NamedQueue]) -> None:
        """Raise as :meth:`for_pulling` does for the first of a request's queues that is refused.

        ``errors`` points at all queues with the same fault, so that the client can continue without
        them.
        """
        faults: dict[int, ErucaError] = {}
        for index, queue in enumerate(queues):
            try:
                self.for_pulling(queue.topic, queue.queue_id)
            except ErucaError as error:
                faults[index] = error
        if faults:
            first = next(iter(faults.values()))
            first.errors = [
                {"pointer": f"/body/queues/{index}", "detail": fault.detail}
                for index, fault in faults.items()
                if type(fault) is type(first)
            ]
            raise first

    def check_queue(self, topic: Topic, queue_id: int) -> None:
        """Raise QueueNotFoundError if *topic* has no queue *queue_id* to read."""
        if not 0 <= queue_id < topic.read_queue_count:
            raise QueueNotFoundError(
                f"expected a readable queue of topic {topic.name!r}, which has 0 to "
                f"{topic.read_queue_count - 1} here, found {queue_id}"
            )

    def _refuse_hiding(self, topic: Topic, read_queue_count: int) -> None:
        """Raise ConflictError if groups have unread messages in queues that would be removed."""
        hidden = range(read_queue_count, topic.read_queue_count)
        unread = [
            (queue_id, group.name, count)
            for queue_id in hidden
            for group in self._store.state.groups.values()
            if (count := unread_count(self._store, group, (topic.name, queue_id)))
        ]
        if unread:
            total = sum(count for _, _, count in unread)
            raise ConflictError(
                f"topic {topic.name!r} keeps its {topic.read_queue_count} readable queues: the "
                f"queues to remove contain {total} unread messages of groups",
                errors=[
                    {
                        "pointer": "/body/read_queue_count",
                        "detail": f"group {group!r} has {count} unread messages in queue "
                        f"{queue_id}",
                    }
                    for queue_id, group, count in unread[:UNREAD_TOLD_MAX]
                ],
                fix="lower write_queue_count first, wait until the groups have read the queues, "
                "then lower read_queue_count; or set force=true to leave the messages unread",
            )

    def _refuse_to_leave_group(self, name: str) -> None:
        group = group_of_derived(name)
        if group in self._store.state.groups:
            count = sum(
                end - first
                for first, end in (
                    self._store.queues.range(name, queue_id)
                    for queue_id in range(self._store.queues.count(name))
                )
            )
            raise ConflictError(
                f"topic {name!r} is not deleted: it belongs to group {group!r}, and contains "
                f"{counted(count, 'message')}",
                fix=f"delete the group, which deletes its retries: eruca group delete {group}; "
                "dead letters stay until retention deletes them",
            )

    def _kept_by_the_system(self, name: str) -> Topic | None:
        count = self._store.queues.count(name) if is_system_topic(name) else 0
        return Topic(name, count, count, "r") if count else None

    def _check_room(self, name: str, count_max: int) -> None:
        if len(self._store.state.topics) >= count_max:
            raise ConflictError(
                f"topic {name!r} is not created: topics_max ({count_max}) is reached",
                fix="delete topics, or raise ERUCA_BROKER_TOPICS_MAX",
            )

    def _topic_to_be(self, name: str) -> Topic:
        self._refuse_system(name)
        if not self._auto_create:
            return self.get(name)
        check_topic_name(name)
        if places := self._ordered_at(name):
            where = ", ".join(places)
            raise UnavailableError(
                f"a send does not create topic {name!r} here: it is ordered on {where}",
                fix=f"send to {where}, or retry when it is back; to create the topic here too: "
                f"PUT /v1/topics/{name}",
                retry_after_seconds=ORDERED_RETRY_SECONDS,
            )
        return Topic(name, QUEUE_COUNT_DEFAULT, QUEUE_COUNT_DEFAULT, "rw")

    def _refuse_system(self, name: str) -> None:
        if is_system_topic(name):
            raise SystemTopicError(f"topic {name!r} belongs to the system")
        if is_derived_topic(name):
            raise DerivedTopicError.of(name)


def _with_what_is_not_named(settings: TopicSettings, known: Topic | None) -> TopicSettings:
    """Return all settings: those that are not named are unchanged, or a new topic's defaults."""
    named = settings.model_fields_set
    if known is not None:
        held = {name: getattr(known, name) for name in _KEPT if name not in named}
        return settings.model_copy(update=held)
    return settings.with_fitting_counts()


def topic_config(topic: Topic) -> TopicConfig:
    """Return *topic* in the form of the contract."""
    return TopicConfig(
        topic=topic.name,
        read_queue_count=topic.read_queue_count,
        write_queue_count=topic.write_queue_count,
        permission=topic.permission,
        ordered=topic.ordered,
        order_config=_shown_order(topic.order_config),
        is_system=topic.is_system,
    )


def _order_config(name: str, settings: TopicSettings, known: Topic | None) -> OrderConfig | None:
    """Return the topic's new order config."""
    held = None if known is None else known.order_config
    wanted = settings.order_config
    if wanted is None:
        return held if settings.ordered else None
    if held is not None and wanted.version < held.version:
        raise ConflictError(
            f"order_config: expected version {held.version} or later of topic {name!r}, found "
            f"{wanted.version}",
            fix="get the topic, and give its order config the next version",
        )
    return OrderConfig(wanted.version, tuple(sorted(wanted.queues.items())))


def _shown_order(config: OrderConfig | None) -> topics.OrderConfig | None:
    if config is None:
        return None
    return topics.OrderConfig(version=config.version, queues=dict(config.queues))


def check_topic_name(name: str) -> None:
    """Raise ValidationError if *name* is not a possible name of a topic."""
    fault = broker_topic_fault(name)
    if fault is not None:
        raise name_error("topic", name, fault, fix=TOPIC_NAME_FIX)


def name_error(kind: str, name: str, fault: NameFault, *, fix: str) -> ValidationError:
    """Return the error for a *name* in the path that is not a possible name of a topic or group."""
    detail = f"{kind}: {shown(name)!r} {fault.said}"
    return ValidationError(detail, errors=[{"pointer": f"/path/{kind}", "detail": detail}], fix=fix)


def _put_of(topic: Topic) -> TopicPut:
    return TopicPut(
        topic.name,
        topic.read_queue_count,
        topic.write_queue_count,
        topic.permission,
        topic.ordered,
        topic.order_config,
    )
