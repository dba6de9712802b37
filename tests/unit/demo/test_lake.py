"""The demo's reference for a lake: the file's own delays."""

from __future__ import annotations

from dataclasses import replace

from demo.dataset import find_data_file, read_flights
from demo.lake import Delays, FlightsLake, delays_in_file

LIMIT = 2_000


def test_a_mean_is_of_the_flights_that_arrived() -> None:
    assert Delays(flights=5, arrived=4, minutes=10).mean == 2.5
    assert Delays(flights=5, arrived=0, minutes=0).mean is None


def test_the_file_s_flights_are_all_counted_and_some_never_arrived() -> None:
    path = find_data_file()
    delays = delays_in_file(path, LIMIT)

    assert sum(one.flights for one in delays.values()) == LIMIT
    assert 0 < sum(one.arrived for one in delays.values()) < LIMIT
    assert set(delays) == {flight.carrier for flight in read_flights(path, limit=LIMIT)}


def test_a_lake_that_agrees_has_no_faults_and_any_other_names_the_carrier() -> None:
    in_file = {"UA": Delays(3, 2, 7), "AA": Delays(1, 1, -4)}
    lake = FlightsLake(4, 1, 1, 100, 1.0, 1.0, in_file)

    assert lake.faults(in_file) == []
    off = replace(lake, by_carrier={"UA": Delays(3, 2, 8), "B6": Delays(1, 1, 0)})
    assert [fault.split(":")[0] for fault in off.faults(in_file)] == [
        "carrier AA",
        "carrier B6",
        "carrier UA",
    ]
