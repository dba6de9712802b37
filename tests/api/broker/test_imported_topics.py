"""Topics as RocketMQ has left them in a store, and how they are registered with name servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca.contract.limits import QUEUE_COUNT_MAX
from support.clocks import ManualClock
from support.in_process_cluster import in_process_cluster
from support.rocketmq_stores import Stored, write_config, write_log
from support.waiting import until

pytestmark = pytest.mark.anyio


def config(name: str, queues: int) -> dict[str, object]:
    return {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6}


async def test_one_of_too_many_queues_keeps_no_other_out_of_the_routes(tmp_path: Path) -> None:
    store = tmp_path / "broker-a"
    write_log(store, [Stored("orders")], ManualClock().now_ms())
    wide = config("wide", QUEUE_COUNT_MAX + 1)
    write_config(
        store, "topics.json", {"topicConfigTable": {"orders": config("orders", 4), "wide": wide}}
    )

    with capture_logs() as lines:
        async with in_process_cluster(tmp_path, brokers=1, segment_bytes=64 * 1024) as cluster:
            [name_server] = cluster.name_servers
            await until(lambda: "orders" in name_server.table.topics())
            assert "wide" not in name_server.table.topics()

    [warning] = [line for line in lines if "too many queues" in line["event"]]
    assert warning["topics"] == ["wide"]
