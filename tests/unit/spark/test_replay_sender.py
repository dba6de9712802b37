"""What a replay sends along, where to, and what it takes for the same message."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eruca
from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.properties import RESERVED
from pyspark_eruca.errors import UnavailableError
from pyspark_eruca.replay import ReplayWriter
from pyspark_eruca.replay_options import ReplayOptions
from pyspark_eruca.replay_sender import RESERVED_PROPERTIES, ReplaySender, queue_index
from pyspark_eruca.replayed import Digests, replay_digest
from support.export_service import ExportService, serving_exports
from support.in_process_cluster import in_process_cluster


def test_no_property_that_a_broker_would_refuse_is_sent_along() -> None:
    assert RESERVED_PROPERTIES == RESERVED


@given(st.text(min_size=1), st.integers(1, 64))
def test_a_sharding_key_goes_to_the_queue_its_producers_choose(key: str, count: int) -> None:
    assert queue_index(key, count) == queue_of_hash(string_hash(key), count)


@given(
    st.sets(st.binary(min_size=16, max_size=16), max_size=50), st.binary(min_size=16, max_size=16)
)
def test_digests_are_a_set(digests: set[bytes], other: bytes) -> None:
    held = Digests(digests)

    assert len(held) == len(digests)
    assert all(digest in held for digest in digests)
    assert (other in held) == (other in digests)


def test_a_message_is_known_by_its_replay_and_its_origin() -> None:
    one = replay_digest("again", "orders/broker-a/0/17")

    assert one == replay_digest("again", "orders/broker-a/0/17")
    assert one != replay_digest("again", "orders/broker-a/0/18")
    assert one != replay_digest("once more", "orders/broker-a/0/17")
    assert len(one) == Digests.SIZE


def test_a_broker_that_is_away_is_not_taken_for_one_that_has_nothing_of_the_replay() -> None:
    origin = ("topic", "broker_name", "queue_id", "queue_offset")
    with serving_exports(ExportService().hold("again", {0: 3})) as service:
        service.away = ["broker-b"]
        given = {"topic": "again", "replay": "one", "url": service.url, "retrySeconds": "0.5"}
        options = ReplayOptions.parse({**given, "namesrv": "http://127.0.0.1:9"})

        with pytest.raises(UnavailableError, match=r"broker-b: .* sent again"):
            ReplayWriter(options, ["body", *origin])


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "properties"),
    [
        pytest.param(b"x", [("token", "t" * 7_000)], id="much beside the body"),
        pytest.param(b"x" * 7_000, [], id="much body"),
        pytest.param(b"x", [], id="little"),
    ],
)
async def test_batches_are_such_that_a_broker_takes_them(
    tmp_path: Path, body: bytes, properties: list[tuple[str, str]]
) -> None:
    origin = {"topic": "orders", "broker_name": "broker-a", "queue_id": 0}
    rows: list[dict[str, Any]] = [
        {**origin, "queue_offset": n, "body": body, "properties": properties} for n in range(1_500)
    ]

    def replay(namesrv: str) -> int:
        options = {"topic": "again", "replay": "one", "namesrv": namesrv, "retrySeconds": "30"}
        sender = ReplaySender(ReplayOptions.parse({**options, "url": "http://127.0.0.1:9"}), [])
        for row in rows:
            sender.add(row)
        sender.flush()
        return sender.sent

    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.create_topic("again", queue_count=1)
        sent = await anyio.to_thread.run_sync(replay, cluster.namesrv_urls[0])
        [queue] = await client.admin.queues("again")
        stored = await client.admin.offset_by_time(queue, datetime.now(UTC) + timedelta(days=1))

    assert sent == stored == len(rows)
