"""Batches: both ways to build one give the log's own records, and pulls give them back."""

from __future__ import annotations

import pickle
import struct
import zlib
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.records import (
    NO_HOST,
    Host,
    Record,
    SysFlag,
    encode_record,
    encode_unstamped,
)
from eruca.contract.wire import batch_extent, batch_sizes, encode_batch
from eruca.core.messages import record_batch
from eruca.core.messages.accelerators import loading_numpy, optional_numpy
from eruca.core.messages.message import Message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.record_batch import EncodedBatch, decode_messages, encode_messages
from eruca.core.messages.unique_ids import UniqueIds
from support.records import decode_draft

loading_numpy().result()  # or the first of these tests would do without
QUEUE = MessageQueue("orders", "broker-a", 3)
BORN = 1_700_000_000_000
V6 = Host(bytes(16), 0)
BY_LOOP, BY_COLUMNS = 1_000_000, 1  # values of COLUMNS_FROM

messages_of_one_topic = st.lists(
    st.builds(
        Message,
        st.just("orders"),
        st.binary(min_size=1, max_size=200)
        | st.binary(min_size=1, max_size=9).map(lambda b: b * 50),
        tag=st.none() | st.sampled_from(["a", "bü"]),
        keys=st.lists(st.sampled_from(["k1", "k2"]), max_size=2),
        properties=st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["1", "ü"])),
        flag=st.integers(-(2**31), 2**31 - 1),
    ),
    min_size=1,
    max_size=40,
)


def ids_of(messages: Sequence[Message]) -> list[str]:
    return [f"{number:032X}" for number in range(len(messages))]


def expected(
    messages: Sequence[Message], *, store_host: Host = NO_HOST, threshold: int = 10**9
) -> bytes:
    records = []
    for message, message_id in zip(messages, ids_of(messages), strict=True):
        packed = zlib.compress(message.body) if len(message.body) >= threshold else message.body
        is_packed = len(packed) < len(message.body)
        records.append(
            encode_unstamped(
                Record(
                    message.topic,
                    packed if is_packed else message.body,
                    queue_id=3,
                    flag=message.flag,
                    sys_flag=SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB if is_packed else 0,
                    born_timestamp=BORN,
                    store_host=store_host,
                    properties=message.properties_text(message_id),
                )
            )
        )
    return encode_batch(records)


def encoded(
    messages: Sequence[Message], *, store_host_v6: bool = False, threshold: int | None = None
) -> EncodedBatch:
    return encode_messages(
        messages,
        ids_of(messages),
        queue_id=3,
        born_timestamp=BORN,
        store_host_v6=store_host_v6,
        compression_threshold_bytes=threshold,
    )


@pytest.fixture(params=[BY_LOOP, BY_COLUMNS], ids=["loop", "columns"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(record_batch, "COLUMNS_FROM", request.param)
    return int(request.param)


@given(messages=messages_of_one_topic, store_host_v6=st.booleans())
def test_both_ways_give_the_bytes_of_the_contracts_codec(
    messages: list[Message], *, store_host_v6: bool
) -> None:
    reference = expected(messages, store_host=V6 if store_host_v6 else NO_HOST)

    with pytest.MonkeyPatch.context() as patch:
        for way in (BY_LOOP, BY_COLUMNS):
            patch.setattr(record_batch, "COLUMNS_FROM", way)
            batch = encoded(messages, store_host_v6=store_host_v6)
            assert batch.body == reference
            count, _ = batch_extent(batch.body)
            assert struct.unpack(f">{count}I", batch.sizes) == batch_sizes(batch.body, count)


plain_messages = st.lists(
    st.builds(
        Message,
        st.just("orders"),
        st.binary(min_size=1, max_size=50),
        tag=st.sampled_from(["a", "b"]) | st.none(),
        keys=st.sampled_from(["k1", "k2", "k-3", "ü1", (), ["k1", "k2"]]),
    ),
    min_size=1,
    max_size=40,
)


def like(one: Message, numbers: Sequence[int]) -> list[Message]:
    """Return messages that differ from *one* in body and key alone."""
    keys = [(f"key-{n}",) * len(one.keys) for n in numbers]
    return [
        Message(one.topic, b"%d" % n, tag=one.tag, keys=k)
        for n, k in zip(numbers, keys, strict=True)
    ]


@given(
    messages=plain_messages
    | st.builds(like, plain_messages.map(lambda m: m[0]), st.lists(st.integers(0, 12), min_size=1)),
    counter=st.sampled_from([0, 65_530]),
)
def test_both_ways_agree_on_messages_that_are_alike_or_nearly(
    messages: list[Message], counter: int
) -> None:
    ids = UniqueIds(bytes(4), 1, counter).take(len(messages), BORN, 1)
    bodies = []

    with pytest.MonkeyPatch.context() as patch:
        for way, given_ids in ((BY_LOOP, ids), (BY_COLUMNS, ids), (BY_COLUMNS, list(ids))):
            patch.setattr(record_batch, "COLUMNS_FROM", way)
            batch = encode_messages(messages, given_ids, queue_id=3, born_timestamp=BORN)
            bodies.append(batch.body)

    assert bodies[0] == bodies[1] == bodies[2]


@given(messages=messages_of_one_topic)
def test_both_ways_compress_alike(messages: list[Message]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_batch, "COLUMNS_FROM", BY_LOOP)
        by_loop = encoded(messages, threshold=60)
        patch.setattr(record_batch, "COLUMNS_FROM", BY_COLUMNS)
        by_columns = encoded(messages, threshold=60)

    assert by_loop == by_columns


def records_of(batch: EncodedBatch) -> list[Record]:
    count, start = batch_extent(batch.body)
    starts = accumulate(batch_sizes(batch.body, count)[:-1], initial=start)
    return [decode_draft(batch.body, position) for position in starts]


@pytest.mark.usefixtures("either_way")
def test_a_body_is_compressed_from_the_threshold_on_if_that_makes_it_smaller() -> None:
    short, long, noise = b"a" * 99, b"a" * 100, bytes(range(100))

    records = records_of(
        encoded([Message("orders", b) for b in (short, long, noise)], threshold=100)
    )

    assert [bool(record.sys_flag & SysFlag.COMPRESSED) for record in records] == [
        False,
        True,
        False,
    ]
    assert zlib.decompress(records[1].body) == long


@pytest.mark.usefixtures("either_way")
def test_a_long_topic_takes_the_second_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca.core.messages.message.check_destination", lambda _: None)
    topic = "%RETRY%" + "g" * 125  # clients may not send there, but no other is as long

    record = records_of(encoded([Message(topic, b"x")]))[0]

    assert record.topic == topic


def test_without_numpy_the_loop_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [Message("orders", b"x")] * 100
    with_numpy = encoded(messages)

    monkeypatch.setattr(record_batch, "optional_numpy", lambda: None)

    assert encoded(messages) == with_numpy


def pulled(count: int) -> tuple[bytes, list[int]]:
    records = [
        encode_record(
            Record(
                "orders",
                b"body-%d" % number,
                queue_id=3,
                queue_offset=1_000 + 2 * number,  # a filter leaves gaps
                log_offset=7_000 + number,
                properties=f"TAGS\x01{'odd' if number % 2 else 'even'}\x02",
            )
        )
        for number in range(count)
    ]
    return b"".join(records), list(map(len, records))


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("count", [0, 1, 27, 28, 100])
def test_a_pull_is_taken_apart_into_its_messages(count: int) -> None:
    records, sizes = pulled(count)

    messages = decode_messages(QUEUE, memoryview(records), sizes)

    assert [m.body for m in messages] == [b"body-%d" % number for number in range(count)]
    assert [m.queue_offset for m in messages] == [1_000 + 2 * n for n in range(count)]
    assert [m.log_offset for m in messages] == [7_000 + n for n in range(count)]
    assert all(m.queue is QUEUE for m in messages)


@pytest.mark.usefixtures("either_way")
def test_the_messages_of_a_pull_may_begin_anywhere() -> None:
    records, sizes = pulled(40)

    messages = decode_messages(QUEUE, b"preamble" + records, sizes, start=8)

    assert messages == decode_messages(QUEUE, records, sizes)


@pytest.mark.usefixtures("either_way")
def test_messages_that_are_not_wanted_are_left_out() -> None:
    records, sizes = pulled(40)

    messages = decode_messages(QUEUE, records, sizes, wanted=lambda m: m.tag == "odd")

    assert [m.queue_offset for m in messages] == [1_002 + 4 * n for n in range(20)]


def test_a_message_takes_nothing_else_along_when_it_is_pickled() -> None:
    records, sizes = pulled(50)
    message = decode_messages(QUEUE, records, sizes)[7]

    copy = pickle.loads(pickle.dumps(message))

    assert copy == message
    assert len(pickle.dumps(message)) < 1_000


def test_numpy_is_there_for_these_tests() -> None:
    """Otherwise they would compare the loop with itself."""
    assert optional_numpy() is not None
