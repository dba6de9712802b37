"""The broker's own metrics, read from plain attributes at each scrape.

They cost nothing per message: a batch adds its size once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from eruca_broker.api.dependencies import Broker
from eruca_broker.processors.send_message import APPEND_BUCKETS
from eruca_broker.store.scrub import Scrub


class BrokerMetrics(Collector):
    """The samples of one broker."""

    def __init__(self, broker: Broker, scrub: Scrub | None) -> None:
        self._broker = broker
        self._scrub = scrub

    def describe(self) -> list[Metric]:
        """Return nothing: ``collect`` describes the metrics."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        yield from self._log()
        yield from self._traffic()
        yield from self._later()
        yield from self._limits()
        yield from self._groups()
        yield from self._deliveries()
        yield from self._transactions()

    def _log(self) -> Iterator[Metric]:
        store = self._broker.store
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
        if (scrub := self._scrub) is not None:
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

    def _traffic(self) -> Iterator[Metric]:
        sent, pulled = self._broker.sender.counts, self._broker.puller.counts
        yield _counter("eruca_broker_messages_in", "Messages stored", sent.messages)
        yield _counter("eruca_broker_bytes_in", "Bytes of records stored", sent.bytes)
        yield _counter("eruca_broker_messages_out", "Messages pulled", pulled.messages)
        yield _counter("eruca_broker_bytes_out", "Bytes of records pulled", pulled.bytes)
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

    def _later(self) -> Iterator[Metric]:
        pending, counts = self._broker.store.timers, self._broker.timers.counts
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
        retries = self._broker.retries
        yield _counter("eruca_broker_retries", "Messages sent back", retries.retried_count)
        yield _counter(
            "eruca_broker_dead_letters", "Messages that became dead letters", retries.dead_count
        )
        yield _counter(
            "eruca_broker_dead_letters_redriven",
            "Dead letters redriven",
            self._broker.dead_letters.redriven_count,
        )

    def _limits(self) -> Iterator[Metric]:
        held, in_flight = self._broker.held, self._broker.in_flight
        consume_in_flight = self._broker.consume_in_flight
        yield _gauge("eruca_broker_held_requests", "Held requests", len(held))
        yield _gauge("eruca_broker_held_requests_max", "Maximum held requests", held.size_max)
        for prefix, whose, budget in (
            ("", "senders", in_flight),
            ("consume_", "consumers", consume_in_flight),
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
            in_flight.refused + consume_in_flight.refused,
        )
        topics = self._broker.store.state.topics
        yield _gauge("eruca_broker_topics", "Topics, system topics included", len(topics))

    def _groups(self) -> Iterator[Metric]:
        groups, work = self._broker.store.state.groups, self._broker.group_work
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
        yield from self._lags()
        yield _counter(
            "eruca_broker_sessions_expired",
            "Members whose sessions expired",
            self._broker.members.expiry_count,
        )
        yield _counter(
            "eruca_broker_stale_locks",
            "Requests refused because a lock was no longer held",
            self._broker.locks.stale_count,
        )

    def _lags(self) -> Iterator[Metric]:
        """Yield the lags measured just before; only the largest ones have samples."""
        lags = self._broker.lags
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

    def _deliveries(self) -> Iterator[Metric]:
        counts, leases = self._broker.deliveries.counts, self._broker.store.state.leases
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

    def _transactions(self) -> Iterator[Metric]:
        broker, live = self._broker, self._broker.store.state.transactions
        counts = broker.transactions.counts
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
            broker.transactions.count_max,
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
            broker.transaction_carrier.carried_count,
        )


def _gauge(name: str, meaning: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, value=value)


def _counter(name: str, meaning: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, meaning, value=value)
