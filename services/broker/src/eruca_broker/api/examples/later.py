"""Examples of delayed messages, retries and dead letters, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

from eruca.contract.recall_handles import RecallHandle, encode_recall_handle
from eruca_broker.api.examples.messages import MESSAGE

RECALL_HANDLE: Final = encode_recall_handle(
    RecallHandle("flights", "broker-a", 1_795_327_200_000, "7F00000100002A9F000000000134F1F5")
)

SCHEDULED_LIST: Final = {
    "scheduled": [
        {
            "message_id": "7F00000100002A9F000000000134F1F5",
            "recall_handle": RECALL_HANDLE,
            "topic": "flights",
            "queue_id": 3,
            "deliver_at": "2026-11-22T06:00:00.000Z",
            "stored_at": "2026-11-21T08:00:00.123Z",
            "log_offset": 8_201_544,
            "size": 287,
        }
    ],
    "damaged": [],
    "next_cursor": "MTc5NTMyNzIwMDAwMC44MjAxNTQ0",
}
SEND_BACKS: Final = {
    "client_id": "10.1.2.3@4711#1",
    "incarnation": "6f1d2c90a4b84ef2",
    "messages": [
        {
            "topic": "flights",
            "queue_id": 3,
            "queue_offset": 1041,
            "token": 8_197_220,
            "reason": "failed",
            "error": "TimeoutError: the ledger did not answer",
        }
    ],
}
SEND_BACK_RESULTS: Final = {
    "results": [
        {"outcome": "retry", "reconsume_times": 1, "deliver_at": "2026-11-21T08:00:12.310Z"}
    ]
}
DEAD_LETTER: Final = {
    "dead_letter_id": 17,
    "origin_topic": "flights",
    "origin_queue_id": 3,
    "origin_offset": 1041,
    "message_id": "7F00000100002A9F000000000134F1F5",
    "reason": "failed",
    "attempts": 17,
    "last_error": "TimeoutError: the ledger did not answer",
    "dead_at": "2026-11-21T12:46:10.804Z",
    "redriven_at": None,
    "size": 431,
    "damage": None,
}
DEAD_LETTER_DETAIL: Final = DEAD_LETTER | {"message": MESSAGE}
DEAD_LETTER_LIST: Final = {
    "dead_letters": [DEAD_LETTER],
    "min_offset": 0,
    "max_offset": 250,
    "next_cursor": "MTguMjUwLjQwOTYuMw",
}
REDRIVE: Final = {"filter": {"topic": "flights", "reason": "failed"}, "limit": 50}
REDRIVE_ANSWER: Final = {
    "outcomes": [{"dead_letter_id": 17, "outcome": "redriven", "topic": "flights", "detail": None}],
    "looked_at_count": 18,
    "next_cursor": None,
    "dry_run": False,
}
