"""Messages as brokers tell of them: what cannot be one is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from eruca.contract.messages import PulledBody, PulledMessage
from eruca_query.core.pulled_messages import found_of

SOUND = PulledMessage(
    topic="flights",
    queue_id=3,
    queue_offset=2**63 - 1,
    log_offset=2**63 - 1,
    size=120,
    message_id="a1",
    offset_message_id="0A000001000000010000000000000000",
    tag="UA",
    keys=["k1", "k2"],
    sharding_key=None,
    properties={},
    body=PulledBody(text="paid"),
    flag=0,
    reconsume_times=0,
    born_at="2026-11-21T08:00:00.001Z",
    born_host="10.0.0.2:1",
    stored_at="2026-11-21T08:00:00.002Z",
    store_host="10.0.0.1:1",
)


def test_a_sound_message_can_be_shown() -> None:
    shown = found_of("broker-a", SOUND).shown()

    assert shown.offset_message_id == "0A00000100000001" + "7FFFFFFFFFFFFFFF"
    assert (shown.stored_at - shown.born_at).microseconds == 1_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"log_offset": 2**63},
        {"log_offset": 2**80},
        {"log_offset": -1},
        {"queue_id": 2**31},
        {"queue_offset": 2**63},
        {"size": 2**31},
        {"stored_at": "yesterday"},
        {"born_at": "2026-11-21T08:00:00"},
        {"store_host": "10.0.0.1:99999"},
    ],
)
def test_what_can_be_no_message_is_refused_by_one_kind_of_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        found_of("broker-a", msgspec.structs.replace(SOUND, **wrong))
