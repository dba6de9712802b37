"""Examples of bodies and answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

_ID: Final = "7F00000100002A9F000000000134F1F5"
_CHECK_ID: Final = "5e7be3a5a28d3f0f9b6f0b4f3f8e21a4c0d96b21"
_CHECKER: Final = "txn-checker-1f00c2d9"
CHECK: Final = {
    "check_id": _CHECK_ID,
    "transaction_id": _ID,
    "producer_group": "orders",
    "broker_name": "broker-a",
    "topic": "payments",
    "queue_id": 3,
    "number": 2,
    "begun_at": "2026-11-21T08:00:00.123Z",
    "asked_at": "2026-11-21T08:00:36.411Z",
    "answer_until": "2026-11-21T08:01:06.402Z",
    "message": {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "queue_id": 0,
        "queue_offset": 1041,
        "log_offset": 8_201_544,
        "size": 431,
        "damage": None,
        "message_id": _ID,
        "offset_message_id": "7F00000100002A9F00000000007D2548",
        "tag": None,
        "keys": ["order-1545"],
        "sharding_key": None,
        "properties": {},
        "body": {"json": {"order": 1545, "amount": "19.90"}},
        "flag": 0,
        "reconsume_times": 0,
        "born_at": "2026-11-21T08:00:00.121Z",
        "born_host": "127.0.0.1:52044",
        "stored_at": "2026-11-21T08:00:00.123Z",
        "store_host": "127.0.0.1:10911",
    },
}
CHECKS: Final = {"checks": [CHECK]}
COMMIT: Final = {"answer": "commit", "client_id": "10.1.2.3@4711#1"}
ROLLBACK: Final = {"answer": "rollback", "reason": "the card was declined"}
UNKNOWN: Final = {"answer": "unknown"}
DECISION: Final = {
    "outcome": "commit",
    "by": "check",
    "decided_at": "2026-11-21T08:00:36.502Z",
    "reason": None,
    "check_number": 2,
}
OUTCOME: Final = {
    "check_id": _CHECK_ID,
    "transaction_id": _ID,
    "state": "committed",
    "decision": DECISION,
    "repeated": False,
}
WEBHOOK_SETTINGS: Final = {"url": "https://orders.example.com/eruca/checks", "timeout_seconds": 5}
WEBHOOK: Final = {
    "producer_group": "orders",
    "url": "https://orders.example.com/eruca/checks",
    "timeout_seconds": 5,
    "enabled": True,
    "updated_at": "2026-11-21T08:00:00.123Z",
    "secret": None,
    "last_answer_at": "2026-11-21T08:00:36.502Z",
    "last_error": None,
}
NEW_WEBHOOK: Final = WEBHOOK | {
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
    "last_answer_at": None,
}
SUMMARY: Final = {
    "transaction_id": _ID,
    "broker_name": "broker-a",
    "producer_group": "orders",
    "topic": "payments",
    "queue_id": 3,
    "state": "pending",
    "begun_at": "2026-11-21T08:00:00.123Z",
    "check_immunity_seconds": None,
    "checks": 1,
    "last_check_at": "2026-11-21T08:00:06.402Z",
    "decision": None,
    "half_log_offset": 8_201_544,
}
FOLLOWED: Final = {
    "broker_name": "broker-a",
    "log_offset": 8_419_310,
    "end_offset": 8_419_310,
    "behind_bytes": 0,
    "read_at": "2026-11-21T08:00:09.871Z",
    "followed_by": _CHECKER,
}
LIST: Final = {"transactions": [SUMMARY], "next_cursor": None, "followed": [FOLLOWED]}
DETAIL: Final = SUMMARY | {
    "next_check_at": "2026-11-21T08:00:36.402Z",
    "checks_sent": [
        {
            "check_id": "0b7f6a5a28d3f0f9b6f0b4f3f8e21a4c0d96b2f1",
            "number": 1,
            "checker": _CHECKER,
            "checked_at": "2026-11-21T08:00:06.402Z",
            "asked": "10.1.2.3@4711#1",
            "asked_at": "2026-11-21T08:00:06.411Z",
            "answer_until": "2026-11-21T08:00:36.402Z",
            "answer": "unknown",
            "answered_by": "10.1.2.3@4711#1",
            "answered_at": "2026-11-21T08:00:06.440Z",
            "reason": None,
            "fault": None,
        }
    ],
}
OPERATOR_COMMIT: Final = {"reason": "the order was paid, see ticket 4711"}
OPERATOR_ROLLBACK: Final = {"reason": "the order does not exist"}
COMMITTED: Final = {
    "transaction_id": _ID,
    "state": "committed",
    "outcome": "commit",
    "by": "operator",
    "decided_at": "2026-11-21T09:12:44.310Z",
    "reason": "the order was paid, see ticket 4711",
    "check_number": None,
    "message": {
        "topic": "payments",
        "queue_id": 3,
        "queue_offset": 977,
        "log_offset": 8_502_410,
        "deliver_at": None,
    },
    "durability": "written",
    "repeated": False,
}
ROLLED_BACK: Final = COMMITTED | {
    "state": "rolled_back",
    "outcome": "rollback",
    "reason": "the order does not exist",
    "message": None,
}
STATUS: Final = {
    "version": "0.1.0",
    "name": _CHECKER,
    "started_at": "2026-11-21T07:58:12.404Z",
    "rules": {
        "timeout_seconds": 6,
        "interval_seconds": 30,
        "checks_max": 15,
        "age_seconds_max": 259_200,
        "counts_unreachable": True,
    },
    "brokers": ["broker-a"],
    "faults": {},
    "followed": [FOLLOWED],
    "held_requests": 4,
    "held_requests_max": 5_000,
}
