"""The ledger agrees with what is right and names what is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demo.dataset import Flight
from demo.ledger import Ledger, percentile

FLIGHTS = [
    Flight(0, "UA", "UA1", "2013-01-01", "N1", b"zero"),
    Flight(1, "AA", "AA2", "2013-01-01", "N2", b"one"),
    Flight(2, "UA", "UA3", "2013-01-02", "N1", b"two"),
]
QUEUE = ("broker-a", 0)


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    for flight in FLIGHTS:
        ledger.note_sent(flight)
    return ledger


def receive(ledger: Ledger, *rows: int, queue: tuple[str, int] = QUEUE) -> None:
    for row in rows:
        flight = FLIGHTS[row]
        ledger.note_received(
            row=row, body=flight.body, carrier=flight.carrier, tail=flight.tail, queue=queue
        )


def test_everything_back_once_and_in_order_is_right(ledger: Ledger) -> None:
    receive(ledger, 0, 1, 2)

    assert ledger.faults() == []
    assert (ledger.sent, ledger.received) == (3, 3)
    assert ledger.sent_bytes == ledger.received_bytes == len(b"zeroonetwo")


def test_a_flight_that_does_not_come_back_is_missed(ledger: Ledger) -> None:
    receive(ledger, 0, 2)

    assert ledger.faults() == [
        "1 flights that did not come back, such as row 1",
        "carrier AA: 1 in the file, 0 came back",
    ]


def test_a_flight_that_comes_back_twice_is_noticed(ledger: Ledger) -> None:
    receive(ledger, 0, 1, 1, 2)

    faults = "\n".join(ledger.faults())
    assert "came back twice, such as row 1" in faults
    assert "carrier AA: 1 in the file, 2 came back" in faults


def test_a_changed_body_is_noticed(ledger: Ledger) -> None:
    receive(ledger, 0, 1)
    ledger.note_received(row=2, body=b"twe", carrier="UA", tail="N1", queue=QUEUE)

    assert ledger.faults() == ["1 flights whose body changed, such as row 2"]


def test_an_aircrafts_flights_out_of_order_are_noticed(ledger: Ledger) -> None:
    receive(ledger, 2, 1, 0)

    assert ledger.faults() == ["1 flights out of order, such as N1: row 0 after row 2"]


def test_an_aircraft_in_two_queues_is_noticed(ledger: Ledger) -> None:
    receive(ledger, 0, 1)
    receive(ledger, 2, queue=("broker-b", 3))

    [fault] = ledger.faults()
    assert fault.startswith("1 aircraft in two queues, such as N1")


def test_what_was_never_sent_is_noticed(ledger: Ledger) -> None:
    receive(ledger, 0, 1, 2)
    ledger.note_received(row=3, body=b"?", carrier=None, tail=None, queue=QUEUE)

    assert ledger.faults() == [
        "1 flights that were never sent, such as row 3",
        "carrier none: 0 in the file, 1 came back",
    ]


@given(st.lists(st.floats(0, 1e9), min_size=1), st.sampled_from([1, 50, 99, 100]))
def test_a_percentile_is_a_value_that_so_many_do_not_exceed(
    values: list[float], percent: int
) -> None:
    ordered = sorted(values)

    value = percentile(ordered, percent)

    assert value in ordered
    assert sum(other <= value for other in ordered) * 100 >= percent * len(ordered)
