"""Examples of exports for the OpenAPI document."""

from __future__ import annotations

from typing import Final

PLAN: Final = {
    "topic": "flights",
    "schema_version": 1,
    "taken_at": "2026-11-21T08:00:00.000Z",
    "rows": 1200,
    "queues": [
        {
            "broker_name": "broker-a",
            "queue_id": 0,
            "from_offset": 1000,
            "to_offset": 2200,
            "min_offset": 0,
            "max_offset": 2200,
            "missing_rows": 0,
            "topic_id": "9f2c51d07ab3e846-1044",
            "broker_started_at": "2026-11-21T07:58:12.404Z",
            "latest_stored_at": "2026-11-21T07:59:59.871Z",
            "lost": None,
        }
    ],
    "brokers": [{"broker_name": "broker-a", "epoch": 7, "log_offset": 8_211_904}],
    "partitions": [
        {
            "index": 0,
            "rows": 1200,
            "ranges": [
                {
                    "broker_name": "broker-a",
                    "queue_id": 0,
                    "from_offset": 1000,
                    "to_offset": 2200,
                    "topic_id": "9f2c51d07ab3e846-1044",
                }
            ],
        }
    ],
    "incomplete": [],
}
TOPICS: Final = {"topics": ["%DLQ%billing", "flights"], "next_cursor": None}
LINES: Final = (
    '{"queue_offset":1000,"tag":"UA","body":{"text":"{\\"flight\\":1545}"}}\n'
    '{"queue_offset":1001,"tag":"AA","body":{"text":"{\\"flight\\":1141}"}}\n'
)
