"""Pulls: messages in order, by count, size and tag, in the form that the client accepts."""

from __future__ import annotations

import zlib

import httpx
import pytest

from eruca.contract.limits import PULL_COUNT_MAX
from eruca.contract.records import SysFlag, decode_record
from eruca.contract.wire import RECORDS_MEDIA_TYPE, PullStatus, decode_pull
from eruca_chassis.app import ServiceApp
from support.brokers import RECORDS, batch, broker_of, record
from support.pulled_messages import AS_RECORDS, QUEUE, position, put, texts

pytestmark = pytest.mark.anyio


async def test_messages_come_in_queue_order_up_to_a_count(client: httpx.AsyncClient) -> None:
    await put(client, "a", "b", "c")

    first = (await client.get(QUEUE, params={"offset": 0, "count_max": 2})).json()
    rest = (await client.get(QUEUE, params={"offset": first["next_offset"]})).json()

    assert (texts(first), texts(rest)) == (["a", "b"], ["c"])
    assert (first["status"], first["next_offset"]) == ("found", 2)
    assert (rest["next_offset"], rest["min_offset"], rest["max_offset"]) == (3, 0, 3)


async def test_records_are_the_logs_own_bytes(app: ServiceApp, client: httpx.AsyncClient) -> None:
    await put(client, "a", "b")

    answer = await client.get(QUEUE, params={"offset": 0}, headers=AS_RECORDS)

    assert answer.headers["content-type"] == RECORDS_MEDIA_TYPE
    pulled = decode_pull(answer.content)
    assert (pulled.status, pulled.next_offset, len(pulled.sizes)) == (PullStatus.FOUND, 2, 2)
    first = decode_record(pulled.records)
    read = broker_of(app).store.log.read(first.log_offset, len(pulled.records))
    assert bytes(read.records) == bytes(pulled.records)


async def test_a_large_answer_is_whole_though_it_goes_out_in_pieces(
    client: httpx.AsyncClient,
) -> None:
    """Two queues take turns in the log, so that each answer is made of many slices."""
    for number in range(40):
        await put(client, f"{number}-" + "x" * 10_000, queue_id=number % 2)

    answer = await client.get(
        QUEUE, params={"offset": 0, "bytes_max": 8 * 1024**2}, headers=AS_RECORDS
    )

    pulled = decode_pull(answer.content)
    assert len(pulled.sizes) == 20
    position = 0
    for number, size in enumerate(pulled.sizes):
        assert decode_record(pulled.records, position).body.startswith(b"%d-" % (2 * number))
        position += size


@pytest.mark.parametrize(
    ("offset", "status", "next_offset"),
    [
        (0, "found", 2),
        (2, "no_new_message", 2),
        (3, "offset_too_large", 2),
        (2**63 - 1, "offset_too_large", 2),
    ],
)
@pytest.mark.parametrize("headers", [{}, AS_RECORDS], ids=["json", "records"])
async def test_the_status_says_why_there_is_nothing(
    client: httpx.AsyncClient,
    offset: int,
    status: str,
    next_offset: int,
    headers: dict[str, str],
) -> None:
    await put(client, "a", "b")

    answer = await client.get(QUEUE, params={"offset": offset, "wait_seconds": 0}, headers=headers)

    assert answer.status_code == 200
    if headers:
        pulled = decode_pull(answer.content)
        assert (pulled.status, pulled.next_offset) == (status, next_offset)
    else:
        assert (answer.json()["status"], answer.json()["next_offset"]) == (status, next_offset)


@pytest.mark.parametrize("offset", [3, 2**63 - 1])
async def test_only_the_end_of_the_queue_is_waited_at(
    client: httpx.AsyncClient, offset: int
) -> None:
    await put(client, "a")

    answer = await client.get(QUEUE, params={"offset": offset, "wait_seconds": 30})

    assert answer.json()["status"] == "offset_too_large"


async def test_a_filter_passes_the_tags_it_names(client: httpx.AsyncClient) -> None:
    for tag in ("red", "blue", "green", None):
        await put(client, str(tag), tag=tag)

    some = await client.get(QUEUE, params={"offset": 0, "filter": "red || green"})
    none = await client.get(QUEUE, params={"offset": 0, "filter": "yellow"})
    everything = await client.get(QUEUE, params={"offset": 0, "filter": "*"})

    assert texts(some.json()) == ["red", "green"]
    assert (none.json()["status"], none.json()["next_offset"]) == ("no_matched_message", 4)
    assert texts(everything.json()) == ["red", "blue", "green", "None"]


async def test_json_compares_tags_and_records_their_hashes(client: httpx.AsyncClient) -> None:
    """``Aa`` and ``BB`` have one hash."""
    await put(client, "x", tag="BB")

    as_json = await client.get(QUEUE, params={"offset": 0, "filter": "Aa"})
    as_records = await client.get(QUEUE, params={"offset": 0, "filter": "Aa"}, headers=AS_RECORDS)

    assert (as_json.json()["status"], as_json.json()["next_offset"]) == ("no_matched_message", 1)
    assert len(decode_pull(as_records.content).sizes) == 1


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("", "/query/offset"),
        ("offset=-1", "/query/offset"),
        ("offset=9223372036854775808", "/query/offset"),
        ("offset=1e3", "/query/offset"),
        ("offset=%D9%A3", "/query/offset"),
        ("offset=0&offset=1", "/query/offset"),
        ("offset=0&count_max=0", "/query/count_max"),
        (f"offset=0&count_max={PULL_COUNT_MAX + 1}", "/query/count_max"),
        ("offset=0&bytes_max=0", "/query/bytes_max"),
        ("offset=0&bytes_max=99999999", "/query/bytes_max"),
        ("offset=0&wait_seconds=31", "/query/wait_seconds"),
        ("offset=0&wait_seconds=-1", "/query/wait_seconds"),
        ("offset=0&wait_seconds=nan", "/query/wait_seconds"),
        ("offset=0&wait_seconds=inf", "/query/wait_seconds"),
        ("offset=0&wait_seconds=1e999", "/query/wait_seconds"),
        ("offset=0&wait_seconds=1_0", "/query/wait_seconds"),
        ("offset=0&wait_seconds=.", "/query/wait_seconds"),
        ("offset=0&wait_seconds=%D9%A3", "/query/wait_seconds"),
        ("offset=0&filter=%7C%7C", "/query/filter"),
        ("offset=0&filter=" + "x" * 4097, "/query/filter"),
        ("offset=0&ofset=1", "/query/ofset"),
        ("offset=0&max_bytes=1", "/query/max_bytes"),
    ],
)
async def test_a_query_that_is_not_understood_is_422(
    client: httpx.AsyncClient, query: str, pointer: str
) -> None:
    await put(client, "a")

    refused = await client.get(f"{QUEUE}?{query}")

    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_limits_in_another_order_of_words_are_refused_with_their_names(
    client: httpx.AsyncClient,
) -> None:
    await put(client, "a")

    one = (await client.get(f"{QUEUE}?offset=0&max_count=1")).json()
    many = (await client.post("/pull", json={"queues": [position(0)], "max_bytes": 1})).json()

    assert one["detail"] == "/query/max_count: unknown parameter; did you mean 'count_max'?"
    assert "bytes_max, count_max" in one["fix"]
    assert many["detail"] == "/body/max_bytes: unknown field; did you mean 'bytes_max'?"


@pytest.mark.parametrize("wait", ["0", "2.", ".5", "1e-05", "5.0E-4", "2e+0", "-0.0"])
@pytest.mark.parametrize("path", [QUEUE, "/log"])
async def test_seconds_are_written_as_programs_write_numbers(
    client: httpx.AsyncClient, path: str, wait: str
) -> None:
    await put(client, "a")
    begin = "from_offset" if path == "/log" else "offset"

    answer = await client.get(path, params={begin: 0, "wait_seconds": wait})

    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/topics/unknown/queues/0/messages?offset=0", 404, "topic-not-found"),
        ("/topics/orders/queues/4/messages?offset=0", 404, "queue-not-found"),
        ("/topics/orders/queues/x/messages?offset=0", 422, "validation-failed"),
        ("/topics/no.dots/queues/0/messages?offset=0", 422, "validation-failed"),
        ("/topics//queues/0/messages?offset=0", 404, "not-found"),
    ],
)
async def test_a_queue_has_to_be_there(
    client: httpx.AsyncClient, path: str, status: int, code: str
) -> None:
    await put(client, "a")

    refused = await client.get(path)

    assert (refused.status_code, refused.json()["code"]) == (status, code)


@pytest.mark.parametrize("permission", ["w", "none"])
async def test_a_topic_that_may_not_be_read_refuses(
    client: httpx.AsyncClient, permission: str
) -> None:
    await put(client, "a")
    await client.put("/topics/orders", json={"permission": permission})

    refused = await client.get(QUEUE, params={"offset": 0})

    assert (refused.status_code, refused.json()["code"]) == (403, "permission-denied")


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/json", "application/json"),
        ("application/*", "application/json"),
        (RECORDS_MEDIA_TYPE, RECORDS_MEDIA_TYPE),
        (f"{RECORDS_MEDIA_TYPE}, */*", RECORDS_MEDIA_TYPE),
        (f"application/json;q=0.5, {RECORDS_MEDIA_TYPE}", RECORDS_MEDIA_TYPE),
        (f"application/json, {RECORDS_MEDIA_TYPE};q=0.5", "application/json"),
        (f"*/*, {RECORDS_MEDIA_TYPE};q=0", "application/json"),
        ("text/html", "application/problem+json"),
        ("application/json;q=0, text/*", "application/problem+json"),
    ],
)
async def test_accept_chooses_the_form(
    client: httpx.AsyncClient, accept: str, content_type: str
) -> None:
    await put(client, "a")

    answer = await client.get(QUEUE, params={"offset": 0}, headers={"accept": accept})

    assert answer.headers["content-type"] == content_type
    assert answer.status_code == (406 if "problem" in content_type else 200)


@pytest.mark.parametrize(
    ("flag", "stored", "shown"),
    [
        (SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB, zlib.compress(b"plain"), {"text": "plain"}),
        (SysFlag.COMPRESSED, zlib.compress(b"plain"), {"text": "plain"}),
        (
            SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB,
            b"not zlib",
            {"base64": "bm90IHpsaWI=", "compression": "zlib"},
        ),
        (
            SysFlag.COMPRESSED | SysFlag.COMPRESSION_LZ4,
            b"some lz4",
            {"base64": "c29tZSBsejQ=", "compression": "lz4"},
        ),
        (
            SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD,
            b"zstd",
            {"base64": "enN0ZA==", "compression": "zstd"},
        ),
    ],
)
async def test_json_shows_a_compressed_body_plain_or_says_what_it_is(
    client: httpx.AsyncClient, flag: int, stored: bytes, shown: dict[str, str]
) -> None:
    sent = record("orders", stored, queue_id=0, sys_flag=int(flag))
    await client.post("/topics/orders/queues/0/records", content=batch([sent]), headers=RECORDS)

    [message] = (await client.get(QUEUE, params={"offset": 0})).json()["messages"]

    assert message["body"] == shown


async def test_bodies_that_unpack_to_much_end_the_answer_early(
    client: httpx.AsyncClient,
) -> None:
    """Each of the 20 bodies is 4 KB on disk and 4 MB when unpacked."""
    bomb = zlib.compress(bytes(4 * 1024**2))
    flag = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
    sent = [record("orders", bomb, queue_id=0, sys_flag=flag)] * 20
    await client.post("/topics/orders/queues/0/records", content=batch(sent), headers=RECORDS)

    seen, offset = 0, 0
    while offset < 20:
        answer = (await client.get(QUEUE, params={"offset": offset, "count_max": 20})).json()
        assert answer["next_offset"] == offset + len(answer["messages"])
        assert len(answer["messages"]) <= 2
        seen += len(answer["messages"])
        offset = answer["next_offset"]
    assert seen == 20


async def test_queues_of_one_answer_share_the_room_for_unpacked_bodies(
    client: httpx.AsyncClient,
) -> None:
    bomb = zlib.compress(bytes(4 * 1024**2))
    flag = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB)
    for queue_id in range(4):
        sent = [record("orders", bomb, queue_id=queue_id, sys_flag=flag)] * 2
        path = f"/topics/orders/queues/{queue_id}/records"
        await client.post(path, content=batch(sent), headers=RECORDS)

    offsets = dict.fromkeys(range(4), 0)
    for _ in range(8):
        request = {"queues": [position(*item) for item in offsets.items()]}
        answer = await client.post("/pull", json=request)
        assert len(answer.content) < 40 * 1024**2
        for section in answer.json()["queues"]:
            offsets[section["queue_id"]] = section["answer"]["next_offset"]

    assert set(offsets.values()) == {2}
