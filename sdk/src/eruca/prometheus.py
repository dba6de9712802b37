"""Prometheus metrics of a client: its sends, pulls and handlers.

They require the extra ``prometheus``, which is prometheus-client::

    from prometheus_client import REGISTRY

    from eruca.prometheus import ClientCollector

    client = eruca.Client()
    REGISTRY.register(ClientCollector(client))

======================================  ========================================================
eruca_client_messages_total             messages, by ``operation`` (send, pull, handle), ``topic``
                                        and ``group``
eruca_client_failed_messages_total      those whose calls failed; of pulls: failed calls
eruca_client_call_seconds               calls: their number (``_count``) and time (``_sum``)
======================================  ========================================================

A client has at most 1 000 combinations of labels; above that, further topics are counted together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

try:
    from prometheus_client.core import CounterMetricFamily, Metric, SummaryMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "eruca.prometheus requires prometheus-client: install it, for example as the extra"
        " eruca[prometheus]",
        name=error.name,
    ) from None

from eruca.contract.errors import ValidationError

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient
    from eruca.sync.client import Client

_LABELS = ("operation", "topic", "group")


class ClientCollector(Collector):
    """A client's statistics, as a Prometheus collector; any thread may scrape it.

    Args:
        client: The client.

    Raises:
        ValidationError: It is no client.
    """

    def __init__(self, client: Client | AsyncClient) -> None:
        from eruca.aio.client import AsyncClient
        from eruca.sync.client import Client

        if not isinstance(client, AsyncClient | Client):
            raise ValidationError(f"client: expected a client of eruca, found {client!r:.60}")
        self._client = client

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        messages = CounterMetricFamily(
            "eruca_client_messages", "Messages sent, pulled or handled.", labels=_LABELS
        )
        failed = CounterMetricFamily(
            "eruca_client_failed_messages",
            "Messages whose calls failed; of pulls, which have none then: failed calls.",
            labels=_LABELS,
        )
        calls = SummaryMetricFamily(
            "eruca_client_call_seconds",
            "Time of sends, pulls that found messages, and handlers.",
            labels=_LABELS,
        )
        for one in self._client.stats():
            labels = (one.operation, one.topic, one.group or "")
            total = one.since_start
            messages.add_metric(labels, total.message_count)
            failed.add_metric(labels, total.failed_count)
            calls.add_metric(labels, total.call_count, total.busy_seconds)
        yield messages
        yield failed
        yield calls
