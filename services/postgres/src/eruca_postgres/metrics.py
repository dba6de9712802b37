"""What every service that follows logs tells Prometheus: which brokers' logs, and how far."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from eruca_postgres.broker_shares import BrokerShares, WorkT


def following_metrics(prefix: str, shares: BrokerShares[WorkT]) -> Iterator[Metric]:
    """Yield the samples of one instance, under names that begin with *prefix*."""
    work = shares.work
    yield GaugeMetricFamily(
        prefix + "brokers", "Brokers whose logs this instance follows", value=len(work)
    )
    behind = GaugeMetricFamily(
        prefix + "behind_bytes",
        "Bytes of a broker's log that had not been read when its end was last looked at",
        labels=["broker"],
    )
    faults = GaugeMetricFamily(
        prefix + "fault", "1 while a broker's log cannot be followed", labels=["broker"]
    )
    for name, its in work.items():
        offset, end = its.projector.log_offset, its.projector.end_offset
        if offset is not None and end is not None:
            behind.add_metric([name], max(end - offset, 0))
        faults.add_metric([name], int(its.fault is not None))
    yield behind
    yield faults
