"""A lake of the flights, exported by Spark, and a table computed from it to compare with the file.

Spark runs in its own process, ``python -m demo.lake QUERY_URL LAKE TOPIC``. It reports its progress
as one JSON object per line: ``{"rows": 12000}`` during the export, and finally the results.

Mean delays are compared as sums and counts of whole minutes, so that equality is exact.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from demo.dataset import read_flights
from eruca.cli.counts import counted

_STOP_SECONDS: Final = 20.0
_BODY: Final = "carrier STRING, arr_delay INT"


class LakeError(Exception):
    """Spark failed; the text is its last output."""


@dataclass(frozen=True, slots=True)
class Delays:
    """A carrier's flights and their delays."""

    flights: int
    arrived: int  # with an arrival delay: neither cancelled nor diverted
    minutes: int  # total delay

    @property
    def mean(self) -> float | None:
        """Return the mean arrival delay in minutes; None if no flight arrived."""
        return self.minutes / self.arrived if self.arrived else None


@dataclass(frozen=True, slots=True)
class FlightsLake:
    """The export's result, and the table computed from it."""

    rows: int
    batches: int
    files: int
    size: int  # bytes
    export_seconds: float
    table_seconds: float
    by_carrier: Mapping[str, Delays]

    def faults(self, in_file: Mapping[str, Delays]) -> list[str]:
        """Return the discrepancies with the file, one sentence each."""
        return [
            f"carrier {carrier}: {in_file.get(carrier)} in the file, "
            f"{self.by_carrier.get(carrier)} in the lake"
            for carrier in sorted({*in_file, *self.by_carrier})
            if in_file.get(carrier) != self.by_carrier.get(carrier)
        ]


class _Arrival(msgspec.Struct):
    arr_delay: int | None


def is_spark_here() -> bool:
    """Return whether Spark is installed; it is half a gigabyte and optional."""
    return find_spec("pyspark") is not None


def delays_in_file(path: Path, limit: int | None = None) -> dict[str, Delays]:
    """Compute each carrier's delays from the file."""
    decode = msgspec.json.Decoder(_Arrival).decode
    sums: dict[str, list[int]] = {}
    for flight in read_flights(path, limit=limit):
        delay = decode(flight.body).arr_delay
        counted = sums.setdefault(flight.carrier, [0, 0, 0])
        counted[0] += 1
        if delay is not None:
            counted[1] += 1
            counted[2] += delay
    return {carrier: Delays(*counted) for carrier, counted in sums.items()}


async def build_lake(
    query_url: str, directory: Path, topic: str, progress: Callable[[int], None]
) -> FlightsLake:
    """Export a topic into *directory*, and compute the table there.

    Raises:
        LakeError: Spark failed.
    """
    command = ("-m", "demo.lake", query_url, str(directory), topic)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=PIPE, stderr=PIPE
    )
    assert process.stderr is not None
    said = asyncio.create_task(process.stderr.read())
    try:
        found = await _follow(process, progress)
        await process.wait()
        errors = (await said).decode(errors="replace").strip()
    finally:
        await _end(process)
    if found is None:
        raise LakeError(f"Spark ended with {process.returncode}: {errors[-2_000:]}")
    return found


async def _follow(process: Process, progress: Callable[[int], None]) -> FlightsLake | None:
    assert process.stdout is not None
    found = None
    async for line in process.stdout:
        said = json.loads(line)
        if "by_carrier" in said:
            carriers = {name: Delays(**delays) for name, delays in said.pop("by_carrier").items()}
            found = FlightsLake(by_carrier=carriers, **said)
        else:
            progress(said["rows"])
    return found


async def _end(process: Process) -> None:
    """Stop a process that still runs because the demo was interrupted."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def show_lake(console: Console, lake: FlightsLake, in_file: Mapping[str, Delays]) -> None:
    """Show the table beside the file's numbers."""
    table = Table(
        title="Mean arrival delay, computed by Spark from the lake",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
    )
    for heading in ("carrier", "flights", "arrived", "minutes late", "in the file", ""):
        table.add_column(heading, justify="left" if heading in ("carrier", "") else "right")
    for carrier in sorted({*in_file, *lake.by_carrier}):
        mine, theirs = lake.by_carrier.get(carrier), in_file.get(carrier)
        agrees = Text("equal", "green") if mine == theirs else Text("DIFFERS", "bold red")
        counts = ("-", "-") if mine is None else (f"{mine.flights:,}", f"{mine.arrived:,}")
        table.add_row(carrier, *counts, _minutes(mine), _minutes(theirs), agrees)
    console.print()
    console.print(table)
    console.print(
        f"{lake.rows:,} messages exported in {lake.export_seconds:.1f} s into "
        f"{counted(lake.files, 'Parquet file')} of {lake.size / 1e6:.1f} MB; "
        f"the table took {lake.table_seconds:.1f} s"
    )


def _minutes(delays: Delays | None) -> str:
    return "-" if delays is None or delays.mean is None else f"{delays.mean:.2f}"


def main(query_url: str, directory: str, topic: str) -> None:
    """Export and compute; report progress and results on stdout."""
    # Import Spark only in its own process: the demo itself must start without it.
    import time

    from pyspark.sql import functions as f

    from eruca_spark.export import run_export
    from eruca_spark.lake import Lake, read_lake
    from eruca_spark.session import spark_session

    with spark_session("flights") as spark:
        began = time.perf_counter()
        options = {"url": query_url, "topic": topic}
        done = run_export(spark, directory, options, watch=lambda done: _say({"rows": done.rows}))
        exported = time.perf_counter()
        body = f.from_json(f.col("body").cast("string"), _BODY)
        flights = read_lake(spark, directory).select(body.alias("flight")).select("flight.*")
        counted = flights.groupBy("carrier").agg(
            f.count(f.lit(1)).alias("flights"),
            f.count("arr_delay").alias("arrived"),
            f.coalesce(f.sum("arr_delay"), f.lit(0)).alias("minutes"),
        )
        by_carrier = {
            row["carrier"]: Delays(row["flights"], row["arrived"], row["minutes"])
            for row in counted.collect()
        }
        files = [file for manifest in Lake(spark, directory).manifests() for file in manifest.files]
        lake = FlightsLake(
            rows=done.rows,
            batches=done.batches,
            files=len(files),
            size=sum(size for _, size in files),
            export_seconds=exported - began,
            table_seconds=time.perf_counter() - exported,
            by_carrier=by_carrier,
        )
        _say(asdict(lake))


def _say(what: Mapping[str, object]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
