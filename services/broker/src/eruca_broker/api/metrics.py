"""The broker's own metrics, read from plain attributes at each scrape.

They cost nothing per message: a batch adds its size once. Like an endpoint, each class declares the
parts that it reads by their types.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from eruca.contract.replication import ReplicationRole, ReplicationStatus
from eruca_broker.processors.budgets import ConsumeBudget, SendBudget
from eruca_broker.processors.dead_letters import DeadLetters
from eruca_broker.processors.deliveries.deliveries import Deliveries
from eruca_broker.processors.groups.lags import GroupLags
from eruca_broker.processors.groups.members import Members
from eruca_broker.processors.groups.queue_locks import QueueLocks
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.processors.pull_message import Puller
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.retries import Retries
from eruca_broker.processors.send_message import APPEND_BUCKETS, Sender
from eruca_broker.processors.timers import Timers
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.scrub import Scrub
from eruca_broker.store.tiering.scrub import TierScrub
from eruca_broker.store.tiering.tiering import Tiering

REPLICA_ROLES: Final[tuple[ReplicationRole, ...]] = (
    "master",
    "taking over",
    "standby",
    "demoted",
)


class LogMetrics(Collector):
    """The log and its projections."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        store = self._store
        end = store.log_max_offset
        yield _gauge(
            "eruca_broker_log_min_offset", "Log offset of the log's beginning", store.log_min_offset
        )
        yield _gauge("eruca_broker_log_max_offset", "Log offset of the log's end", end)
        yield _gauge("eruca_broker_log_segments", "Segments of the log", store.segment_count)
        yield _gauge(
            "eruca_broker_unflushed_bytes",
            "Bytes of the log that a power failure would lose",
            end - store.flushed_offset,
        )
        yield _gauge("eruca_broker_disk_used_ratio", "Used part of the disk", store.disk_used_ratio)
        yield _gauge(
            "eruca_broker_writable", "1 while sends are accepted", int(store.refusal is None)
        )
        behind = GaugeMetricFamily(
            "eruca_broker_projection_behind_bytes",
            "Bytes of the log that a projection has not read",
            labels=["projection"],
        )
        failing = GaugeMetricFamily(
            "eruca_broker_projection_failing",
            "1 while a projection lacks entries that could not be written",
            labels=["projection"],
        )
        for projection in store.projections():
            behind.add_metric([projection.name], max(end - projection.log_offset, 0))
            failing.add_metric([projection.name], int(projection.failure is not None))
        yield behind
        yield failing
        yield _counter(
            "eruca_broker_damaged_reads",
            "Damaged messages found by reads of queues, counted at each read",
            store.queues.damage_count,
        )
        yield _counter(
            "eruca_broker_filter_evaluations",
            "Messages on which a condition on properties was evaluated",
            store.queues.evaluated_count,
        )
        yield _counter(
            "eruca_broker_filter_evaluations_spared",
            "Messages that were passed over because an earlier reader's condition excluded them",
            store.queues.spared_count,
        )


class ColdMetrics(Collector):
    """Reads of what is not in memory."""

    def __init__(self, store: MessageStore) -> None:
        self._cold = store.cold

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        cold = self._cold
        yield _counter(
            "eruca_broker_cold_reads",
            "Reads of the store that a thread did because the bytes were not in memory",
            cold.count,
        )
        yield _counter("eruca_broker_cold_read_bytes", "Bytes of these reads", cold.size)
        yield _gauge(
            "eruca_broker_cold_reads_waiting",
            "Such reads that wait for their turn or for the disk",
            cold.waiting_count,
        )
        yield _counter(
            "eruca_broker_cold_reads_on_loop",
            "Reads that stopped the event loop, since the bytes left memory again and again",
            cold.on_loop_count,
        )
        yield _counter(
            "eruca_broker_major_faults",
            "Pages that the process had to wait for because they were not in memory",
            resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
        )


class ScrubMetrics(Collector):
    """The search for damage."""

    def __init__(self, scrub: Scrub) -> None:
        self._scrub = scrub

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        scrub = self._scrub
        yield _gauge(
            "eruca_broker_damaged_records",
            "Damaged records of the log found by the scrub",
            scrub.damaged_count,
        )
        yield _gauge(
            "eruca_broker_scrub_offset", "Log offset that the scrub has reached", scrub.offset
        )
        yield _counter(
            "eruca_broker_scrub_rounds",
            "Number of times that the scrub read the whole log",
            scrub.rounds,
        )


class TierMetrics(Collector):
    """The tier."""

    def __init__(self, tiering: Tiering, scrub: TierScrub | None) -> None:
        self._tiering = tiering
        self._scrub = scrub

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        tiering, cache, manifest = self._tiering, self._tiering.cache, self._tiering.manifest
        if manifest is not None and manifest.min_offset is not None:
            yield _gauge(
                "eruca_broker_tier_min_offset",
                "Log offset of the tier's beginning",
                manifest.min_offset,
            )
        yield _gauge(
            "eruca_broker_tier_behind_bytes",
            "Bytes of closed segments that the tier does not have yet",
            tiering.behind_bytes,
        )
        yield _gauge(
            "eruca_broker_tier_failing",
            "1 while the tier cannot be brought up to date",
            int(tiering.failure is not None),
        )
        yield _counter(
            "eruca_broker_tier_failures", "Steps of the tier that failed", tiering.failure_count
        )
        yield _counter(
            "eruca_broker_tier_uploaded_bytes",
            "Bytes of segments that were uploaded",
            tiering.uploaded_size,
        )
        yield _counter(
            "eruca_broker_tier_fetched_bytes",
            "Bytes that were fetched from the tier for readers",
            cache.fetched_size,
        )
        yield _counter(
            "eruca_broker_tier_read_messages",
            "Messages that were read from the tier",
            tiering.reader.read_count,
        )
        yield _gauge("eruca_broker_tier_cache_bytes", "Bytes in the tier's cache", cache.size)
        yield _gauge(
            "eruca_broker_tier_missing_objects",
            "Objects of the tier that are missing",
            tiering.faults.missing_count,
        )
        yield _gauge(
            "eruca_broker_tier_damaged_objects",
            "Objects of the tier that differ from what was uploaded, found by its scrub",
            tiering.faults.damaged_count,
        )
        if (scrub := self._scrub) is not None:
            yield _counter(
                "eruca_broker_tier_repaired_objects",
                "Objects of the tier that its scrub has repaired",
                scrub.repaired_count,
            )
            yield _counter(
                "eruca_broker_tier_scrub_rounds",
                "Number of times that the scrub read the whole tier",
                scrub.rounds,
            )
        yield _counter(
            "eruca_broker_tier_damaged_reads",
            "Reads in which an object of the tier was not as it was uploaded",
            cache.damaged_count,
        )


class ReplicationMetrics(Collector):
    """The broker's part in its group of replicas; nothing for a broker without replicas."""

    def __init__(self, replication: Replication, settings: BrokerSettings) -> None:
        self._replication = replication
        self._broker = settings.name
        self._keep_bytes = settings.replica_keep_bytes

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        status = self._replication.status()
        if status.role == "standalone":
            return
        role = self._family("role", "1 for the replica's present role", "role")
        for name in REPLICA_ROLES:
            role.add_metric([self._broker, name], int(name == status.role))
        yield role
        epoch = self._family("epoch", "Epoch of the master that the replica is, or follows")
        epoch.add_metric([self._broker], status.epoch)
        yield epoch
        if status.following is None:
            yield from self._of_master(status)
        elif (skew := status.following.clock_skew_seconds) is not None:
            family = self._family("clock_skew_seconds", "The replica's clock minus its master's")
            family.add_metric([self._broker], skew)
            yield family

    def _of_master(self, status: ReplicationStatus) -> Iterator[Metric]:
        copies = self._family("copies", "Replicas that hold a message before it is visible")
        copies.add_metric([self._broker], len(status.in_sync))
        yield copies
        behind = self._family(
            "replica_behind_bytes",
            "Bytes of the log that a replica has not acknowledged",
            "replica",
        )
        left = self._family(
            "replica_keep_left_bytes",
            "Bytes that a replica may fall further behind before retention stops waiting for it",
            "replica",
        )
        for replica in status.replicas:
            labels = [self._broker, str(replica.replica_id)]
            behind.add_metric(labels, replica.behind_bytes)
            left.add_metric(labels, self._keep_bytes - replica.behind_bytes)
        yield behind
        yield left

    @staticmethod
    def _family(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"eruca_broker_{name}", meaning, labels=["broker", *labels])


class TrafficMetrics(Collector):
    """Stored and pulled messages."""

    def __init__(
        self, store: MessageStore, sender: Sender, puller: Puller, work: GroupWork
    ) -> None:
        self._store = store
        self._sender = sender
        self._puller = puller
        self._consumption = work.consumption

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        sent, pulled = self._sender.counts, self._puller.counts
        yield _counter("eruca_broker_messages_in", "Messages stored", sent.messages)
        yield _counter("eruca_broker_bytes_in", "Bytes of records stored", sent.bytes)
        yield _counter("eruca_broker_messages_out", "Messages pulled", pulled.messages)
        yield _counter("eruca_broker_bytes_out", "Bytes of records pulled", pulled.bytes)
        yield from self._by_topic()
        yield from self._by_group()
        yield _counter("eruca_broker_pulls_held", "Pulls that were held", pulled.held)
        latency = HistogramMetricFamily(
            "eruca_broker_append_seconds", "Time from an append to its durability"
        )
        bounds = [*map(str, APPEND_BUCKETS), "+Inf"]
        latency.add_metric(
            [],
            list(zip(bounds, accumulate(sent.append_buckets), strict=True)),
            sent.append_seconds,
        )
        yield latency

    def _by_topic(self) -> Iterator[Metric]:
        """Yield the traffic of each topic; further ones are ``(others)``."""
        topics = self._store.state.topics
        for direction, what, flows in (
            ("in", "stored", self._sender.counts.by_topic),
            ("out", "pulled", self._puller.counts.by_topic),
        ):
            messages = CounterMetricFamily(
                f"eruca_broker_topic_messages_{direction}",
                f"Messages of a topic {what}",
                labels=["topic"],
            )
            size = CounterMetricFamily(
                f"eruca_broker_topic_bytes_{direction}",
                f"Bytes of records of a topic {what}",
                labels=["topic"],
            )
            for topic, flow in flows.items(topics.__contains__):
                messages.add_metric([topic], flow.messages)
                size.add_metric([topic], flow.bytes)
            yield messages
            yield size

    def _by_group(self) -> Iterator[Metric]:
        """Yield what each group took over of each topic; further pairs are ``(others)``."""
        topics, groups = self._store.state.topics, self._store.state.groups
        labels = ["group", "topic"]
        messages = CounterMetricFamily(
            "eruca_broker_group_committed_messages",
            "Messages that a group took over: its commits moved its positions past them, or it "
            "acknowledged them",
            labels=labels,
        )
        size = CounterMetricFamily(
            "eruca_broker_group_committed_bytes",
            "Bytes of records that a group took over: of the messages that its commits moved its "
            "positions past, whether it read them or not, and of those that it acknowledged",
            labels=labels,
        )
        for pair, flow in self._consumption.flows.items(
            lambda key: key[0] in groups and key[1] in topics
        ):
            messages.add_metric(pair, flow.messages)
            size.add_metric(pair, flow.bytes)
        yield messages
        yield size
        yield _counter(
            "eruca_broker_group_committed_unsized_messages",
            "Messages taken over by groups whose bytes are not counted: they were deleted before, "
            "their queue could not be read, or a commit moved past too many at once",
            self._consumption.unsized_count,
        )


class LaterMetrics(Collector):
    """Delayed messages, retries and dead letters."""

    def __init__(
        self, store: MessageStore, timers: Timers, retries: Retries, dead_letters: DeadLetters
    ) -> None:
        self._store = store
        self._timers = timers
        self._retries = retries
        self._dead_letters = dead_letters

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        pending, counts = self._store.timers, self._timers.counts
        yield _gauge(
            "eruca_broker_timers", "Scheduled messages and retries not delivered yet", len(pending)
        )
        yield _counter("eruca_broker_timers_fired", "Delayed messages delivered", counts.fired)
        yield _counter(
            "eruca_broker_timers_late_seconds",
            "Sum of the lateness of delayed messages",
            counts.late_ms_sum / 1000,
        )
        yield _counter(
            "eruca_broker_timers_carried",
            "Delayed messages stored again by retention",
            counts.carried,
        )
        yield _counter(
            "eruca_broker_timers_dropped",
            "Delayed messages that could not be delivered",
            counts.dropped,
        )
        retries = self._retries
        yield _counter("eruca_broker_retries", "Messages sent back", retries.retried_count)
        yield _counter(
            "eruca_broker_dead_letters", "Messages that became dead letters", retries.dead_count
        )
        yield _counter(
            "eruca_broker_dead_letters_redriven",
            "Dead letters redriven",
            self._dead_letters.redriven_count,
        )


class LimitMetrics(Collector):
    """Usage of everything that has a limit."""

    def __init__(
        self, store: MessageStore, held: HeldRequests, senders: SendBudget, consumers: ConsumeBudget
    ) -> None:
        self._store = store
        self._held = held
        self._senders = senders
        self._consumers = consumers

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        held, senders, consumers = self._held, self._senders, self._consumers
        yield _gauge("eruca_broker_held_requests", "Held requests", len(held))
        yield _gauge("eruca_broker_held_requests_max", "Maximum held requests", held.size_max)
        for prefix, whose, budget in (
            ("", "senders", senders),
            ("consume_", "consumers", consumers),
        ):
            name = f"eruca_broker_{prefix}bytes_in_flight"
            yield _gauge(name, f"Bytes of {whose}' requests in progress", budget.used)
            yield _gauge(
                f"{name}_max", "Maximum bytes of these requests in progress", budget.maximum
            )
        yield _counter(
            "eruca_broker_overload_refusals",
            "Requests refused because bytes_in_flight_max, consume_bytes_in_flight_max or a "
            "client's share of it was reached",
            senders.refused + consumers.refused,
        )
        topics = self._store.state.topics
        yield _gauge("eruca_broker_topics", "Topics, system topics included", len(topics))


class GroupMetrics(Collector):
    """Groups, their members and their lags."""

    def __init__(
        self,
        store: MessageStore,
        work: GroupWork,
        members: Members,
        locks: QueueLocks,
        lags: GroupLags,
    ) -> None:
        self._store = store
        self._work = work
        self._members = members
        self._locks = locks
        self._lags = lags

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        groups, work = self._store.state.groups, self._work
        locked = sum(len(group.locks) for group in groups.values())
        yield _gauge("eruca_broker_groups", "Consumer groups", len(groups))
        yield _gauge("eruca_broker_members", "Members of all groups", len(work.membership))
        yield _gauge("eruca_broker_locked_queues", "Queues locked by members", locked)
        yield _gauge(
            "eruca_broker_held_group_requests",
            "Requests held for a group's members or for locks",
            len(work.watchers),
        )
        yield _gauge(
            "eruca_broker_held_group_requests_max",
            "Maximum held group requests",
            work.watchers.size_max,
        )
        yield from self._of_lags()
        yield _counter(
            "eruca_broker_sessions_expired",
            "Members whose sessions expired",
            self._members.expiry_count,
        )
        yield _counter(
            "eruca_broker_stale_locks",
            "Requests refused because a lock was no longer held",
            self._locks.stale_count,
        )

    def _of_lags(self) -> Iterator[Metric]:
        """Yield the lags measured just before; only the largest ones have samples."""
        lags = self._lags
        labels = ["group", "topic"]
        behind = GaugeMetricFamily(
            "eruca_broker_group_lag_messages",
            "Messages of a topic that a group has not read yet",
            labels=labels,
        )
        lost = GaugeMetricFamily(
            "eruca_broker_group_deleted_unread_messages",
            "Messages of a topic that retention deleted before a group read them; 0 once the "
            "group makes progress",
            labels=labels,
        )
        for lag in lags.latest:
            behind.add_metric([lag.group, lag.topic], lag.lag)
            if lag.lost:
                lost.add_metric([lag.group, lag.topic], lag.lost)
        yield behind
        yield lost
        yield _gauge(
            "eruca_broker_group_lags_left_out",
            "Pairs of group and topic without a sample, because others have a larger lag",
            lags.left_out,
        )


class DeliveryMetrics(Collector):
    """Deliveries to groups."""

    def __init__(self, store: MessageStore, deliveries: Deliveries) -> None:
        self._store = store
        self._deliveries = deliveries

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        counts, leases = self._deliveries.counts, self._store.state.leases
        yield _counter("eruca_broker_deliveries", "Messages handed out", counts.handed_out)
        yield _counter(
            "eruca_broker_deliveries_again",
            "Messages handed out again",
            counts.handed_out_again,
        )
        yield _counter("eruca_broker_deliveries_acked", "Deliveries acknowledged", counts.acked)
        yield _counter(
            "eruca_broker_deliveries_nacked", "Deliveries rejected (nack)", counts.nacked
        )
        yield _counter("eruca_broker_deliveries_extended", "Deliveries extended", counts.extended)
        yield _counter(
            "eruca_broker_deliveries_dead", "Deliveries that became dead letters", counts.dead
        )
        yield _counter("eruca_broker_delivery_requests", "Requests for deliveries", counts.requests)
        yield _counter(
            "eruca_broker_delivery_requests_held",
            "Requests for deliveries that were held",
            counts.held,
        )
        yield _counter(
            "eruca_broker_stale_handles",
            "Requests refused because of a stale handle",
            counts.stale_refusals,
        )
        yield _counter(
            "eruca_broker_expired_handles",
            "Requests refused because of an expired handle",
            counts.expired_refusals,
        )
        yield _gauge(
            "eruca_broker_unfinished_deliveries",
            "Messages leased, or waiting to be redelivered",
            leases.unfinished_count,
        )


class TransactionMetrics(Collector):
    """Half messages and their decisions."""

    def __init__(
        self, store: MessageStore, transactions: Transactions, carrier: TransactionCarrier
    ) -> None:
        self._store = store
        self._transactions = transactions
        self._carrier = carrier

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        live, counts = self._store.state.transactions, self._transactions.counts
        yield _gauge(
            "eruca_broker_transactions_pending", "Transactions not decided", live.pending_count
        )
        yield _gauge(
            "eruca_broker_transactions_parked",
            "Transactions that were never decided, and wait for an operator",
            live.parked_count,
        )
        yield _gauge(
            "eruca_broker_transactions_max",
            "Maximum transactions pending or parked",
            self._transactions.count_max,
        )
        yield _counter("eruca_broker_transactions_begun", "Half messages stored", counts.begun)
        decided = CounterMetricFamily(
            "eruca_broker_transactions_decided",
            "Decisions recorded, by outcome and author",
            labels=["outcome", "by"],
        )
        for (outcome, by), count in counts.decided.items():
            decided.add_metric([outcome, by], count)
        yield decided
        yield _counter("eruca_broker_transaction_checks", "Checks granted", counts.checks)
        yield _counter(
            "eruca_broker_transaction_requests_repeated",
            "Repeated requests",
            counts.repeated,
        )
        yield _counter(
            "eruca_broker_transaction_conflicts",
            "Requests refused because of an earlier decision",
            counts.conflicts,
        )
        yield _counter(
            "eruca_broker_transactions_carried",
            "Transactions stored again before retention deleted them",
            self._carrier.carried_count,
        )


BROKER_METRICS: Final = (
    LogMetrics,
    ColdMetrics,
    ReplicationMetrics,
    TrafficMetrics,
    LaterMetrics,
    LimitMetrics,
    GroupMetrics,
    DeliveryMetrics,
    TransactionMetrics,
)
"""The metrics of every broker; one with a scrub has ``ScrubMetrics`` too."""


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value=value)


def _counter(name: str, meaning: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, meaning, value=value)
