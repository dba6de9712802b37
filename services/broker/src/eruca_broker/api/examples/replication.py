"""Examples of replication, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

_UID: Final = "9f31c2d07be84a15"
_EPOCHS: Final = [
    {"epoch": 6, "begun_at": 0, "unclean": False},
    {"epoch": 7, "begun_at": 8_199_000, "unclean": False},
]
RUN_REQUEST: Final = {
    "acknowledged": 8_201_544,
    "sequence": 41,
    "answer": 57,
    "wait_seconds": 1.0,
    "bytes_max": 1_048_576,
}
LINEAGE: Final = {
    "replica_id": 2,
    "uid": _UID,
    "epoch": 7,
    "log_id": "5f0c9a6e1b7d4823",
    "epochs": _EPOCHS[:1],
    "min_offset": 0,
    "end": 8_199_000,
    "segment_bytes": 1_073_741_824,
    "tail": {
        "begin": 8_133_464,
        "end": 8_199_000,
        "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    },
}
LINEAGE_ANSWER: Final = {
    "epoch": 7,
    "cut_to": 8_199_000,
    "tail_begin": 8_133_464,
    "proved": True,
    "epochs": _EPOCHS,
    "confirmed": 8_201_544,
    "min_offset": 0,
    "segment_bytes": 1_073_741_824,
}
REPLICATION_STATUS: Final = {
    "role": "master",
    "replica_id": 1,
    "uid": "c2d07be84a159f31",
    "former_uids": [],
    "priority": 0,
    "epoch": 7,
    "last_epoch": 7,
    "known_epoch": 7,
    "known_number": 12,
    "damaged": False,
    "min_offset": 0,
    "end": 8_201_988,
    "durable": 8_201_988,
    "confirmed": 8_201_544,
    "kept_from": 8_201_544,
    "in_sync": [
        {"replica_id": 1, "uid": "c2d07be84a159f31"},
        {"replica_id": 2, "uid": _UID},
    ],
    "sole_master_seconds": 3.2,
    "replicas": [
        {
            "replica_id": 2,
            "uid": _UID,
            "in_sync": True,
            "end": 8_201_544,
            "behind_bytes": 444,
            "silent_seconds": 0.1,
            "behind_seconds": 0.1,
        }
    ],
    "following": None,
}
SWITCH: Final = {"to": 2}
SWITCH_RESULT: Final = {
    "epoch": 8,
    "master": {"replica_id": 2, "uid": "9f31c2d07be84a15"},
    "master_urls": {"default": "http://10.0.0.2:10911"},
}
