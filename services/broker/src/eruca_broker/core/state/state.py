"""The broker's state: a fold over control records.

``apply`` is total: any event may follow any other. The same events in the same order give the same
state, on this broker, on a replica, or after every projection has been deleted. A complete snapshot
replaces the whole state. So a log that starts with one needs nothing from before it.

Facts that messages alone determine, such as the length of a queue, are not here but in the consume
queues. Snapshots contain only the part that retention would forget: each queue's next offset.

Each subject folds its own events: topics here, groups in :mod:`.group_state`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Literal

from eruca.contract.limits import QUEUE_COUNT_MAX
from eruca.contract.names import EVENTS_TOPIC, is_derived_topic, is_system_topic
from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionCarried,
    TransactionChecked,
    TransactionDecided,
    TransactionParked,
)
from eruca_broker.core.replication.epochs import EpochTable
from eruca_broker.core.state.dead_letters_state import RedrivenLetters
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.epochs_state import LogEpochs
from eruca_broker.core.state.events import Event
from eruca_broker.core.state.group_events import MembershipBegan
from eruca_broker.core.state.group_state import Groups
from eruca_broker.core.state.lease_events import (
    DeliveriesAcked,
    DeliveriesExtended,
    DeliveriesLeased,
    DeliveriesNacked,
    split_leases,
)
from eruca_broker.core.state.leases import Leases
from eruca_broker.core.state.snapshots import SnapshotItem, StateSnapshot, split_snapshot
from eruca_broker.core.state.timers_events import DeadLettersRedriven, TimersCancelled, TimersFired
from eruca_broker.core.state.topic_events import (
    OrderConfig,
    QueueEnd,
    SnapshotTopic,
    TopicDeleted,
    TopicPut,
)
from eruca_broker.core.state.transactions import Transactions

SNAPSHOT_ITEMS_MAX: Final = 10_000  # per part; about half a megabyte of JSON

Permission = Literal["rw", "r", "w", "none"]
_PERMISSIONS: Final[Mapping[str, Permission]] = {p: p for p in ("rw", "r", "w", "none")}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic on this broker."""

    name: str
    read_queue_count: int
    write_queue_count: int
    permission: Permission
    ordered: bool = False
    created_at: int = 0  # log offset; older records of this name belong to a deleted topic
    order_config: OrderConfig | None = None
    open_queue_count: int = field(init=False, repr=False, compare=False)
    """Number of queues that clients may send to; 0 for topics of the system and of groups."""

    def __post_init__(self) -> None:
        is_open = self.is_writable and not self.is_system and not self.is_derived
        object.__setattr__(self, "open_queue_count", self.write_queue_count if is_open else 0)

    def queue_now(self, queue_id: int) -> int:
        """Return the queue for a message that was accepted for *queue_id* before; it can be read.

        The topic may have fewer queues by now. In RocketMQ it may have none to write to, so that
        nothing new comes; messages accepted before still need a queue.
        """
        return queue_id % (self.write_queue_count or self.read_queue_count or 1)

    @property
    def is_routable(self) -> bool:
        """Return True if name servers get it; if they refused one topic, they would refuse all."""
        widest = max(self.read_queue_count, self.write_queue_count)
        return not self.is_system and widest <= QUEUE_COUNT_MAX

    @property
    def is_readable(self) -> bool:
        """Return True if consumers may read it."""
        return self.permission in ("rw", "r")

    @property
    def is_writable(self) -> bool:
        """Return True if producers may write to it."""
        return self.permission in ("rw", "w")

    @property
    def is_system(self) -> bool:
        """Return True if it belongs to the system."""
        return is_system_topic(self.name)

    @property
    def is_derived(self) -> bool:
        """Return True for a topic of a group's retries or dead letters."""
        return is_derived_topic(self.name)


EVENTS: Final = Topic(EVENTS_TOPIC, 1, 1, "r")


@dataclass(slots=True)
class BrokerState:
    """Topics, groups, transactions; only :meth:`apply` changes them."""

    topics: dict[str, Topic] = field(default_factory=lambda: {EVENTS_TOPIC: EVENTS})
    queue_ends: dict[tuple[str, int], int] = field(default_factory=dict)  # from the last snapshot
    version: int = 0  # log offset of the last change of a topic; only grows
    groups: Groups = field(default_factory=Groups)
    leases: Leases = field(default_factory=Leases)
    runs: int = 0  # of the broker, in which groups changed
    redriven: RedrivenLetters = field(default_factory=RedrivenLetters)
    transactions: Transactions = field(default_factory=Transactions)
    log_id: str = ""  # random, from the log's first snapshot on; empty before that
    log_epochs: LogEpochs = field(default_factory=LogEpochs)
    _parts: list[StateSnapshot] = field(default_factory=list)  # of an incomplete snapshot

    def apply(self, event: Event, log_offset: int) -> None:
        """Fold the event recorded at *log_offset* into the state."""
        match event:
            case TopicPut():
                known = self.topics.get(event.topic)
                if known is None:
                    # A decision made before its name was deleted may have been recorded after that.
                    self._forget_queues(event.topic)
                self.topics[event.topic] = Topic(
                    event.topic,
                    event.read_queue_count,
                    event.write_queue_count,
                    _PERMISSIONS.get(event.permission, "rw"),
                    ordered=event.ordered,
                    created_at=known.created_at if known else log_offset,
                    order_config=event.order_config,
                )
                self.version = log_offset
            case TopicDeleted():
                self.topics.pop(event.topic, None)
                self._forget_queues(event.topic)
                self.version = log_offset
            case MembershipBegan():
                self.runs += 1
            case EpochBegan():
                self.log_epochs.apply(event)
            case DeadLettersRedriven():
                self.redriven.apply(event)
            case TimersFired() | TimersCancelled():
                pass  # pending timers are no part of the state: records set them, not events
            case (
                TransactionBegun()
                | TransactionChecked()
                | TransactionDecided()
                | TransactionParked()
                | TransactionCarried()
            ):
                self.transactions.apply(event, log_offset)
            case StateSnapshot():
                self._collect(event, log_offset)
            case DeliveriesLeased() | DeliveriesAcked() | DeliveriesNacked() | DeliveriesExtended():
                group = self.groups.get(event.group)
                if group is not None:
                    self.leases.apply(event, log_offset, group.offsets, group.locks)
            case _:
                self.groups.apply(event, log_offset)
                self.leases.give_way(event)

    @property
    def epochs(self) -> EpochTable:
        """The epochs of the log."""
        return self.log_epochs.table

    @property
    def store_hosts(self) -> tuple[str, ...]:
        """The store hosts, as ``IP:port``, of all masters that wrote records of the log."""
        return self.log_epochs.store_hosts

    def topic_id(self, topic: Topic) -> str | None:
        """Return the id that distinguishes *topic* from all others of its name, in any log.

        A topic that is deleted and created again has another id, and so has one in a log that
        replaced this one. None: the log has no id yet.
        """
        return f"{self.log_id}-{topic.created_at}" if self.log_id else None

    def committed_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the next offset that a group will read, or None if it never committed one."""
        return self.group_offsets(group).get((topic, queue_id))

    def group_offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        """Return all of a group's committed offsets, by topic and queue."""
        known = self.groups.get(group)
        return {} if known is None else known.offsets

    def copy(self) -> BrokerState:
        """Return an independent copy."""
        return BrokerState(
            dict(self.topics),
            dict(self.queue_ends),
            self.version,
            self.groups.copy(),
            self.leases.copy(),
            self.runs,
            self.redriven.copy(),
            self.transactions.copy(),
            self.log_id,
            self.log_epochs.copy(),
            list(self._parts),
        )

    def snapshot(
        self,
        queue_ends: Iterable[tuple[str, int, int]],
        *,
        items_max: int = SNAPSHOT_ITEMS_MAX,
        more: Iterable[SnapshotItem] = (),
        new_log_id: str = "",
    ) -> list[StateSnapshot]:
        """Return the whole state as events.

        Args:
            queue_ends: Topic, queue and next offset of every queue that ever had a message.
            items_max: The maximum number of items in one part.
            more: Other items of the snapshot.
            new_log_id: The log's id from now on, if it has none yet.
        """
        items = chain(self._items(queue_ends, items_max), more)
        log_id = self.log_id or new_log_id
        return split_snapshot(items, items_max=items_max, runs=self.runs, log_id=log_id)

    def _items(
        self, queue_ends: Iterable[tuple[str, int, int]], items_max: int
    ) -> Iterator[SnapshotItem]:
        for topic in self.topics.values():
            yield SnapshotItem("topics", _snapshot_topic(topic), 1)
        for end in queue_ends:
            yield SnapshotItem("queue_ends", QueueEnd(*end), 1)
        yield from self.groups.snapshot_items(items_max)
        for leases in split_leases(self.leases.snapshot(), items_max=items_max):
            yield SnapshotItem("leases", leases, len(leases.unfinished))
        for piece, weight in self.redriven.pieces(items_max):
            yield SnapshotItem("redriven", piece, weight)
        for transaction in self.transactions:
            yield SnapshotItem("transactions", transaction, 1)
        for epoch in self.log_epochs:
            yield SnapshotItem("epochs", epoch, 1)

    def _collect(self, part: StateSnapshot, log_offset: int) -> None:
        if part.part == 1:
            self._parts = []
        elif part.part != len(self._parts) + 1:
            return  # its first part is before the log's start: not a whole snapshot
        self._parts.append(part)
        if part.part == part.parts:
            self._replace(self._parts)
            self._parts = []
            self.version = log_offset

    def _replace(self, parts: Iterable[StateSnapshot]) -> None:
        self.topics = {EVENTS_TOPIC: EVENTS}
        self.queue_ends = {}
        self.groups = Groups()
        self.leases = Leases()
        self.redriven = RedrivenLetters()
        self.transactions = Transactions()
        self.log_epochs = LogEpochs()
        for part in parts:
            self.runs = part.runs
            self.log_id = part.log_id
            for topic in part.topics:
                self.topics[topic.topic] = Topic(
                    topic.topic,
                    topic.read_queue_count,
                    topic.write_queue_count,
                    _PERMISSIONS.get(topic.permission, "rw"),
                    ordered=topic.ordered,
                    created_at=topic.created_at,
                    order_config=topic.order_config,
                )
            for end in part.queue_ends:
                self.queue_ends[end.topic, end.queue_id] = end.next_offset
            self.groups.load(
                part.group_settings, part.subscriptions, part.group_pieces, part.groups
            )
            for leases in part.leases:
                self.leases.restore(leases)
            for piece in part.redriven:
                self.redriven.load(piece)
            for transaction in part.transactions:
                self.transactions.load(transaction)
            for epoch in part.epochs:
                self.log_epochs.load(epoch)

    def _forget_queues(self, topic: str) -> None:
        for key in [key for key in self.queue_ends if key[0] == topic]:
            del self.queue_ends[key]
        self.groups.forget_topic(topic)
        self.leases.forget_topic(topic)
        self.redriven.forget_topic(topic)


def with_queue(topic: Topic, queue_id: int) -> Topic:
    """Return *topic* with at least the queues up to *queue_id*, as an imported log may need."""
    return replace(
        topic,
        read_queue_count=max(topic.read_queue_count, queue_id + 1),
        write_queue_count=max(topic.write_queue_count, queue_id + 1),
    )


def _snapshot_topic(topic: Topic) -> SnapshotTopic:
    return SnapshotTopic(
        topic.name,
        topic.read_queue_count,
        topic.write_queue_count,
        topic.permission,
        topic.ordered,
        topic.created_at,
        topic.order_config,
    )
