"""Batches of records: a sound one is stored as it is, any other changes nothing."""

from __future__ import annotations

import random
import struct
from typing import Final

import httpx
import pytest

from eruca.contract.limits import BATCH_COUNT_MAX, BODY_SIZE_MAX, PROPERTIES_SIZE_MAX
from eruca.contract.records import (
    CHECKSUM_ROOM,
    MAGIC_BLANK,
    Record,
    RecordLayout,
    decode_record,
    encode_record,
    encode_unstamped,
)
from eruca.contract.wire import BATCH_BODY_SIZE_MAX, RECORDS_MEDIA_TYPE, decode_pull
from eruca_chassis.app import ServiceApp
from support.brokers import IPV6_STORE_HOST, RECORDS, batch, broker_of, record, with_field

pytestmark = pytest.mark.anyio

PATH: Final = "/topics/orders/queues/1/records"
BODY_SIZE_AT: Final = 84
TOPIC_AT: Final = 88 + len(b"body")
PROPERTIES_AT: Final = TOPIC_AT + 1 + len(b"orders")


def good(body: bytes = b"body", **fields: object) -> bytes:
    return record("orders", body, queue_id=1, **fields)


async def pull_records(client: httpx.AsyncClient, offset: int = 0) -> list[Record]:
    answer = await client.get(
        "/topics/orders/queues/1/messages",
        params={"offset": offset, "count_max": 4096},
        headers={"accept": RECORDS_MEDIA_TYPE},
    )
    pulled = decode_pull(answer.content)
    records, position = [], 0
    for size in pulled.sizes:
        records.append(decode_record(pulled.records, position))
        position += size
    return records


@pytest.mark.parametrize("count", [1, 2, 27, 28, 500])
async def test_a_batch_is_stored_with_the_brokers_fields_stamped(
    client: httpx.AsyncClient, count: int
) -> None:
    sent = [good(b"m%d" % n, properties=f"TAGS\x01t{n}\x02") for n in range(count)]

    answer = await client.post(PATH, content=batch(sent), headers=RECORDS)

    assert answer.status_code == 201
    receipt = answer.json()
    assert (receipt["queue_id"], receipt["queue_offset"], receipt["count"]) == (1, 0, count)
    stored = await pull_records(client)
    log_offset = receipt["log_offset"]
    for number, found in enumerate(stored):
        assert (found.body, found.property_map()) == (b"m%d" % number, {"TAGS": f"t{number}"})
        assert (found.queue_offset, found.log_offset) == (number, log_offset)
        assert found.store_timestamp == receipt["stored_at_ms"]
        assert found.born_host.ip == "10.1.2.3"
        log_offset += found.size


async def test_batches_of_a_queue_follow_each_other(client: httpx.AsyncClient) -> None:
    for expected in (0, 3, 6):
        answer = await client.post(PATH, content=batch([good()] * 3), headers=RECORDS)
        assert answer.json()["queue_offset"] == expected


_SOUND: Final = good()
_LATER: Final = {
    "size one too large": with_field(_SOUND, 0, struct.pack(">i", len(_SOUND) + 1)),
    "size negative": with_field(_SOUND, 0, struct.pack(">i", -1)),
    "magic of a blank": with_field(_SOUND, 4, struct.pack(">I", MAGIC_BLANK)),
    "magic unknown": with_field(_SOUND, 4, b"ERCA"),
    "crc wrong": with_field(_SOUND, 8, b"\0\0\0\1"),
    "crc with the sign bit": with_field(_SOUND, 8, bytes([_SOUND[8] | 0x80])),
    "another queue": with_field(_SOUND, 12, struct.pack(">i", 2)),
    "negative queue": with_field(_SOUND, 12, struct.pack(">i", -1)),
    "sys flag: prepared": with_field(_SOUND, RecordLayout.SYS_FLAG, struct.pack(">i", 4)),
    "sys flag: rolled back": with_field(_SOUND, RecordLayout.SYS_FLAG, struct.pack(">i", 12)),
    "sys flag: born host of IPv6": with_field(_SOUND, RecordLayout.SYS_FLAG, struct.pack(">i", 16)),
    "sys flag: store host of IPv6": with_field(
        _SOUND, RecordLayout.SYS_FLAG, struct.pack(">i", 32)
    ),
    "born in no year": with_field(_SOUND, RecordLayout.BORN_TIMESTAMP, struct.pack(">q", 2**62)),
    "born before the epoch": with_field(_SOUND, RecordLayout.BORN_TIMESTAMP, struct.pack(">q", -1)),
    "reconsumed": good(reconsume_times=1),
    "decides a half message": good(prepared_offset=1),
    "asks for a delay": good(properties="TAGS\x01a\x02DELAY\x013\x02"),
    "asks for a time": good(properties="TIMER_DELIVER_MS\x011795248000000\x02"),
    "no body": record("orders", b"", queue_id=1),
    "body longer than the record": with_field(_SOUND, BODY_SIZE_AT, struct.pack(">i", 1000)),
    "body negative": with_field(_SOUND, BODY_SIZE_AT, struct.pack(">i", -4)),
    "body shorter than it is": with_field(_SOUND, BODY_SIZE_AT, struct.pack(">i", 3)),
    "foreign topic": record("orderz", queue_id=1),
    "longer topic": record("orders2", queue_id=1),
    "shorter topic": record("order", queue_id=1),
    "system topic": record("ERUCA_SYS_EVENTS", queue_id=1),
    "topic's length beyond the record": with_field(_SOUND, TOPIC_AT, b"\xff"),
    "properties' length beyond the record": with_field(_SOUND, PROPERTIES_AT, b"\0\x15"),
    "properties' length negative": with_field(_SOUND, PROPERTIES_AT, b"\xff\xff"),
    "IPv6 store host": encode_unstamped(
        Record(topic="orders", body=b"body", queue_id=1, store_host=IPV6_STORE_HOST)
    ),
    "cut short": _SOUND[:-1],
    "no room for a checksum": encode_record(Record(topic="orders", body=b"body", queue_id=1)),
    "a checksum where its room should be": encode_record(
        Record(topic="orders", body=b"body", queue_id=1), with_checksum=True
    ),
    "room for a checksum not at the end": encode_record(
        Record(topic="orders", body=b"body", queue_id=1, properties=f"{CHECKSUM_ROOM}a\x01b\x02")
    ),
    "minimal size, IPv6 layout": with_field(
        record("o", b"", queue_id=1)[:91], RecordLayout.SYS_FLAG, struct.pack(">i", 16)
    ),
}


@pytest.mark.parametrize("name", _LATER)
@pytest.mark.parametrize("count", [1, 40], ids=["alone", "among others"])
async def test_a_record_that_is_not_sound_refuses_the_whole_batch(
    app: ServiceApp, client: httpx.AsyncClient, name: str, count: int
) -> None:
    await client.put("/topics/orders", json={})
    before = broker_of(app).store.log_max_offset
    records = [good()] * (count - 1) + [_LATER[name]]

    refused = await client.post(PATH, content=batch(records), headers=RECORDS)

    assert (refused.status_code, refused.json()["code"]) == (400, "malformed-records"), name
    assert broker_of(app).store.log_max_offset == before
    assert (await client.get("/topics/orders/queues")).status_code == 200


_BATCHES: Final = {
    "nothing": b"",
    "half a preamble": batch([_SOUND])[:8],
    "no records": batch([]),
    "magic": batch([_SOUND], magic=b"ERB9"),
    "count too small": batch([_SOUND] * 2, count=1),
    "count too large": batch([_SOUND], count=2),
    "count far too large": batch([_SOUND], count=2**32 - 1),
    "more than a batch holds": batch([_SOUND] * (BATCH_COUNT_MAX + 1)),
    "size too small": batch([_SOUND], size=len(_SOUND) - 1),
    "size too large": batch([_SOUND], size=len(_SOUND) + 1),
    "size far too large": batch([_SOUND], size=2**32 - 1),
    "reserved is used": batch([_SOUND], reserved=1),
    "column does not add up": batch([_SOUND] * 2, sizes=[len(_SOUND), len(_SOUND) + 1]),
    "column shifts the border": batch([_SOUND] * 2, sizes=[len(_SOUND) + 1, len(_SOUND) - 1]),
    "column of zeros and one": batch([_SOUND] * 2, sizes=[0, 2 * len(_SOUND)]),
    "column overflows": batch([_SOUND] * 40, sizes=[2**32 - 1] * 40),
    "trailing byte": batch([_SOUND], tail=b"\0"),
    "truncated": batch([_SOUND] * 40)[:-1],
}


@pytest.mark.parametrize("name", _BATCHES)
async def test_a_batch_that_does_not_add_up_is_refused(
    app: ServiceApp, client: httpx.AsyncClient, name: str
) -> None:
    before = broker_of(app).store.log_max_offset

    refused = await client.post(PATH, content=_BATCHES[name], headers=RECORDS)

    assert (refused.status_code, refused.json()["code"]) == (400, "malformed-records")
    assert broker_of(app).store.log_max_offset == before


async def test_sizes_beyond_their_limit_are_413(app: ServiceApp, client: httpx.AsyncClient) -> None:
    before = broker_of(app).store.log_max_offset

    for content in (batch([good(b"x" * (BODY_SIZE_MAX + 1))]), bytes(BATCH_BODY_SIZE_MAX + 1)):
        refused = await client.post(PATH, content=content, headers=RECORDS)
        assert (refused.status_code, refused.json()["code"]) == (413, "too-large")

    assert broker_of(app).store.log_max_offset == before


async def test_the_largest_message_fits(client: httpx.AsyncClient) -> None:
    longest = "p\x01" + "x" * (PROPERTIES_SIZE_MAX - 3) + "\x02"

    sent = await client.post(
        PATH, content=batch([good(b"x" * BODY_SIZE_MAX, properties=longest)]), headers=RECORDS
    )

    assert sent.status_code == 201
    [stored] = await pull_records(client)
    assert (len(stored.body), stored.property_map()) == (BODY_SIZE_MAX, {"p": longest[2:-1]})


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/orders/queues/4/records", 404, "queue-not-found"),
        ("/topics/orders/queues/x/records", 422, "validation-failed"),
        ("/topics/orders/queues/-1/records", 422, "validation-failed"),
        ("/topics/orders/queues/99999999999/records", 422, "validation-failed"),
        ("/topics/ERUCA_SYS_EVENTS/queues/0/records", 403, "system-topic-protected"),
        ("/topics/no.dots/queues/0/records", 422, "validation-failed"),
        ("/topics/orders/queues/1/records?x=1", 422, "validation-failed"),
    ],
)
async def test_a_batch_has_to_have_somewhere_to_go(
    client: httpx.AsyncClient, path: str, status: int, code: str
) -> None:
    refused = await client.post(path, content=batch([_SOUND]), headers=RECORDS)

    assert (refused.status_code, refused.json()["code"]) == (status, code)


@pytest.mark.parametrize("content_type", ["application/json", "application/octet-stream", ""])
async def test_only_records_are_taken(client: httpx.AsyncClient, content_type: str) -> None:
    headers = {"content-type": content_type} if content_type else {}

    refused = await client.post(PATH, content=batch([_SOUND]), headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (415, "unsupported-media-type")


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize(
    ("properties", "pointer"),
    [
        ("city\x01Ro\0me\x02", "/body/records/1/properties"),
        ("KEYS\x01\0\x02", "/body/records/1/properties"),
        ("UNIQ_KEY\x01..\x02", "/body/records/1/properties/UNIQ_KEY"),
        ("UNIQ_KEY\x01a b\x02", "/body/records/1/properties/UNIQ_KEY"),
    ],
)
async def test_a_message_that_could_not_be_named_refuses_its_batch(
    app: ServiceApp, client: httpx.AsyncClient, properties: str, pointer: str, *, idempotent: bool
) -> None:
    before = broker_of(app).store.log_max_offset
    headers = RECORDS | ({"Idempotency-Key": '"k"'} if idempotent else {})

    sent = batch([good(), good(properties=properties)])
    refused = await client.post(PATH, content=sent, headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
    assert refused.json()["fix"]
    assert broker_of(app).store.log_max_offset == before


async def test_a_property_that_is_not_utf_8_makes_no_queue_unreadable(
    client: httpx.AsyncClient,
) -> None:
    odd = good(properties="TAGS\x01a\x02name\x01xx\x02").replace(b"xx", b"\xff\xfe")
    await client.post(PATH, content=batch([odd]), headers=RECORDS)

    answer = await client.get("/topics/orders/queues/1/messages", params={"offset": 0})
    queues = await client.get("/topics/orders/queues")
    log = await client.get(
        "/log", params={"from_offset": 0}, headers={"accept": "application/json"}
    )

    [message] = answer.json()["messages"]
    assert message["properties"] == {"name": "\ufffd\ufffd"}
    assert (queues.status_code, log.status_code) == (200, 200)


async def test_no_flipped_or_lost_byte_ever_does_harm(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    """Seeded: 600 batches with bytes replaced, removed or inserted anywhere."""
    chance = random.Random(1)
    store = broker_of(app).store
    await client.put("/topics/orders", json={})
    accepted = 0
    for _ in range(600):
        count = chance.choice([1, 2, 30])
        sent = [good(b"m%d" % n, properties="TAGS\x01a\x02") for n in range(count)]
        content = bytearray(batch(sent))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(content))
            removed = chance.randint(0, 1)
            content[at : at + removed] = chance.randbytes(chance.randint(0, 1))
        before = store.log_max_offset

        answer = await client.post(PATH, content=bytes(content), headers=RECORDS)

        if answer.status_code == 201:
            accepted += 1
        else:
            assert answer.status_code in (400, 413), answer.text
            assert answer.headers["content-type"] == "application/problem+json"
            assert store.log_max_offset == before
    read = await client.get(
        "/topics/orders/queues/1/messages", params={"offset": 0, "count_max": 4096}
    )
    assert read.status_code == 200
    assert accepted  # a changed flag or property is a sound record still
