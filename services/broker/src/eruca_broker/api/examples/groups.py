"""Examples of bodies and answers about groups, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

_SUBSCRIPTION: Final = {"topic": "flights", "filter": "UA || AA", "filter_type": "tag"}
_CLIENT: Final = "10.1.2.3@4711#1"
_INCARNATION: Final = "6f1d2c90a4b84ef2"
GROUP_SETTINGS: Final = {"start": "earliest", "retries_max": 16}
GROUP: Final[dict[str, Any]] = {
    "group": "billing",
    "start": "earliest",
    "retries_max": 16,
    "retry_policy": None,
    "ordered": False,
    "consume_enabled": True,
    "broadcast_enabled": True,
    "subscription_mode": "shared",
    "created_at": "2026-11-21T08:00:00.004Z",
    "subscription_version": 1,
    "subscriptions": [_SUBSCRIPTION],
    "members": 2,
    "is_system": False,
}
NEW_GROUP: Final = GROUP | {"subscription_version": 0, "subscriptions": [], "members": 0}
GROUP_LIST: Final = {"groups": [GROUP], "next_cursor": "YmlsbGluZw"}
_HANDLING: Final = {
    "covered_seconds": 57.5,
    "message_count": 12_400,
    "failed_count": 3,
    "call_count": 12_400,
    "busy_seconds": 41.25,
    "longest_running_seconds": 0.5,
}
HEARTBEAT: Final = {
    "incarnation": _INCARNATION,
    "subscriptions": [_SUBSCRIPTION],
    "session_seconds": 30,
    "locks": [{"topic": "flights", "queue_id": 0, "token": 8_201_544}],
    "handling": _HANDLING,
}
MEMBER_ANSWER: Final = {
    "group": "billing",
    "client_id": _CLIENT,
    "generation": 1_000_000_004,
    "subscription_version": 1,
    "session_seconds": 30,
    "consume_enabled": True,
    "lost_locks": [],
    "topics_since": {"flights": "2026-11-21T08:00:00.004Z"},
}
MEMBER_LIST: Final = {
    "group": "billing",
    "generation": 1_000_000_004,
    "subscription_version": 1,
    "members": [
        {
            "client_id": _CLIENT,
            "incarnation": _INCARNATION,
            "address": "10.1.2.3:52044",
            "message_model": "clustering",
            "consume_type": "push",
            "is_static": False,
            "subscriptions": [_SUBSCRIPTION],
            "joined_at": "2026-11-21T08:00:00.004Z",
            "last_seen_at": "2026-11-21T08:03:20.118Z",
            "session_seconds": 30,
            "locks": [{"topic": "flights", "queue_id": 0}],
            "handling": _HANDLING,
        }
    ],
}
LOCK_REQUEST: Final = {
    "client_id": _CLIENT,
    "incarnation": _INCARNATION,
    "queues": [{"topic": "flights", "queue_id": 0}, {"topic": "flights", "queue_id": 1}],
    "wait_seconds": 20,
}
_STARTED: Final = {"offset": 0, "reason": "earliest", "at": "2026-11-21T08:00:00.004Z"}
LOCK_ANSWER: Final = {
    "locks": [
        {
            "topic": "flights",
            "queue_id": 0,
            "token": 8_201_544,
            "next_offset": 20_145,
            "committed_offset": 20_145,
            "started": _STARTED,
        }
    ],
    "refused": [
        {
            "topic": "flights",
            "queue_id": 1,
            "owner": "10.1.2.4@815#1",
            "expires_in_seconds": 24.8,
        }
    ],
}
LOCK_RELEASE: Final = {
    "client_id": _CLIENT,
    "incarnation": _INCARNATION,
    "queues": [{"topic": "flights", "queue_id": 0, "token": 8_201_544, "offset": 20_311}],
}
OFFSET_COMMITS: Final = [
    {"offsets": [{"topic": "flights", "queue_id": 0, "offset": 20_145}]},
    {
        "client_id": _CLIENT,
        "incarnation": _INCARNATION,
        "offsets": [{"topic": "flights", "queue_id": 0, "offset": 20_145, "token": 8_201_544}],
    },
]
GROUP_OFFSETS: Final = {
    "group": "billing",
    "offsets": [
        {
            "topic": "flights",
            "queue_id": 0,
            "committed_offset": 20_145,
            "min_offset": 0,
            "max_offset": 42_097,
            "lag": 21_952,
            "oldest_unconsumed_at": "2026-11-21T08:00:05.003Z",
            "started": _STARTED,
            "owner": _CLIENT,
        }
    ],
    "lag": 21_952,
    "oldest_unconsumed_at": "2026-11-21T08:00:05.003Z",
    "traffic": [{"topic": "flights", "message_count": 1_180, "size_bytes": 310_694}],
    "traffic_since": "2026-11-21T06:30:00.000Z",
}
GROUP_LAG_LIST: Final = {
    "lags": [
        {
            "group": "billing",
            "queue_count": 1,
            "lag": 21_952,
            "oldest_unconsumed_at": "2026-11-21T08:00:05.003Z",
        }
    ],
    "next_cursor": "YmlsbGluZw",
}
GROUP_AS_OF: Final[dict[str, Any]] = {
    "group": "billing",
    "log_offset": 8_419_007,
    "unknown": None,
    "exists": True,
    "consume_enabled": True,
    "subscriptions": [_SUBSCRIPTION],
    "queues": [
        {
            "topic": "flights",
            "queue_id": 0,
            "committed_offset": 18_003,
            "max_offset": 40_010,
            "lag": 22_007,
            "unfinished_count": 0,
            "owner": _CLIENT,
        }
    ],
    "snapshot_log_offset": 0,
}
OFFSET_RESETS: Final = [
    {"topic": "flights", "to": "2026-11-21T08:00:00Z", "dry_run": True},
    {"topic": "flights", "to": "earliest"},
    {"topic": "flights", "to": {"offset": 20_000}, "queue_ids": [0]},
]
RESET_ANSWER: Final = {
    "group": "billing",
    "topic": "flights",
    "dry_run": True,
    "queues": [
        {
            "queue_id": 0,
            "from_offset": 20_145,
            "to_offset": 0,
            "min_offset": 0,
            "max_offset": 42_097,
        }
    ],
}
