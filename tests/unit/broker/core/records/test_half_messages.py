"""The delay of a committed half message, whichever broker has stored it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eruca.contract.properties import encode_properties
from eruca.contract.records import encode_record
from eruca_broker.core.records.half_messages import wait_of
from eruca_broker.core.records.scheduled import Wait
from eruca_broker.core.records.times import TIMESTAMP_MAX
from support.records import example_record

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("said", "wait"),
    [
        ({}, None),
        ({"DELAY": "3", "TIMER_DELAY_SEC": "60"}, Wait(level=3)),
        ({"DELAY": "19"}, Wait(level=18)),
        ({"DELAY": "0", "TIMER_DELAY_MS": "7"}, Wait(deliver_at_ms=NOW_MS + 7)),
        ({"TIMER_DELAY_SEC": "2", "TIMER_DELAY_MS": "7"}, Wait(deliver_at_ms=NOW_MS + 2_000)),
        (
            {"TIMER_DELAY_MS": "7", "TIMER_DELIVER_MS": str(NOW_MS + 1)},
            Wait(deliver_at_ms=NOW_MS + 7),
        ),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 1)}, Wait(deliver_at_ms=NOW_MS + 1)),
        ({"TIMER_DELIVER_MS": str(NOW_MS)}, None),
        ({"TIMER_DELAY_SEC": "0", "TIMER_DELAY_MS": "7"}, None),
        ({"TIMER_DELAY_SEC": "x"}, None),
        ({"TIMER_DELAY_SEC": "9" * 18}, Wait(deliver_at_ms=TIMESTAMP_MAX)),
    ],
)
def test_what_it_says_is_taken_as_rocketmq_takes_it(
    said: dict[str, str], wait: Wait | None
) -> None:
    half = encode_record(replace(example_record(), properties=encode_properties(said)))

    assert wait_of(half, NOW_MS) == wait
