"""Examples of bodies and answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

_ONE: Final = {"replica_id": 1, "uid": "9f31c2d07be84a15"}
_TWO: Final = {"replica_id": 2, "uid": "4c77e0a9d2b15f63"}
GROUP: Final[dict[str, Any]] = {
    "epoch": 7,
    "master": _ONE,
    "in_sync": [_ONE, _TWO],
    "replicas": [
        {**_ONE, "urls": {"default": "http://127.0.0.1:10911"}, "kind": "member", "priority": 0},
        {**_TWO, "urls": {"default": "http://127.0.0.1:10912"}, "kind": "member", "priority": 0},
    ],
    "min_in_sync": 1,
    "flush_mode": "async",
    "unclean": False,
    "by": "broker-a replica 1",
    "reason": "replica 2 has caught up",
}
VERSION: Final = "12-5f0c9a6e1b7d4823"
VIEW: Final[dict[str, Any]] = {
    "broker_name": "broker-a",
    "version": VERSION,
    "changed_at": "2026-11-21T08:00:05.000Z",
    **GROUP,
}
GROUPS: Final = {"groups": [VIEW], "next_cursor": None}
HISTORY: Final = {
    "broker_name": "broker-a",
    "changes": [
        {
            "kind": "changed",
            "version": VERSION,
            "changed_at": "2026-11-21T08:00:05.000Z",
            "epoch": 7,
            "master": _ONE,
            "in_sync": [_ONE, _TWO],
            "min_in_sync": 1,
            "unclean": False,
            "by": "broker-a replica 1",
            "reason": "replica 2 has caught up",
        }
    ],
    "next_cursor": None,
}
STATUS: Final = {
    "version": "0.1.0",
    "started_at": "2026-11-21T07:58:12.404Z",
    "store": "postgres",
    "changes": 12,
    "held_requests": 2,
    "held_requests_max": 5_000,
}
