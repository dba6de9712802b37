"""Sending and pulling over HTTP, compared with uvicorn with nothing behind it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from bench.batches import (
    BODY_SIZE,
    QUEUES,
    TOPIC,
    batch_request,
    distinct_batches,
    records,
    request_of,
)
from bench.load import Load, request, run_load
from bench.machine import LOAD_CORE, cpu_seconds
from bench.report import Report
from bench.servers import Server, broker, raw_server
from eruca.contract.wire import RECORDS_MEDIA_TYPE, encode_batch

# The log must not grow into untouched memory, nor reach the middle of its segment meanwhile.
WARM: Final[dict[str, Any]] = {"warm_segments": "true", "segment_bytes": "2000000000"}
_RAMP_SECONDS = 0.3
# A gigabyte takes less than half a second: then the segment is half full, and the next one is
# warmed.
_BATCH_RAMP_SECONDS = 0.1
_BATCH_SECONDS = 0.25
_BATCH_TURNS = 7
_ASK_SECONDS = 0.05  # between two checks that all is flushed
_JSON = "content-type: application/json"
_RECORDS = f"accept: {RECORDS_MEDIA_TYPE}"


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    with raw_server() as raw:
        with broker(**WARM) as server:
            create_topic(server)
            sink = _singles(report, raw, server, seconds)
            _pulls(report, raw, server, seconds)
        for count in (100, 1000):
            rate = _batches(report, raw, count)
        report.ratio("batch-rate", rate / sink)
        with broker(flush_mode="sync", **WARM) as server:
            create_topic(server)
            raw_rate, _ = _sink(raw, seconds)
            rate, load = per_cpu_second(server, [batch_request(1)], connections=64, seconds=seconds)
            report.ratio("single-sync", rate / raw_rate)
            report.figure("single record, group commit, p99", f"{load.percentile(0.99):.0f} us")


def create_topic(server: Server, topic: str = TOPIC, queues: int = QUEUES) -> None:
    """Create a topic on one broker."""
    settings = json.dumps({"read_queue_count": queues, "write_queue_count": queues}).encode()
    call = urllib.request.Request(
        f"{server.url}/v1/topics/{topic}",
        settings,
        {"content-type": "application/json"},
        method="PUT",
    )
    urllib.request.urlopen(call).close()


def per_cpu_second(
    server: Server,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: float,
    ramp_seconds: float = _RAMP_SECONDS,
    settle: Callable[[Server], None] = lambda _: None,
) -> tuple[float, Load]:
    """Return requests per CPU second of *server*, and the generator's result.

    Work of the server after the last answer is included, up to the return of *settle*.
    """
    run_load(server.port, requests, connections=connections, seconds=ramp_seconds, core=LOAD_CORE)
    settle(server)
    before = cpu_seconds(server.process_id)
    load = run_load(server.port, requests, connections=connections, seconds=seconds, core=LOAD_CORE)
    settle(server)
    used = cpu_seconds(server.process_id) - before
    assert not load.errors, f"{load.errors} of {load.requests} answers were refusals"
    return load.requests / used, load


def _sink(raw: Server, seconds: float) -> tuple[float, Load]:
    upload = _to_sink(encode_batch(records(1)))
    return per_cpu_second(raw, [upload], connections=64, seconds=seconds)


def _singles(report: Report, raw: Server, server: Server, seconds: float) -> float:
    sink, sink_load = _sink(raw, seconds)
    record, load = per_cpu_second(server, [batch_request(1)], connections=64, seconds=seconds)
    text = json.dumps({"body": {"text": "x" * BODY_SIZE}, "tag": "AA", "keys": ["key-1"]})
    message = request("POST", f"/v1/topics/{TOPIC}/messages", text.encode(), _JSON)
    plain, _ = per_cpu_second(server, [message], connections=64, seconds=seconds)
    report.figure("raw sink", f"{sink:,.0f} requests per CPU-s, {sink_load.rate:,.0f}/s")
    report.figure("single record", f"{record:,.0f} per CPU-s, {load.rate:,.0f}/s")
    report.figure("single JSON message", f"{plain:,.0f} per CPU-s")
    report.ratio("single", record / sink)
    report.ratio("json", plain / sink)
    return sink


def _batches(report: Report, raw: Server, count: int) -> float:
    turns = sorted(_batch_turn(raw, count) for _ in range(_BATCH_TURNS))
    ratio, stored, discarded = turns[_BATCH_TURNS // 2]
    report.figure(
        f"batch of {count}",
        f"{stored * count:,.0f} messages per CPU-s; discarded {discarded * count:,.0f}",
    )
    report.ratio(f"batch-{count}", ratio)
    return stored * count


def _batch_turn(raw: Server, count: int) -> tuple[float, float, float]:
    """Return the ratio of stored to discarded batches, and the two rates."""
    measure = partial(
        per_cpu_second,
        connections=8,
        seconds=_BATCH_SECONDS,
        ramp_seconds=_BATCH_RAMP_SECONDS,
    )
    batches = distinct_batches(count)
    discarded, _ = measure(raw, list(map(_to_sink, batches)))
    with broker(**WARM) as server:
        create_topic(server)
        requests = list(map(request_of, batches))
        stored, _ = measure(server, requests, settle=_flushed)
    return stored / discarded, stored, discarded


def _flushed(server: Server) -> None:
    """Wait until the background flush has made the whole log durable."""

    def is_behind() -> bool:
        with urllib.request.urlopen(f"{server.url}/v1/status") as answer:
            status = json.load(answer)
        return bool(status["log"]["flushed_offset"] < status["log"]["max_offset"])

    while is_behind():
        time.sleep(_ASK_SECONDS)


def _pulls(report: Report, raw: Server, server: Server, seconds: float) -> None:
    one = [batch_request(1000, queue_id=0)]
    run_load(server.port, one, connections=1, seconds=_RAMP_SECONDS)
    mixed = [batch_request(1, queue_id=queue_id) for queue_id in range(1, 8)]
    run_load(server.port, mixed, connections=1, seconds=1.0)
    for key, queue_id, count in (("pull-32", 0, 32), ("pull-256", 0, 256), ("pull-mixed", 1, 256)):
        path = f"/v1/topics/{TOPIC}/queues/{queue_id}/messages?offset=0&count_max={count}"
        path += "&bytes_max=8000000"
        size = _answer_size(server, path)
        fixed, _ = per_cpu_second(
            raw, [request("GET", f"/fixed/{size}")], connections=8, seconds=seconds
        )
        pulled, _ = per_cpu_second(
            server, [request("GET", path, b"", _RECORDS)], connections=8, seconds=seconds
        )
        report.figure(f"{key} ({size:,} bytes)", f"{pulled * count:,.0f} messages per CPU-s")
        report.ratio(key, pulled / fixed)


def _to_sink(batch: bytes) -> bytes:
    """Return a request to the raw server with the same body."""
    return request("POST", "/sink", batch)


def _answer_size(server: Server, path: str) -> int:
    call = urllib.request.Request(server.url + path, headers={"accept": RECORDS_MEDIA_TYPE})
    with urllib.request.urlopen(call) as answer:
        return len(answer.read())
