"""Examples of transactions, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

from eruca_broker.api.examples.messages import MESSAGE

_ID: Final = "7F00000100002A9F000000000134F1F5"
NEW: Final = {
    "topic": "payments",
    "producer_group": "orders",
    "message": {"body": {"json": {"order": 1545, "amount": "19.90"}}, "keys": ["order-1545"]},
    "check_immunity_seconds": 30,
}
RECEIPT: Final = {
    "transaction_id": _ID,
    "broker_name": "broker-a",
    "topic": "payments",
    "queue_id": 3,
    "half_queue_offset": 1041,
    "half_log_offset": 8_201_544,
    "begun_at": "2026-11-21T08:00:00.123Z",
    "durability": "written",
    "repeated": False,
}
COMMIT: Final = {"producer_group": "orders"}
COMMIT_BY_CHECK: Final = {"producer_group": "orders", "by": "check", "check_number": 2}
COMMIT_BY_OPERATOR: Final = {"by": "operator", "reason": "the order was paid, see ticket 4711"}
ROLLBACK: Final = {"producer_group": "orders", "reason": "the card was declined"}
COMMITS: Final = {
    "producer": {"summary": "by its producer", "value": COMMIT},
    "check": {"summary": "in answer to a check", "value": COMMIT_BY_CHECK},
    "operator": {"summary": "by an operator", "value": COMMIT_BY_OPERATOR},
}
ROLLBACKS: Final = {"producer": {"summary": "by its producer", "value": ROLLBACK}}
COMMITTED: Final = {
    "transaction_id": _ID,
    "state": "committed",
    "outcome": "commit",
    "by": "producer",
    "decided_at": "2026-11-21T08:00:00.310Z",
    "reason": None,
    "check_number": None,
    "message": {
        "topic": "payments",
        "queue_id": 3,
        "queue_offset": 977,
        "log_offset": 8_202_410,
        "deliver_at": None,
    },
    "durability": "written",
    "repeated": False,
}
ROLLED_BACK: Final = COMMITTED | {
    "state": "rolled_back",
    "outcome": "rollback",
    "reason": "the card was declined",
    "message": None,
}
NEW_MANY: Final = {
    "transactions": [
        NEW,
        {
            "topic": "payments",
            "producer_group": "orders",
            "message": {"body": {"json": {"order": 1546, "amount": "7.20"}}},
        },
    ]
}
BEGUN_MANY: Final = {
    "results": [
        {"receipt": RECEIPT, "problem": None, "retry_after_seconds": None},
        {
            "receipt": RECEIPT
            | {
                "transaction_id": "7F00000100002A9F000000000134F1F6",
                "queue_id": 0,
                "half_queue_offset": 1042,
                "half_log_offset": 8_202_220,
            },
            "problem": None,
            "retry_after_seconds": None,
        },
    ]
}
DECIDE_MANY: Final = {
    "transactions": [
        {"transaction_id": _ID, "outcome": "commit", "producer_group": "orders"},
        {
            "transaction_id": "7F00000100002A9F000000000134F1F6",
            "outcome": "rollback",
            "producer_group": "orders",
        },
    ]
}
DECIDED_MANY: Final = {
    "results": [
        {"receipt": COMMITTED, "problem": None, "retry_after_seconds": None},
        {
            "receipt": None,
            "problem": {
                "type": "/problems/transaction-not-found",
                "title": "The transaction does not exist",
                "status": 404,
                "detail": "no transaction '7F00000100002A9F000000000134F1F6' was begun at this "
                "broker, as far as its log remembers",
                "code": "transaction-not-found",
                "request_id": "4f1c9a7be20d3358",
                "retryable": False,
                "fix": None,
            },
            "retry_after_seconds": None,
        },
    ]
}
CHECK: Final = {"number": 1, "checker": "txn-checker-1"}
CHECK_GRANT: Final = {
    "transaction_id": _ID,
    "number": 1,
    "checked_at": "2026-11-21T08:00:30.126Z",
}
EXPIRE: Final = {"checks": 15, "checker": "txn-checker-1"}
PARKED: Final = COMMITTED | {
    "state": "parked",
    "outcome": "rollback",
    "by": "limit",
    "decided_at": "2026-11-21T08:07:36.402Z",
    "message": None,
}
SUMMARY: Final = {
    "transaction_id": _ID,
    "broker_name": "broker-a",
    "producer_group": "orders",
    "topic": "payments",
    "queue_id": 3,
    "state": "pending",
    "begun_at": "2026-11-21T08:00:00.123Z",
    "check_immunity_seconds": 30.0,
    "checks": 1,
    "last_check_at": "2026-11-21T08:00:30.126Z",
    "decision": None,
    "half_log_offset": 8_201_544,
}
LIST: Final = {"transactions": [SUMMARY], "next_cursor": "ODIwMTI1MA"}
DETAIL: Final = SUMMARY | {
    "message": MESSAGE
    | {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "queue_id": 0,
        "body": {"json": {"order": 1545, "amount": "19.90"}},
    },
    "committed": None,
    "history": [
        {
            "event": "begun",
            "at": "2026-11-21T08:00:00.123Z",
            "log_offset": 8_201_250,
            "by": "producer",
            "check_number": None,
            "checker": None,
            "reason": None,
        },
        {
            "event": "checked",
            "at": "2026-11-21T08:00:30.126Z",
            "log_offset": 8_419_007,
            "by": None,
            "check_number": 1,
            "checker": "txn-checker-1",
            "reason": None,
        },
    ],
}
AS_OF: Final = {
    "transaction_id": SUMMARY["transaction_id"],
    "log_offset": 8_419_007,
    "state": "pending",
    "unknown": None,
    "checks": 0,
}
