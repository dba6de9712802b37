"""Examples of audit records, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

REPORT: Final = {
    "an act": {
        "summary": "Somebody removed an entry at a name server",
        "value": {
            "records": [
                {
                    "at": "2026-11-21T08:00:00.123Z",
                    "event": "act",
                    "service": "namesrv 10.0.0.5:9876",
                    "principal": "user:ann",
                    "credential": "key:k3x9a2mq",
                    "address": "10.1.2.3",
                    "operation": "deleteKv",
                    "resource": "cluster",
                    "decision": "allowed",
                    "status": 204,
                    "rule": "grant produce, consume, query, administer on cluster to "
                    "role:administrator",
                    "request_id": "6f1d2c90a4b84ef2",
                }
            ]
        },
    }
}
