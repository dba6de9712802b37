"""Batches of delayed records: compiled code writes what Python writes for single records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.errors import ErucaError, MalformedBatchError
from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.names import TIMER_TOPIC
from eruca.contract.records import Host, Record, SysFlag, decode_record, encode_unstamped
from eruca.contract.wire import encode_batch, with_delays
from eruca_broker.core.batches.batch import Batch, read_batch
from eruca_broker.core.batches.delayed_batch import (
    Requests,
    begun_requests,
    may_be_delayed,
    requests_of,
    waiting_batch,
)
from eruca_broker.core.consume_queue_entry import view_entries
from eruca_broker.core.properties.found import KEY_DTYPE
from eruca_broker.core.records.scheduled import (
    Destination,
    Wait,
    delivery_time,
    properties_of,
    waiting,
)
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.projecting.dispatcher import timed_entries

HOST = Host.parse("127.0.0.1", 10911)
HOST_V6 = Host.parse("::1", 10911)
ORDERS = Destination("orders", 2)
NOW = 1_700_000_000_000
LATEST = NOW + 86_400_000
PLAIN = "TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x01id\x02"
AT_NOON = f"TIMER_DELIVER_MS\x01{NOW + 5_000}\x02"


def record(text: str, body: bytes = b"body", host: Host = HOST) -> bytes:
    sys_flag = int(SysFlag.STORE_HOST_V6) if host.is_v6 else 0
    return encode_unstamped(
        Record(
            topic="orders",
            body=body,
            queue_id=2,
            properties=text,
            born_timestamp=7,
            flag=3,
            sys_flag=sys_flag,
            store_host=host,
        )
    )


def requests(records: list[bytes], host: Host = HOST) -> Requests:
    body = bytearray(b"".join(with_delays(encode_batch(records))))
    assert may_be_delayed(body)
    return begun_requests(body, topic="orders", queue_id=2, store_host=host)


def compiled(records: list[bytes], host: Host = HOST) -> Batch | None:
    return waiting_batch(requests(records, host), now_ms=NOW, deliver_ms_max=LATEST)


def keys_of(batch: Batch) -> list[tuple[int, int]]:
    keys: list[tuple[int, int]] = np.frombuffer(batch.found.keys, KEY_DTYPE).tolist()
    return keys


def assert_equal(found: Batch, records: list[bytes], times: list[int]) -> None:
    """Compare a batch with what Python makes of the same records one by one."""
    expected = [
        waiting(raw, Wait(deliver_at_ms=time), ORDERS)
        for raw, time in zip(records, times, strict=True)
    ]
    assert bytes(found.records) == b"".join(expected)
    assert (found.topic, found.queue_id, found.count) == (TIMER_TOPIC, 0, len(records))
    read = read_batch(TIMER_TOPIC, 0, bytearray(b"".join(expected)), len(records))
    assert keys_of(found) == keys_of(read)
    assert found.found.ends.tolist() == read.found.ends.tolist()
    assert found.found.tag_codes.tolist() == read.found.tag_codes.tolist()
    assert found.layout == read.layout


@pytest.mark.parametrize("host", [HOST, HOST_V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("count", [1, 2, 100])
def test_records_are_written_as_python_writes_each(count: int, host: Host) -> None:
    records, times = [], []
    for number in range(count):
        if number % 2:
            text, time = f"TIMER_DELAY_MS\x01{number}\x02", NOW + number
        else:
            text, time = f"TIMER_DELIVER_MS\x01{NOW + 1 + number}\x02", NOW + 1 + number
        records.append(record(f"{PLAIN}n\x01{number}\x02{text}", b"x" * (number + 1), host))
        times.append(time)

    batch = compiled(records, host)

    assert batch is not None
    assert_equal(batch, records, times)
    bodies = [decode_record(raw, check_crc=False).body for raw in batch_records(batch)]
    assert bodies == [b"x" * (number + 1) for number in range(count)]


fragments = st.sampled_from(
    [
        "TAGS\x01a\x02",
        "TAGS\x01é\x02",
        "KEYS\x01k1 k2\x02",
        "UNIQ_KEY\x01id\x02",
        "UNIQ_KEY\x01..\x02",
        "a\x01b\x02",
        "DELAY\x013\x02",
        "DELAYED\x013\x02",
        "TIMER_OUT_MS\x0117\x02",
        "TIMER_OUT_MS\x02",
        "REAL_TOPIC\x01x\x02",
        "REAL_QID\x019\x02",
        "__CRC32#\x010123456789\x02",
        "\x02",
        "",
        "a\x01",
        f"TIMER_DELIVER_MS\x01{NOW}\x02",
        f"TIMER_DELIVER_MS\x01{NOW + 1}\x02",
        f"TIMER_DELIVER_MS\x01000{LATEST}\x02",
        f"TIMER_DELIVER_MS\x01{LATEST + 1}\x02",
        "TIMER_DELIVER_MS\x01\x02",
        "TIMER_DELIVER_MS\x01-5\x02",
        "TIMER_DELIVER_MS\x01999999999999999999\x02",
        "TIMER_DELIVER_MS\x019999999999999999999\x02",
        "TIMER_DELAY_MS\x010\x02",
        "TIMER_DELAY_MS\x0112\x02",
        "TIMER_DELAY_MS\x01999999999999999999\x02",
        "TIMER_DELAY_SEC\x0112\x02",
    ]
)
texts = st.builds(
    lambda some, last: "".join(some) + last,
    st.lists(fragments, max_size=4),
    st.sampled_from([AT_NOON, "TIMER_DELAY_MS\x015000\x02", ""]),
)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), some=st.lists(texts, min_size=1, max_size=4))
def test_what_compiled_code_takes_is_what_python_would_write(
    data: st.DataObject, some: list[str]
) -> None:
    records = [record(text, b"b" * (row + 1)) for row, text in enumerate(some)]
    if data.draw(st.booleans()):
        row = data.draw(st.integers(0, len(records) - 1))
        changed = bytearray(records[row])
        changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
        records[row] = bytes(changed)
    try:
        batch = compiled(records)
    except MalformedBatchError:
        return  # the preamble's
    if batch is None:
        return

    proved = requests_of(requests(records))

    assert [raw for raw, _ in proved] == records
    times = []
    for raw in batch_records(batch):
        time = delivery_time(TIMER_TOPIC, properties_of(raw), 0)
        assert time is not None
        assert NOW < time <= LATEST
        times.append(time)
    assert_equal(batch, records, times)


def batch_records(batch: Batch) -> list[bytes]:
    records, start = bytes(batch.records), 0
    found = []
    for end in batch.found.ends.tolist():
        found.append(records[start:end])
        start = end
    return found


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"TIMER_DELIVER_MS\x01{NOW}\x02",
        f"TIMER_DELIVER_MS\x01{LATEST + 1}\x02",
        f"{AT_NOON}a\x01b\x02",
        f"TIMER_DELAY_SEC\x011\x02{AT_NOON}",
        "DELAY\x013\x02",
        "TIMER_DELAY_MS\x01x\x02",
        "a\x01" + "b" * (PROPERTIES_SIZE_MAX - 40) + "\x02" + AT_NOON,
    ],
)
@pytest.mark.parametrize("row", [0, 1, 2])
def test_one_that_is_not_plain_leaves_the_batch_to_python(text: str, row: int) -> None:
    records = [record(PLAIN + AT_NOON) for _ in range(3)]
    records[row] = record(text)

    assert compiled(records) is None
    assert [raw for raw, _ in requests_of(requests(records))] == records


@pytest.mark.parametrize("row", [0, 2])
def test_a_damaged_record_is_named(row: int) -> None:
    records = [record(PLAIN + AT_NOON) for _ in range(3)]
    records[row] = records[row].replace(b"body", b"bodY")

    assert compiled(records) is None
    with pytest.raises(MalformedBatchError, match=f"record {row}: its body"):
        requests_of(requests(records))


def test_sizes_that_do_not_add_up_are_refused() -> None:
    first, second = record(PLAIN + AT_NOON), record(PLAIN + AT_NOON)
    body = bytearray(b"".join(with_delays(encode_batch([first, second]))))
    body[16:20] = (len(first) + 1).to_bytes(4)
    begun = begun_requests(body, topic="orders", queue_id=2, store_host=HOST)

    assert waiting_batch(begun, now_ms=NOW, deliver_ms_max=LATEST) is None
    with pytest.raises(ErucaError, match="do not add up"):
        requests_of(begun)


times_of = st.lists(
    st.sampled_from(
        [
            "a\x01b\x02",
            "TIMER_OUT_MS\x0117\x02",
            "TIMER_OUT_MS\x01018\x02",
            "TIMER_OUT_MS\x01\x02",
            "TIMER_OUT_MS\x01x\x02",
            "TIMER_OUT_MS\x01-1\x02",
            "TIMER_OUT_MS",
            "TIMER_OUT_MS\x01999999999999999999\x02",
            "TIMER_OUT_MS\x019999999999999999999\x02",
        ]
    ),
    max_size=3,
).map("".join)


@settings(max_examples=80, deadline=None)
@given(st.lists(times_of, min_size=1, max_size=5))
def test_delivery_times_are_entered_as_python_reads_them(some: list[str]) -> None:
    records = [
        encode_unstamped(Record(topic=TIMER_TOPIC, body=b"x", queue_id=0, properties=text))
        for text in some
    ]
    batch = read_batch(TIMER_TOPIC, 0, bytearray(b"".join(records)), len(records))
    entries = batch.stamp(
        queue_offset=0, log_offset=0, store_timestamp=NOW, store_host=HOST, born_host=HOST
    )
    before = view_entries(bytes(entries))["tags_code"].tolist()
    expected = [
        code
        if (time := delivery_time(TIMER_TOPIC, batch.properties_of(row), NOW)) is None
        else time
        for row, code in enumerate(before)
    ]

    found = timed_entries(Appended(batch, 0, 0, NOW, entries))

    assert found["tags_code"].tolist() == expected
