"""The broker's own metrics, read from plain attributes when somebody scrapes.

Nothing is counted per message for them: a batch adds its size once.
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
    """Samples of one broker."""

    def __init__(self, broker: Broker, scrub: Scrub | None) -> None:
        self._broker = broker
        self._scrub = scrub

    def describe(self) -> list[Metric]:
        """Return nothing: what there is, ``collect`` says."""
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
        yield _gauge("eruca_broker_log_min_offset", "Where the log begins", store.log_min_offset)
        yield _gauge("eruca_broker_log_max_offset", "Where the log ends", end)
        yield _gauge("eruca_broker_log_segments", "Segments of the log", store.segment_count)
        yield _gauge(
            "eruca_broker_unflushed_bytes",
            "Bytes of the log that power loss would take",
            end - store.flushed_offset,
        )
        yield _gauge("eruca_broker_disk_used_ratio", "How full the disk is", store.disk_used_ratio)
        yield _gauge(
            "eruca_broker_writable", "1 while sends are accepted", int(store.refusal is None)
        )
        behind = GaugeMetricFamily(
            "eruca_broker_projection_behind_bytes",
            "Bytes of the log a projection has not read",
            labels=["projection"],
        )
        failing = GaugeMetricFamily(
            "eruca_broker_projection_failing",
            "1 while a projection lacks what could not be written",
            labels=["projection"],
        )
        for projection in store.projections():
            behind.add_metric([projection.name], max(end - projection.log_offset, 0))
            failing.add_metric([projection.name], int(projection.failure is not None))
        yield behind
        yield failing
        yield _counter(
            "eruca_broker_damaged_reads",
            "Messages that a read of a queue found damaged, each time it was read",
            store.queues.damage_count,
        )
        if (scrub := self._scrub) is not None:
            yield _gauge(
                "eruca_broker_damaged_records",
                "Records of the log that the scrub has found damaged",
                scrub.damaged_count,
            )
            yield _gauge("eruca_broker_scrub_offset", "Where the scrub is", scrub.offset)
            yield _counter(
                "eruca_broker_scrub_rounds", "Times all of the log was read", scrub.rounds
            )

    def _traffic(self) -> Iterator[Metric]:
        sent, pulled = self._broker.sender.counts, self._broker.puller.counts
        yield _counter("eruca_broker_messages_in", "Messages stored", sent.messages)
        yield _counter("eruca_broker_bytes_in", "Bytes of records stored", sent.bytes)
        yield _counter("eruca_broker_messages_out", "Messages pulled", pulled.messages)
        yield _counter("eruca_broker_bytes_out", "Bytes of records pulled", pulled.bytes)
        yield _counter("eruca_broker_pulls_held", "Pulls that had to wait", pulled.held)
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
        yield _gauge("eruca_broker_timers", "Messages that wait for their delivery", len(pending))
        yield _counter("eruca_broker_timers_fired", "Delayed messages delivered", counts.fired)
        yield _counter(
            "eruca_broker_timers_late_seconds",
            "How late delayed messages were, all of them together",
            counts.late_ms_sum / 1000,
        )
        yield _counter(
            "eruca_broker_timers_carried",
            "Delayed messages stored again by retention",
            counts.carried,
        )
        yield _counter(
            "eruca_broker_timers_dropped", "Delayed messages nobody could be given", counts.dropped
        )
        retries = self._broker.retries
        yield _counter("eruca_broker_retries", "Messages sent back", retries.retried_count)
        yield _counter("eruca_broker_dead_letters", "Messages given up", retries.dead_count)
        yield _counter(
            "eruca_broker_dead_letters_redriven",
            "Dead letters sent on their way again",
            self._broker.dead_letters.redriven_count,
        )

    def _limits(self) -> Iterator[Metric]:
        held, in_flight = self._broker.held, self._broker.in_flight
        consume_in_flight = self._broker.consume_in_flight
        yield _gauge("eruca_broker_held_requests", "Requests being held", len(held))
        yield _gauge("eruca_broker_held_requests_max", "As many may be held", held.size_max)
        for prefix, whose, budget in (
            ("", "senders", in_flight),
            ("consume_", "consumers", consume_in_flight),
        ):
            name = f"eruca_broker_{prefix}bytes_in_flight"
            yield _gauge(name, f"Bytes of {whose}' requests being worked on", budget.used)
            yield _gauge(f"{name}_max", "As many may be worked on", budget.maximum)
        yield _counter(
            "eruca_broker_overload_refusals",
            "Requests refused because bytes_in_flight_max or consume_bytes_in_flight_max was "
            "reached, or the client's share of it",
            in_flight.refused + consume_in_flight.refused,
        )
        topics = self._broker.store.state.topics
        yield _gauge("eruca_broker_topics", "Topics, the system's included", len(topics))

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
            "eruca_broker_held_group_requests_max", "As many may be held", work.watchers.size_max
        )
        yield from self._lags()
        yield _counter(
            "eruca_broker_sessions_expired",
            "Members that were not heard from in time",
            self._broker.members.expiry_count,
        )
        yield _counter(
            "eruca_broker_stale_locks",
            "Requests refused since a lock was not held any more",
            self._broker.locks.stale_count,
        )

    def _lags(self) -> Iterator[Metric]:
        """Yield what was measured right before; only the furthest behind have samples."""
        lags = self._broker.lags
        labels = ["group", "topic"]
        behind = GaugeMetricFamily(
            "eruca_broker_group_lag_messages",
            "Messages of a topic that a group has still to read",
            labels=labels,
        )
        lost = GaugeMetricFamily(
            "eruca_broker_group_deleted_unread_messages",
            "Messages of a topic that retention deleted before a group, which has not gone on "
            "since, had read them",
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
            "Groups' topics that have no sample, since others are further behind",
            lags.left_out,
        )

    def _deliveries(self) -> Iterator[Metric]:
        counts, leases = self._broker.deliveries.counts, self._broker.store.state.leases
        yield _counter("eruca_broker_deliveries", "Messages handed out", counts.handed_out)
        yield _counter(
            "eruca_broker_deliveries_again",
            "Messages handed out that had been before",
            counts.handed_out_again,
        )
        yield _counter("eruca_broker_deliveries_acked", "Deliveries acknowledged", counts.acked)
        yield _counter("eruca_broker_deliveries_nacked", "Deliveries given up", counts.nacked)
        yield _counter("eruca_broker_deliveries_extended", "Deliveries extended", counts.extended)
        yield _counter("eruca_broker_deliveries_dead", "Dead letters of deliveries", counts.dead)
        yield _counter("eruca_broker_delivery_requests", "Requests for deliveries", counts.requests)
        yield _counter(
            "eruca_broker_delivery_requests_held",
            "Requests for deliveries that had to wait",
            counts.held,
        )
        yield _counter(
            "eruca_broker_stale_handles",
            "Requests refused for a handle that was superseded or done",
            counts.stale_refusals,
        )
        yield _counter(
            "eruca_broker_expired_handles",
            "Requests refused for a handle whose time was over",
            counts.expired_refusals,
        )
        yield _gauge(
            "eruca_broker_unfinished_deliveries",
            "Messages handed out, or waiting to be again",
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
            "Transactions rolled back for want of a decision, which wait for an operator",
            live.parked_count,
        )
        yield _gauge(
            "eruca_broker_transactions_max",
            "As many may be pending or parked",
            broker.transactions.count_max,
        )
        yield _counter("eruca_broker_transactions_begun", "Half messages stored", counts.begun)
        decided = CounterMetricFamily(
            "eruca_broker_transactions_decided",
            "Decisions recorded, by what and who",
            labels=["outcome", "by"],
        )
        for (outcome, by), count in counts.decided.items():
            decided.add_metric([outcome, by], count)
        yield decided
        yield _counter("eruca_broker_transaction_checks", "Checks granted", counts.checks)
        yield _counter(
            "eruca_broker_transaction_requests_repeated",
            "Requests for what had been done before",
            counts.repeated,
        )
        yield _counter(
            "eruca_broker_transaction_conflicts",
            "Requests refused for what had been decided before",
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
