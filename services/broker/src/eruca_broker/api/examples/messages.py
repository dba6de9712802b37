"""Examples of bodies and answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

from fastapi.openapi.models import Example

_ORDER: Final = {"version": 1, "queues": {"broker-a": 8, "broker-b": 8}}
TOPIC: Final = {
    "topic": "flights",
    "read_queue_count": 8,
    "write_queue_count": 8,
    "permission": "rw",
    "ordered": True,
    "order_config": _ORDER,
    "is_system": False,
}
TOPIC_SETTINGS: Final[dict[str, Example]] = {
    "plain": {"value": {"read_queue_count": 8, "write_queue_count": 8}},
    "ordered": {
        "summary": "sharding keys keep their queues while a broker is away",
        "value": {
            "read_queue_count": 8,
            "write_queue_count": 8,
            "ordered": True,
            "order_config": _ORDER,
        },
    },
}
TOPIC_LIST: Final = {"topics": [TOPIC], "next_cursor": "ZmxpZ2h0cw"}
TOPIC_QUEUES: Final = {
    "topic": "flights",
    "topic_id": "9f2c51d07ab3e846-1044",
    "broker_started_at": "2026-11-21T07:58:12.404Z",
    "epoch": 7,
    "log_offset": 8_211_904,
    "queues": [
        {
            "queue_id": 0,
            "min_offset": 0,
            "max_offset": 42_097,
            "earliest_stored_at": "2026-11-21T08:00:00.123Z",
            "latest_stored_at": "2026-11-21T08:00:09.871Z",
        }
    ],
}
OFFSET_BY_TIME: Final = {
    "topic": "flights",
    "queue_id": 0,
    "timestamp": "2026-11-21T08:00:05.000Z",
    "boundary": "lower",
    "offset": 20_113,
}
MESSAGE: Final = {
    "topic": "flights",
    "queue_id": 3,
    "queue_offset": 1041,
    "log_offset": 8_201_544,
    "size": 231,
    "damage": None,
    "message_id": "7F00000100002A9F000000000134F1F5",
    "offset_message_id": "7F00000100002A9F00000000007D2548",
    "tag": "UA",
    "keys": ["UA1545"],
    "sharding_key": "N14228",
    "properties": {},
    "body": {"json": {"flight": 1545, "origin": "EWR"}},
    "flag": 0,
    "reconsume_times": 0,
    "born_at": "2026-11-21T08:00:00.121Z",
    "born_host": "127.0.0.1:52044",
    "stored_at": "2026-11-21T08:00:00.123Z",
    "store_host": "127.0.0.1:10911",
}
FOUND_MESSAGES: Final = {
    "messages": [MESSAGE],
    "is_complete": True,
    "next_cursor": None,
    "damaged": [],
    "incomplete": None,
}
LOG_RECORD: Final = {
    "log_offset": 8_201_544,
    "size": 231,
    "message": MESSAGE,
    "sys_flag": 0,
    "prepared_offset": 0,
    "system_properties": {
        "KEYS": "UA1545",
        "TAGS": "UA",
        "__SHARDINGKEY": "N14228",
        "UNIQ_KEY": "7F00000100002A9F000000000134F1F5",
        "ERUCA_BODY_FORMAT": "json",
    },
}
LOG_ANSWER: Final = {
    "records": [LOG_RECORD],
    "damaged": [],
    "next_offset": 8_201_775,
    "min_offset": 0,
    "max_offset": 8_201_775,
    "epoch": 0,
}
STATUS: Final = {
    "cluster": "eruca",
    "broker_name": "broker-a",
    "broker_id": 0,
    "role": "master",
    "version": "0.1.0",
    "store_host": "127.0.0.1:10911",
    "started_at": "2026-11-21T07:58:12.404Z",
    "now": "2026-11-21T08:00:00.123Z",
    "flush_mode": "async",
    "is_writable": True,
    "refusal": None,
    "disk_used_ratio": 0.41,
    "log": {
        "log_id": "9f2c51d07ab3e846",
        "min_offset": 0,
        "tier_min_offset": None,
        "begin_offset": 0,
        "max_offset": 8_201_775,
        "flushed_offset": 8_201_544,
        "segment_bytes": 1_073_741_824,
        "segment_count": 1,
    },
    "projections": [
        {"name": "consume_queues", "log_offset": 8_201_775, "behind_bytes": 0, "failure": None},
        {"name": "key_index", "log_offset": 8_201_544, "behind_bytes": 231, "failure": None},
        {"name": "state", "log_offset": 8_201_775, "behind_bytes": 0, "failure": None},
    ],
    "held_requests": 16,
    "held_requests_max": 10_000,
    "bytes_in_flight": 4_096,
    "bytes_in_flight_max": 268_435_456,
    "consume_bytes_in_flight": 4_096,
    "consume_bytes_in_flight_max": 134_217_728,
    "topics": 1,
    "groups": 1,
    "tier": None,
}
SENT: Final = {
    "body": {"json": {"flight": 1545, "origin": "EWR"}},
    "tag": "UA",
    "keys": ["UA1545"],
    "sharding_key": "N14228",
}
AGAIN: Final = "again"  # the name of a repeated send's examples
SENDS: Final = {
    "one": {"summary": "one message", "value": SENT},
    "batch": {
        "summary": "a batch",
        "value": {
            "messages": [
                {"body": {"text": "first"}},
                {"body": {"base64": "c2Vjb25k"}, "tag": "AA"},
            ]
        },
    },
    AGAIN: {"summary": "the same again, under its `Idempotency-Key`", "value": SENT},
}
RECEIPT: Final = {
    "topic": "flights",
    "broker_name": "broker-a",
    "queue_id": 3,
    "queue_offset": 1041,
    "log_offset": 8_201_544,
    "message_id": "7F00000100002A9F000000000134F1F5",
    "offset_message_id": "7F00000100002A9F00000000007D2548",
    "stored_at": "2026-11-21T08:00:00.123Z",
    "durability": "written",
    "copies": 1,
    "deliver_at": None,
    "recall_handle": None,
}
BATCH_RECEIPT: Final = {
    "queue_id": 3,
    "queue_offset": 1041,
    "log_offset": 8_201_544,
    "count": 1000,
    "stored_at_ms": 1_795_248_000_123,
    "durability": "flushed",
    "copies": 1,
    "born_host_is_ipv6": False,
    "store_host": "127.0.0.1:10911",
}
PULLED: Final = {
    "status": "found",
    "messages": [MESSAGE],
    "next_offset": 1042,
    "min_offset": 0,
    "max_offset": 1042,
}
PULL_OF_ONE: Final = {"queues": [{"topic": "flights", "queue_id": 0, "offset": 0}]}
PULLS: Final = {
    "one": {"summary": "one queue", "value": PULL_OF_ONE},
    "many": {
        "summary": "several queues, with filters",
        "value": {
            "queues": [
                {"topic": "flights", "queue_id": 0, "offset": 1200},
                {"topic": "flights", "queue_id": 1, "offset": 977, "filter": "AA"},
                {
                    "topic": "flights",
                    "queue_id": 2,
                    "offset": 1044,
                    "filter": "delay > 15 AND origin = 'JFK'",
                    "filter_type": "sql92",
                },
            ],
            "count_max": 256,
            "wait_seconds": 15,
        },
    },
}
PULLED_MANY: Final = {"queues": [{"topic": "flights", "queue_id": 3, "answer": PULLED}]}
