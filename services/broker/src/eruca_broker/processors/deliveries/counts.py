"""Counters of the outcomes of deliveries, for the metrics."""

from __future__ import annotations


class DeliveryCounts:
    """The outcomes of deliveries since the start."""

    __slots__ = (
        "acked", "dead", "expired_refusals", "extended", "handed_out", "handed_out_again",
        "held", "nacked", "requests", "stale_refusals",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests = 0  # for messages
        self.held = 0  # those of them that were held
        self.handed_out = 0  # messages
        self.handed_out_again = 0  # those of them that were redelivered
        self.acked = 0
        self.nacked = 0
        self.extended = 0
        self.dead = 0
        self.stale_refusals = 0  # requests with a stale handle
        self.expired_refusals = 0
