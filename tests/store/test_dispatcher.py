"""Dispatch: what is written as messages arrive is, byte for byte, what a rebuild writes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Record, encode_unstamped
from eruca.contract.wire import encode_batch
from eruca_broker.core.batches.batch import Batch, batch_of_records, check_batch
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.stores import STORE_HOST, small_settings

SETTINGS = small_settings(segment_bytes=2 * 1024 * 1024, file_entries=5_000)

texts = st.sampled_from(["plain", "growing", "several keys", "odd", "open", "none"])
batches = st.tuples(
    texts,
    st.sampled_from([1, 5, 30, 70, 300]),
    st.sampled_from(["one size", "many sizes"]),
    st.sampled_from(["orders", "a-longer-topic"]),
    st.booleans(),
)


def properties(kind: str, number: int) -> str:
    if kind == "plain":
        return encode_properties({TAGS: "a", KEYS: f"k{number:04}", UNIQ_KEY: f"{number:032X}"})
    if kind == "growing":
        return encode_properties({KEYS: f"k{number}", TAGS: "ab"[number % 2] * 2})
    if kind == "several keys":
        return encode_properties({"u": "é", KEYS: f"x{number % 7:03} y {number:05}"})
    if kind == "odd":
        return f"KEYS\x01a\x02KEYS\x01{number % 50} Aa BB\x02TAGS\x01{'tg'[number % 2]}"
    if kind == "open":  # the last one needs no separator behind it
        return f"TAGS\x01{'tg'[number % 2]}ag"
    return ""


def batch_of(kind: str, count: int, sizes: str, topic: str, is_from_outside: bool) -> Batch:
    encoded = [
        encode_unstamped(
            Record(
                topic=topic,
                body=b"x" * (20 if sizes == "one size" else number % 23 + 1),
                queue_id=1,
                properties=properties(kind, number),
            )
        )
        for number in range(count)
    ]
    if is_from_outside:
        return check_batch(
            bytearray(encode_batch(encoded)), topic=topic, queue_id=1, store_host=STORE_HOST
        )
    return batch_of_records(topic, 1, encoded)


def projections(directory: Path) -> dict[str, bytes]:
    files = [path for root in ("consumequeue", "index") for path in (directory / root).rglob("*")]
    return {str(path.relative_to(directory)): path.read_bytes() for path in files if path.is_file()}


@settings(deadline=None, max_examples=40)
@given(some=st.lists(batches, min_size=1, max_size=6))
def test_a_rebuild_writes_what_was_written_live(
    some: list[tuple[str, int, str, str, bool]],
) -> None:
    async def live_and_again(directory: Path) -> None:
        clock = ManualClock()
        store = await MessageStore.open(directory, SETTINGS, clock)
        for topic in ("orders", "a-longer-topic"):
            await store.change(TopicPut(topic, 2, 2, "rw"))
        for each in some:
            await store.append(batch_of(*each))
            clock.advance(0.7)
        await store.close()
        written = projections(directory)
        for root in ("consumequeue", "index"):
            shutil.rmtree(directory / root)
        await (await MessageStore.open(directory, SETTINGS, clock)).close()
        assert projections(directory) == written

    with tempfile.TemporaryDirectory() as directory:
        anyio.run(live_and_again, Path(directory))
