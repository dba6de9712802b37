"""Request metrics: counted exactly, and bounded in number whatever clients send."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from eruca_chassis.metrics import BUCKETS, UNKNOWN_ROUTE, RequestMetrics, RouteMetrics


def test_a_route_is_counted_by_status_and_latency() -> None:
    metrics = RequestMetrics()
    registry = CollectorRegistry()
    registry.register(metrics)
    route = metrics.route("GET", "/things/{thing}")

    for status, seconds in ((200, 0.0005), (200, 0.003), (404, 100.0)):
        route.add(status, seconds)

    labels = {"method": "GET", "route": "/things/{thing}"}
    count = "eruca_http_requests_total"
    assert registry.get_sample_value(count, {**labels, "status": "200"}) == 2
    assert registry.get_sample_value(count, {**labels, "status": "404"}) == 1
    below = {
        bound: registry.get_sample_value(
            "eruca_http_request_seconds_bucket", {**labels, "le": bound}
        )
        for bound in ("0.0005", "0.0025", "0.005", "30.0", "+Inf")
    }
    assert below == {"0.0005": 1, "0.0025": 1, "0.005": 2, "30.0": 2, "+Inf": 3}
    assert registry.get_sample_value("eruca_http_request_seconds_sum", labels) == 100.0035
    assert len(BUCKETS) == 15


def test_requests_that_end_together_are_counted_each_with_its_own_latency() -> None:
    one_by_one, together = RouteMetrics(), RouteMetrics()

    for seconds in (0.003, 0.25, 7.0):
        one_by_one.add(201, seconds)
    together.add_all(201, (0.003, 0.25, 7.0))

    assert together.statuses == one_by_one.statuses
    assert together.buckets == one_by_one.buckets
    assert together.seconds == one_by_one.seconds


def test_methods_nobody_knows_share_one_label() -> None:
    metrics = RequestMetrics()

    assert metrics.route("BREW", UNKNOWN_ROUTE) is metrics.route("SPIN", UNKNOWN_ROUTE)
    assert metrics.route("GET", UNKNOWN_ROUTE) is not metrics.route("BREW", UNKNOWN_ROUTE)
