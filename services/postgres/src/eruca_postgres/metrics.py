"""Metrics of every service that follows logs: the brokers, and the progress in their logs."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from eruca_postgres.broker_shares import BrokerShares, WorkT


def following_metrics(prefix: str, shares: BrokerShares[WorkT]) -> Iterator[Metric]:
    """Yield the samples of one instance, with names that begin with *prefix*."""
    work = shares.work
    yield GaugeMetricFamily(
        prefix + "brokers", "Brokers whose logs this instance follows", value=len(work)
    )
    behind = GaugeMetricFamily(
        prefix + "behind_bytes",
        "Bytes of a broker's log not yet read, at the last look at its end",
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
