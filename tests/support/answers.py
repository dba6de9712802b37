"""Asking a running broker everything, and comparing with what its log says."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import httpx

from eruca.contract.properties import TAGS
from eruca.contract.records import Record, decode_record
from eruca.contract.wire import RECORDS_MEDIA_TYPE, PulledRecords, PullStatus, decode_pull
from support.log_model import Key, LogModel, keys_of

KEYS_ASKED_FOR = 5  # of each queue


def check_answers(url: str, model: LogModel, first: dict[Key, int] | None = None) -> None:
    """Check that the broker at *url* says what *model* says.

    Args:
        url: Where it listens.
        model: Of its log.
        first: Queue offsets from which to look at messages; None for all of them.
    """
    with httpx.Client(base_url=f"{url}/v1", trust_env=False) as client:
        listed = client.get("/topics", params={"limit": 1000}).json()["topics"]
        assert {topic["topic"] for topic in listed} == model.topics.keys()
        for group, positions in model.committed.items():
            answer = client.get(f"/groups/{group}/offsets").json()["offsets"]
            told = {(item["topic"], item["queue_id"]): item["committed_offset"] for item in answer}
            assert told == positions
        for topic, (count, _) in model.topics.items():
            for queue_id in range(count):
                _check_queue(client, model, (topic, queue_id), (first or {}).get((topic, queue_id)))


def _check_queue(client: httpx.Client, model: LogModel, key: Key, first: int | None) -> None:
    low, high = model.range(key)
    start = max(low, first or 0)
    expected = [r for r in model.queues.get(key, []) if r.queue_offset >= start]
    assert list(_pull_all(client, key, start, (low, high))) == expected
    tags = {tag for record in expected[:200] if (tag := record.property_map().get(TAGS))}
    for tag in tags:
        some = [r for r in expected[:200] if r.property_map().get(TAGS) == tag]
        pulled = _pull(client, key, some[0].queue_offset, tag, 1)
        assert decode_record(pulled.records) == some[0]
    for record in expected[:: max(1, len(expected) // KEYS_ASKED_FOR)]:
        for text in keys_of(record):
            _check_key(client, model, key[0], text)


def _check_key(client: httpx.Client, model: LogModel, topic: str, text: str) -> None:
    answer = client.get(f"/topics/{quote(topic)}/messages", params={"key": text, "limit": 64})
    found = [message["log_offset"] for message in answer.json()["messages"]]
    assert found == [record.log_offset for record in model.by_key(topic, text)[:64]]


def _pull_all(
    client: httpx.Client, key: Key, start: int, queue_range: tuple[int, int]
) -> Iterator[Record]:
    offset = start
    while True:
        pulled = _pull(client, key, offset)
        assert (pulled.min_offset, pulled.max_offset) == queue_range, key
        if pulled.status is not PullStatus.FOUND:
            assert pulled.status is PullStatus.NO_NEW_MESSAGE
            return
        position = 0
        for size in pulled.sizes:
            yield decode_record(pulled.records, position)
            position += size
        assert offset < pulled.next_offset
        offset = pulled.next_offset


def _pull(
    client: httpx.Client, key: Key, offset: int, tag: str = "*", count: int = 4096
) -> PulledRecords:
    topic, queue_id = key
    answer = client.get(
        f"/topics/{quote(topic)}/queues/{queue_id}/messages",
        params={"offset": offset, "count_max": count, "bytes_max": 8 * 1024**2, "filter": tag},
        headers={"accept": RECORDS_MEDIA_TYPE},
    )
    assert answer.status_code == 200, answer.text
    return decode_pull(answer.content)
