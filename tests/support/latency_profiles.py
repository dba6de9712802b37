"""The latency profile of RocketMQ 4.x, beside which the current one is tested."""

from __future__ import annotations

from typing import Final

from eruca.core.routing.latency_fault import LatencyProfile

SEED_4X: Final = LatencyProfile(
    latency_max_ms=(50, 100, 550, 1_000, 2_000, 3_000, 15_000),
    not_available_ms=(0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
    failure_latency_ms=30_000,
    never_shortens=False,
    unreachable_ms_max=600_000,
)
