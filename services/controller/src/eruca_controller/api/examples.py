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
    "number": 12,
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
POLICY: Final[dict[str, Any]] = {
    "roles": {"administrator": ["user:ann"]},
    "rules": [{"allow": ["produce"], "on": ["topic:orders"], "to": ["user:checkout"]}],
    "keys": [
        {
            "id": "k7qjx2mzad",
            "principal": "user:ann",
            "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        }
    ],
}
POLICY_PUT: Final[dict[str, Any]] = {"policy": POLICY, "reason": "the shop sends orders now"}
_DIFFERENCES: Final[dict[str, Any]] = {
    "rights": [
        {
            "principal": "user:checkout",
            "right": "produce",
            "on": "topic:orders",
            "before": "refused",
            "after": "allowed",
        }
    ],
    "right_count": 1,
    "keys_added": ["k7qjx2mzad of user:ann"],
    "keys_removed": [],
    "keys_changed": [],
    "issuers_added": [],
    "issuers_removed": [],
    "issuers_changed": [],
    "quotas_added": [],
    "quotas_removed": [],
    "namespaces_added": [],
    "namespaces_removed": [],
}
_POLICY_CHANGE: Final[dict[str, Any]] = {
    "number": 12,
    "version": VERSION,
    "changed_at": "2026-11-21T08:00:05.000Z",
    "by": "user:ann",
    "reason": "the shop sends orders now",
}
POLICY_VIEW: Final[dict[str, Any]] = {
    **_POLICY_CHANGE,
    "policy": {
        "roles": POLICY["roles"],
        "rules": [{**POLICY["rules"][0], "deny": [], "from": [], "until": None}],
        "keys": [{**POLICY["keys"][0], "created_at": None, "expires_at": None, "note": ""}],
        "issuers": [],
        "quotas": [],
        "namespaces": [],
    },
}
POLICY_PREVIEW: Final[dict[str, Any]] = {
    "version": "11-0b1c2d3e4f5a6978",
    "locks_out": False,
    "differences": _DIFFERENCES,
}
POLICY_HISTORY: Final[dict[str, Any]] = {
    "changes": [{**_POLICY_CHANGE, "rule_count": 1, "key_count": 1, "differences": _DIFFERENCES}],
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
