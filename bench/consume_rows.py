"""Consumption: handlers compared with a pull consumer, filters, group changes, idle groups.

The messages are in the log beforehand; nothing is sent meanwhile. Of the ratios to the pull
consumer, use the one per CPU second of the consumer's process: broker and consumer share the
machine, so the slower one sets the wall rate.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench import delivery_rows, idle_rows, rebalance_rows
from bench.batches import TOPIC, batch_request
from bench.calls import get_json, send_each
from bench.consume_client import BATCH
from bench.http_rows import WARM, create_topic, per_cpu_second
from bench.load import request
from bench.report import Report
from bench.servers import MALLOC, Server, broker, name_server
from eruca.contract.properties import TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Record, encode_unstamped
from eruca.contract.wire import RECORDS_MEDIA_TYPE, encode_batch

_QUEUES: Final = 4
_BATCH: Final = 1_000
_PER_SECOND: Final = 60_000  # messages for each second of measurement
_KINDS: Final = {
    "concurrent": "concurrent, async handler",
    "orderly": "orderly, async handler",
    "threads": "concurrent, plain function",
    "batches": f"concurrent, async handler of {BATCH}",
}
_SCANNED: Final = 20_000  # messages in the queue that filters scan
_FILTERS: Final = {
    "tag": "filter=ZZ",
    "SQL92, one condition": "filter=price%20%3E%20100&filter_type=sql92",
    "SQL92, three conditions": (
        "filter=price%20BETWEEN%20100%20AND%20200%20AND%20region%20%3D%20'EU'%20AND%20"
        "carrier%20IN%20('UA'%2C'AA')&filter_type=sql92"
    ),
}


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    _handlers(report, seconds)
    _filters(report, seconds)
    asyncio.run(rebalance_rows.run(report))
    asyncio.run(idle_rows.run(report))
    asyncio.run(delivery_rows.run(report, seconds))


def _handlers(report: Report, seconds: float) -> None:
    """Consume the same messages with each kind of consumer."""
    batches = max(round(seconds * _PER_SECOND / _BATCH / _QUEUES), 1)
    count = batches * _BATCH * _QUEUES
    with name_server() as namesrv, broker(namesrv_urls=namesrv.url, **WARM) as server:
        create_topic(server, TOPIC, _QUEUES)
        for queue_id in range(_QUEUES):
            send_each(server, [batch_request(_BATCH, queue_id=queue_id)] * batches)
        pulled = _consume("pull", namesrv, count)
        report.figure("pull consumer", _rates(pulled))
        for kind, name in _KINDS.items():
            pushed = _consume(kind, namesrv, count)
            report.figure(f"push consumer, {name}", _rates(pushed))
            report.figure(
                f"{name} / pull consumer",
                f"{pushed['per_cpu_second'] / pulled['per_cpu_second']:.2f} per CPU-s, "
                f"{pushed['rate'] / pulled['rate']:.2f} by the clock",
            )


def _consume(kind: str, namesrv: Server, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.consume_client", kind, namesrv.url, f"bench-{kind}"]
    output = subprocess.run(
        [*command, str(count)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | MALLOC,
        cwd=Path(__file__).parent.parent,
    ).stdout
    result: dict[str, Any] = json.loads(output)
    assert result["messages"] == count, f"{result['messages']} of {count} came"
    return result


def _rates(result: dict[str, Any]) -> str:
    return f"{result['rate']:,.0f} messages/s, {result['per_cpu_second']:,.0f} per CPU-s"


def _filters(report: Report, seconds: float) -> None:
    """Pull with filters that match nothing, and compute the cost of a skipped message.

    The cost of a pull that scans nothing is subtracted.
    """
    with broker(**WARM) as server:
        create_topic(server, TOPIC, 1)
        send_each(server, map(_with_properties, range(0, _SCANNED, _BATCH)))
        path = f"/v1/topics/{TOPIC}/queues/0/messages?count_max=32"
        accept = f"accept: {RECORDS_MEDIA_TYPE}"
        empty, _ = per_cpu_second(
            server,
            [request("GET", f"{path}&offset={_SCANNED}", b"", accept)],
            connections=8,
            seconds=seconds,
        )
        for name, query in _FILTERS.items():
            scanned = get_json(server, f"{path}&offset=0&{query}")["next_offset"]
            pulls, _ = per_cpu_second(
                server,
                [request("GET", f"{path}&offset=0&{query}", b"", accept)],
                connections=8,
                seconds=seconds,
            )
            cost = (1 / pulls - 1 / empty) / scanned * 1e6
            report.figure(
                f"filter that lets nothing through, {name}",
                f"{cost:.3f} us of CPU per message; {scanned:,} scanned by one pull",
            )


def _with_properties(first: int) -> bytes:
    records = [
        encode_unstamped(
            Record(
                topic=TOPIC,
                body=b"x" * 200,
                born_timestamp=1_700_000_000_000,
                properties=encode_properties(
                    {
                        TAGS: "AA",
                        "carrier": "UA",
                        "price": str(number % 100),
                        "region": "EU",
                        UNIQ_KEY: f"{number:032X}",
                    }
                ),
            )
        )
        for number in range(first, first + _BATCH)
    ]
    return request(
        "POST",
        f"/v1/topics/{TOPIC}/queues/0/records",
        encode_batch(records),
        f"content-type: {RECORDS_MEDIA_TYPE}",
    )
