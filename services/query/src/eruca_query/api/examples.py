"""Examples of answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

_ID: Final = "7F00000112340A1B2C3D000000010001"
_READ_MODEL: Final = [
    {
        "broker_name": "broker-a",
        "log_offset": 8_201_544,
        "end_offset": 8_202_010,
        "behind_bytes": 466,
        "as_of": "2026-11-21T08:00:02.118Z",
    }
]
_STORED: Final[dict[str, Any]] = {
    "message_id": _ID,
    "offset_message_id": "7F00000100002A9F000000000134F1F5",
    "broker_name": "broker-a",
    "log_offset": 20_246_005,
    "topic": "flights",
    "queue_id": 2,
    "queue_offset": 1041,
    "tag": "UA",
    "keys": ["UA1545"],
    "born_at": "2026-11-21T08:00:00.121Z",
    "stored_at": "2026-11-21T08:00:00.123Z",
    "size": 431,
}
_WHOLE: Final = _STORED | {
    "body": {"text": '{"flight":"UA1545","delay":11}'},
    "body_missing": None,
    "properties": {"origin": "EWR"},
    "sharding_key": "N14228",
    "reconsume_times": 0,
    "flag": 0,
    "system_properties": {"UNIQ_KEY": _ID, "KEYS": "UA1545", "TAGS": "UA"},
}
_LISTED: Final = _STORED | {
    "body": None,
    "body_missing": "not_asked",
    "properties": None,
    "sharding_key": None,
    "reconsume_times": None,
    "flag": None,
    "system_properties": None,
}
MESSAGE_FOUND: Final = {
    "message": _WHOLE,
    "also_stored": [],
    "read_model": _READ_MODEL,
    "incomplete": [],
}
MESSAGE_PAGE: Final = {
    "messages": [_LISTED],
    "next_cursor": "MTc5NTI0ODAwMDEyMzoyMDI0NjAwNTpicm9rZXItYQ",
    "read_model": _READ_MODEL,
    "incomplete": [
        {
            "broker_name": "broker-b",
            "reason": "broker_unreachable",
            "detail": "no name server knows it: it is stopped, or cannot reach them",
        }
    ],
}
MESSAGE_COUNTS: Final = {
    "since": "2026-11-21T08:00:00.000Z",
    "until": "2026-11-21T08:02:00.000Z",
    "width_ms": 60_000,
    "counts": [
        {"start": "2026-11-21T08:00:00.000Z", "count": 1041},
        {"start": "2026-11-21T08:01:00.000Z", "count": 0},
    ],
    "read_model": _READ_MODEL,
    "incomplete": [],
}
TIMELINE: Final = {
    "message_id": _ID,
    "places": [_STORED],
    "events": [
        {
            "at": "2026-11-21T08:00:00.123Z",
            "kind": "stored",
            "broker_name": "broker-a",
            "log_offset": 20_246_005,
            "topic": "flights",
            "queue_id": 2,
            "queue_offset": 1041,
            "detail": {},
        },
        {
            "at": "2026-11-21T08:00:04.310Z",
            "kind": "sent_back",
            "broker_name": "broker-a",
            "log_offset": 20_251_880,
            "topic": "rmq_sys_wheel_timer",
            "queue_id": 0,
            "queue_offset": 17,
            "detail": {
                "group": "billing",
                "attempt": 1,
                "reason": "failed",
                "error": "ValueError: no such carrier",
                "deliver_at": "2026-11-21T08:00:14.310Z",
            },
        },
    ],
    "groups": [
        {
            "group": "billing",
            "broker_name": "broker-a",
            "topic": "flights",
            "queue_id": 2,
            "queue_offset": 1041,
            "next_offset": 1042,
            "state": "past",
            "since": "2026-11-21T08:00:05.002Z",
            "detail": None,
        }
    ],
    "read_model": _READ_MODEL,
    "incomplete": [],
}
STATUS: Final = {
    "version": "0.1.0",
    "name": "query-5e7be3a5",
    "started_at": "2026-11-21T07:59:41.000Z",
    "brokers": ["broker-a"],
    "faults": {},
    "followed": [
        {
            "broker_name": "broker-a",
            "log_offset": 8_201_544,
            "end_offset": 8_202_010,
            "behind_bytes": 466,
            "as_of": "2026-11-21T08:00:02.118Z",
            "read_at": "2026-11-21T08:00:02.131Z",
            "followed_by": "query-5e7be3a5",
            "rows": 48_211,
            "oldest_stored_at": "2026-11-18T08:00:00.000Z",
            "gaps": 0,
            "rebuild": None,
        }
    ],
}
REBUILD_BEGUN: Final = {"brokers": ["broker-a"]}
