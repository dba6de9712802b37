"""Goals: the minimum of each ratio, and the value that a prototype once reached.

All are ratios of two figures of the same run, so that they mean the same on another machine. The
prototype had no validation, metrics or limits; it shows the potential of the design.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Goal(NamedTuple):
    """The goal of a ratio."""

    what: str
    ask: float
    prototype: str
    at_most: bool = False  # True for a cost: less is better


GOALS: Final = {
    "single": Goal("single record, async flush / raw uvicorn sink, per CPU-s", 1.6, "0.77-0.82"),
    "single-sync": Goal("single record, group commit / raw sink, per CPU-s", 0.50, "0.58-0.66"),
    "json": Goal("single JSON message / raw sink, per CPU-s", 0.55, "0.92 without append"),
    "store-1000": Goal("storage function, 1 KiB x 1000, one queue / pwrite", 0.33, "0.42"),
    "store-100": Goal("storage function, 1 KiB x 100 / pwrite of the same bytes", 0.15, "0.22"),
    "store-mixed": Goal("8 queues mixed / one queue, 1 KiB x 1000", 0.50, "0.65"),
    "batch-1000": Goal("batch 1 KiB x 1000 / same upload discarded, per CPU-s", 0.40, "0.45-0.52"),
    "batch-100": Goal("batch 1 KiB x 100 / same upload discarded, per CPU-s", 0.30, "0.39"),
    "batch-rate": Goal("batch msgs at 1 KiB x 1000 / raw sink requests, per CPU-s", 35, "48"),
    "pull-256": Goal("pull of 256, one queue / fixed answer of that size, per CPU-s", 0.45, "0.60"),
    "pull-32": Goal("pull of 32, one queue / fixed answer, per CPU-s", 0.35, "0.43"),
    "pull-mixed": Goal("pull of 256, 8 queues interleaved / fixed, per CPU-s", 0.22, "0.32"),
    "e2e-send": Goal("end to end, await send, msgs/s / raw sink requests/s", 6, "7"),
    "e2e-many": Goal("end to end, send_many(1000), msgs/s / raw sink requests/s", 13, "14"),
    "ahead": Goal(
        "one queue, send_many, 5 ms each way: 4 batches ahead / 1 at a time, msgs/s", 2, "-"
    ),
    "ack-p99": Goal("ack p99 at half of its own maximum, ms", 50, "2.5-3", at_most=True),
    "group-commit": Goal("group commit, 64 in flight, no HTTP: messages per fdatasync", 32, "64"),
    "group-commit-http": Goal("group commit, 64 connections: messages per fdatasync", 16, "28-32"),
    "cold-ack-p99": Goal(
        "ack p99 beside cold reads at the disk's rate / alone", 2, "-", at_most=True
    ),
    "spared-evaluations": Goal(
        "conditions on properties: evaluations of the first reader / the second", 10, "-"
    ),
    "wake": Goal(
        "wake of a held pull, 1 000 held, p50 / p50 of a raw request", 3, "1.0", at_most=True
    ),
    "held-memory": Goal("KB per held pull, connection included", 20, "10", at_most=True),
    "index": Goal("key index insert, batches of 1000 / SQLite in WAL mode", 30, "> 150"),
    "start": Goal("start of a broker / import fastapi, by CPU-s", 2.5, "-", at_most=True),
    "two-brokers": Goal("two brokers / one, per CPU-s", 0.85, "0.94-1.02"),
    "export-columns": Goal("export, records to an Arrow stream / read one by one", 5, "-"),
    "export-memory": Goal("export, MiB the query service grows by", 100, "< 50", at_most=True),
    "projection": Goal("read model, rows/s / COPY of the same rows without an index", 0.31, "0.16"),
    "projection-indexed": Goal("read model, rows/s / COPY with the same indexes", 0.5, "-"),
    "spark-copy": Goal(
        "Spark export into Parquet / local Parquet into Parquet", 0.6, "0.69-0.80; files 1.1"
    ),
    "spark-cpu": Goal(
        "the same, CPU of all processes a row / local copy", 1.5, "1.2-1.3", at_most=True
    ),
    "spark-json": Goal("Spark export / local JSON into Parquet", 0.75, "0.77-1.2"),
    "spark-incremental": Goal("incremental export / plain batch job", 0.7, "0.82-0.85"),
    "spark-ndjson": Goal("Spark export / the same over NDJSON", 1.8, "2.0-2.5"),
    "spark-stream": Goal("one stream to nothing / Spark reading to nothing", 1.5, "2"),
    "spark-neighbour": Goal(
        "p99 of a small request to the query service, two exports / idle", 5, "3", at_most=True
    ),
    "spark-jdbc": Goal("Spark export / Spark's JDBC reader", 0.9, "1.04-1.4"),
    "spark-memory": Goal(
        "memory of a Python worker, all rows / a fifth of them", 1.2, "1.0", at_most=True
    ),
    "spark-jvm": Goal("JVM, MiB beyond its heap with all rows", 512, "-", at_most=True),
    "spark-workers": Goal(
        "memory of a Python worker, 500 000 rows a task / 25 000", 1.2, "1.0", at_most=True
    ),
    "spark-service": Goal(
        "query service, MiB more for all rows than for a fifth", 100, "< 50", at_most=True
    ),
    "lake-delta": Goal("export into Delta Lake / export into Parquet, by Spark", 0.85, "-"),
    "lake-iceberg": Goal("export into Iceberg / export into Parquet, by Spark", 0.85, "-"),
    "lake-nothing": Goal("export that finds nothing new, s", 2.5, "-", at_most=True),
    "segments-copy": Goal("segments into Parquet / Parquet into Parquet, by Spark", 0.7, "-"),
    "copies-batch": Goal("batches of 100, 2 copies / 1 copy, by wall time", 0.65, "-"),
    "copies-p50": Goal("p50 of an awaited send, 2 copies - 1 copy, ms", 0.5, "-", at_most=True),
    "copies-sender": Goal("one awaited sender, 2 copies / 1 copy", 0.5, "-"),
    "copies-memory": Goal("private memory, replica / master", 1.1, "-", at_most=True),
    "catch-up": Goal("replica that catches up / reading the same bytes from the disk", 0.5, "-"),
    "fail-over": Goal("longest wait of a send, master killed, p99, s", 8, "-", at_most=True),
    "hand-over": Goal("longest wait of a send, SIGTERM or switch, s", 0.5, "-", at_most=True),
    "keys-single": Goal("single record, key and rules / open, per CPU-s", 0.98, "-"),
    "keys-batch": Goal("batch of 1000, key and rules / open, per CPU-s", 0.98, "-"),
    "tls-proxy": Goal("batch of 1000, TLS by a proxy / plain, per CPU-s of the broker", 0.6, "-"),
    "look-up": Goal("look-up by key / fixed answer, per CPU-s", 0.2, "-"),
    "read": Goal("settings of a topic / fixed answer, per CPU-s", 0.4, "-"),
    "sdk-look-up": Goal(
        "look-ups by the SDK / raw requests of its client, per CPU-s of the client", 0.2, "-"
    ),
    "client": Goal("SDK client / aiohttp, 64 in flight, requests per client CPU-s", 4, "6-7"),
}
