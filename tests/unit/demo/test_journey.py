"""A flight as a message, and what does not lead back to it."""

from __future__ import annotations

import eruca
from demo.dataset import Flight
from demo.journey import Found, message_of
from eruca.contract.records import Host

FLIGHT = Flight(7, "UA", "UA1545", "2013-01-01", "N14228", b'{"row":7}')
BODY = '{"row":7}'
RESULT = eruca.SendResult(
    message_id="C0",
    queue=eruca.MessageQueue("flights", "broker-a", 0),
    queue_offset=0,
    log_offset=0,
    stored_at_ms=0,
    durability="written",
    store_host=Host.parse("127.0.0.1", 10911),
)


def test_a_flight_is_ordered_by_aircraft_and_found_by_flight_and_date() -> None:
    message = message_of("flights", FLIGHT)

    assert (message.topic, message.body) == ("flights", FLIGHT.body)
    assert (message.tag, message.keys) == ("UA", ("UA1545", "2013-01-01"))
    assert message.sharding_key == "N14228"


def test_a_flight_found_in_every_way_is_right() -> None:
    found = Found(FLIGHT, RESULT, BODY, by_unique_id=[BODY], by_key=[BODY, "another day's"])

    assert found.faults(by_key_count=2) == []


def test_each_way_that_does_not_lead_to_the_flight_is_named() -> None:
    found = Found(FLIGHT, RESULT, "another", by_unique_id=[BODY, BODY], by_key=[])

    faults = found.faults(by_key_count=1)

    assert [fault.split(":")[0] for fault in faults] == [
        f"offset id {RESULT.offset_message_id}",
        "unique id C0",
        "key UA1545",
    ]
