"""Examples of bodies and answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

_URLS: Final = {"default": "http://127.0.0.1:10911"}
REGISTRATION: Final = {
    "cluster": "eruca",
    "urls": _URLS,
    "store_host": "127.0.0.1:10911",
    "data_version": 1,
    "topics": [
        {
            "topic": "flights",
            "read_queue_count": 8,
            "write_queue_count": 8,
            "permission": "rw",
        }
    ],
    "expiry_seconds": 20,
    "epoch": 7,
    "role": "master",
    "replica_id": 1,
    "former_store_hosts": ["127.0.0.1:10912"],
}
REGISTERED: Final[dict[str, Any]] = {
    "broker_name": "broker-a",
    "broker_id": 0,
    "needs_topics": False,
    "order_topics": {"flights": "broker-a:8"},
    "ordered_topics": {},
    "ordered_topics_digest": "1f6a0c3d9b5e4f7281a6b3c4d5e6f708",
}
BROKERS: Final = {
    "brokers": [
        {
            "cluster": "eruca",
            "broker_name": "broker-a",
            "epoch": 7,
            "former_store_hosts": ["127.0.0.1:10912"],
            "brokers": [
                {
                    "broker_id": 0,
                    "epoch": 7,
                    "role": "master",
                    "replica_id": 1,
                    "urls": _URLS,
                    "store_host": "127.0.0.1:10911",
                    "data_version": 1,
                    "last_seen_at": "2026-11-21T08:00:05.000Z",
                    "expires_at": "2026-11-21T08:00:25.000Z",
                }
            ],
        }
    ]
}
CLUSTERS: Final = {"clusters": {"eruca": ["broker-a", "broker-b"]}}
TOPICS: Final = {"topics": ["flights"], "next_cursor": None}
ROUTE: Final = {
    "topic": "flights",
    "queues": [
        {
            "broker_name": "broker-a",
            "read_queue_count": 8,
            "write_queue_count": 8,
            "permission": "rw",
        }
    ],
    "brokers": [
        {
            "cluster": "eruca",
            "broker_name": "broker-a",
            "urls": {"0": _URLS},
            "store_hosts": {"0": "127.0.0.1:10911"},
            "epoch": 7,
            "roles": {"0": "master"},
            "replica_ids": {"0": 1},
        }
    ],
    "order_config": None,
}
KV_VALUE: Final = {"value": "broker-a:8"}
KV_ENTRY: Final = {"namespace": "ORDER_TOPIC_CONFIG", "key": "flights", "value": "broker-a:8"}
KV_NAMESPACE: Final = {"namespace": "ORDER_TOPIC_CONFIG", "entries": {"flights": "broker-a:8"}}
STATUS: Final = {
    "version": "0.1.0",
    "started_at": "2026-11-21T07:58:12.404Z",
    "settling_seconds": 0,
    "brokers": 1,
    "topics": 1,
    "held_requests": 0,
    "held_requests_max": 5_000,
}
