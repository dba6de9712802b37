"""Request metrics: counts and latencies by route template, cheap enough for every request.

They are plain integers, converted to Prometheus samples only at a scrape: a request costs one
bisect and three additions. Labels are templates, statuses and known methods, never a client's own
text, so their number is bounded by the service's routes. A held request's latency includes the time
it was held.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip  # seconds, upper bounds
UNKNOWN_ROUTE: Final = "(none)"
CLIENT_GONE_STATUS: Final = 499  # nginx's code for a disconnected client; counted, never sent
_METHODS: Final = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
)


class RouteMetrics:
    """The counts of one route."""

    __slots__ = ("buckets", "seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def add(self, status: int, seconds: float) -> None:
        """Count a request that took *seconds*."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def add_all(self, status: int, seconds: Sequence[float]) -> None:
        """Count requests, of which each took one of *seconds*."""
        self.statuses[status] = self.statuses.get(status, 0) + len(seconds)
        for each in seconds:
            self.buckets[bisect_left(BUCKETS, each)] += 1
        self.seconds += sum(seconds)


class RequestMetrics(Collector):
    """Every route's metrics, as a Prometheus collector."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], RouteMetrics] = {}

    def adopt(self, method: str, template: str, metrics: RouteMetrics) -> None:
        """Report metrics that are counted elsewhere."""
        self._routes[method, template] = metrics

    def route(self, method: str, template: str) -> RouteMetrics:
        """Return the metrics of one route; *template* must not be a client's text."""
        key = (method if method in _METHODS else "other", template)
        found = self._routes.get(key)
        if found is None:
            found = self._routes[key] = RouteMetrics()
        return found

    def collect(self) -> Iterator[Metric]:
        """Yield the samples."""
        requests = CounterMetricFamily(
            "eruca_http_requests",
            "Requests answered; status 499: the client disconnected first.",
            labels=["method", "route", "status"],
        )
        latency = HistogramMetricFamily(
            "eruca_http_request_seconds",
            "Time from a request's head to the end of its answer.",
            labels=["method", "route"],
        )
        bounds = [*map(str, BUCKETS), "+Inf"]
        for (method, template), route in self._routes.items():
            for status, count in route.statuses.items():
                requests.add_metric([method, template, str(status)], count)
            sums = zip(bounds, accumulate(route.buckets), strict=True)
            latency.add_metric([method, template], list(sums), route.seconds)
        yield requests
        yield latency
