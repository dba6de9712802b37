"""A replay's messages: their content, their queue, and the bodies that count as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eruca
from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.properties import RESERVED
from eruca.exporting.errors import UnavailableError
from pyspark_eruca.replay import ReplayWriter
from pyspark_eruca.replay_options import ReplayOptions
from pyspark_eruca.replay_sender import RESERVED_PROPERTIES, ReplaySender
from pyspark_eruca.replayed import Digests, replay_digest
from pyspark_eruca.sending import queue_index
from support.export_service import ExportService, serving_exports
from support.in_process_cluster import in_process_cluster

OCTETS = {"accept": "application/octet-stream"}
ORIGIN = {"topic": "orders", "broker_name": "broker-a", "queue_id": 0}


def replay(namesrv: str, rows: Sequence[Mapping[str, Any]]) -> ReplaySender:
    """Send *rows* to the topic ``again``."""
    options = {"topic": "again", "replay": "one", "namesrv": namesrv, "retrySeconds": "30"}
    sender = ReplaySender(ReplayOptions.parse({**options, "url": "http://127.0.0.1:9"}), [])
    with closing(sender):
        for row in rows:
            sender.add(row)
        sender.flush()
    return sender


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
    rows: list[dict[str, Any]] = [
        {**ORIGIN, "queue_offset": n, "body": body, "properties": properties} for n in range(1_500)
    ]

    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.create_topic("again", queue_count=1)
        sender = await anyio.to_thread.run_sync(replay, cluster.namesrv_urls[0], rows)
        [queue] = await client.admin.queues("again")
        stored = await client.admin.offset_by_time(queue, datetime.now(UTC) + timedelta(days=1))

    assert sender.sent == stored == len(rows)


@pytest.mark.anyio
async def test_a_body_that_was_sent_as_json_is_replayed_as_that_value(tmp_path: Path) -> None:
    sent_as_json = {"ERUCA_BODY_FORMAT": "json"}
    bodies: list[tuple[bytes, dict[str, str], str]] = [
        (b'{"price": 12.50,\n "big": 12345678901234567890123}', sent_as_json, "json"),
        (b'{"a": 1, "a": 2}', sent_as_json, "text"),  # which a broker refuses as JSON
        (b"NaN", sent_as_json, "text"),
        (b"\xff", sent_as_json, "base64"),
        (b'{"a": 1}', {}, "text"),
    ]
    rows = [
        {**ORIGIN, "queue_offset": offset, "body": body, "properties": properties}
        for offset, (body, properties, _) in enumerate(bodies)
    ]

    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
        httpx.AsyncClient() as http,
    ):
        [url] = cluster.broker_urls.values()
        await client.admin.create_topic("again", queue_count=1)
        await anyio.to_thread.run_sync(replay, cluster.namesrv_urls[0], rows)
        answer = await http.get(f"{url}/v1/topics/again/queues/0/messages", params={"offset": 0})
        octets = [
            (await http.get(f"{url}/v1/log/records/{its['log_offset']}", headers=OCTETS)).content
            for its in answer.json()["messages"]
        ]

    sent = [body for body, _, _ in bodies]
    assert [[*its["body"]] for its in answer.json()["messages"]] == [[form] for *_, form in bodies]
    assert octets == [b'{"price":12.50,"big":12345678901234567890123}', *sent[1:]]


@pytest.mark.anyio
async def test_a_damaged_row_is_not_sent_and_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[dict[str, Any]] = [
        {**ORIGIN, "queue_offset": 0, "body": b"x", "damage": None},
        {**ORIGIN, "queue_offset": 1, "body": None, "damage": "the body does not match its CRC"},
    ]

    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.create_topic("again", queue_count=1)
        sender = await anyio.to_thread.run_sync(replay, cluster.namesrv_urls[0], rows)

    assert (sender.sent, sender.damaged) == (1, 1)
    assert "orders/broker-a/0/1: damaged, not sent" in capsys.readouterr().err
