"""Examples of deliveries, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

from eruca_broker.api.examples.messages import MESSAGE

HANDLE: Final = "p0eXc1siYnJva2VyLWEiLCJiaWxsaW5nIiwiZmxpZ2h0cyIsMywxMDQxLDEsODIwMTc3NV0"
RECEIVE: Final = {"topic": "flights", "count_max": 1, "wait_seconds": 10, "start": "earliest"}
DELIVERIES: Final = {
    "deliveries": [
        {
            "handle": HANDLE,
            "attempt": 1,
            "visible_at": "2026-11-21T08:01:00.130Z",
            "message": MESSAGE,
        }
    ],
    "empty_because": None,
    "retry_after_seconds": None,
}
ACKS: Final = {"handles": [HANDLE]}
NACKS: Final = {
    "handles": [HANDLE],
    "delay_seconds": 30,
    "reason": "failed",
    "error": "no such aircraft",
}
NACK_RESULTS: Final = {
    "results": [{"outcome": "retry", "attempts": 1, "visible_at": "2026-11-21T08:01:07.000Z"}]
}
EXTENSION: Final = {"handles": [HANDLE], "invisible_seconds": 120}
EXTENDED: Final = {"visible_at": "2026-11-21T08:02:40.000Z"}
