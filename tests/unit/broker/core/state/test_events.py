"""Control records: their fields keep their stored names, whatever the code calls them."""

from __future__ import annotations

import json

import pytest

from eruca.contract.records import Host
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.events import Event, decode_event, encode_event
from eruca_broker.core.state.group_events import ExponentialDelays, GroupPut, GroupSettings
from eruca_broker.core.state.lease_events import DeliveriesLeased, LeasedMessage
from support.records import decode_draft

HOST = Host.parse("127.0.0.1", 10911)
POLICY = {"kind": "exponential", "initial_seconds": 5.0, "multiplier": 2.0, "seconds_max": 60.0}
SETTINGS = {"retries_max": 3, "retry_policy": POLICY}
LEASED = {"from_position": 5, "position": 8, "visible_at": 60, "leased": [[5, 1]], "parked": [6]}
MASTER = {"replica_id": 2, "uid": "9f2c51d07ab3e846", "store_host": "10.0.0.2:10911"}
STORED: list[tuple[dict[str, object], Event]] = [
    (
        {"event": "group_put", "group": "g", "settings": SETTINGS, "at": 7},
        GroupPut("g", GroupSettings("latest", 3, ExponentialDelays(5, 2, 60)), 7),
    ),
    (
        {"event": "deliveries_leased", "group": "g", "topic": "t", "queue_id": 0, **LEASED},
        DeliveriesLeased("g", "t", 0, 5, 8, 60, [LeasedMessage(5, 1)], overtaken=[6]),
    ),
    (
        {"event": "epoch_began", "epoch": 7, **MASTER, "begun_at_ms": 99, "begun_at": 640},
        EpochBegan(7, 2, "9f2c51d07ab3e846", "10.0.0.2:10911", 99, begun_at=640),
    ),
]


@pytest.mark.parametrize(("stored", "event"), STORED, ids=[str(s["event"]) for s, _ in STORED])
def test_an_event_is_read_and_written_under_its_stored_names(
    stored: dict[str, object], event: Event
) -> None:
    written = decode_draft(encode_event(event, now_ms=0, host=HOST)).body

    assert decode_event(json.dumps(stored).encode()) == event
    assert stored.items() <= _without_defaults(json.loads(written)).items()


def _without_defaults(written: dict[str, object]) -> dict[str, object]:
    """Return *written* with no more settings than the stored ones have."""
    settings = written.get("settings")
    if isinstance(settings, dict):
        written["settings"] = {name: settings[name] for name in SETTINGS}
    return written
