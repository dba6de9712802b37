"""The replication routes refuse what is not a replica's, and nothing changes (rule 5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from eruca.contract.replication import (
    ANSWER_HEADER,
    RUN_MEDIA_TYPE,
)
from eruca.contract.wire import CONFIRMED_HEADER, EPOCH_HEADER, MAX_OFFSET_HEADER
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.processors.replication.feed import FOLLOWERS_MAX
from support.brokers import client_of as in_process
from support.brokers import open_broker
from support.replication_pairs import (
    BOTH,
    SECOND,
    SEGMENT_SIZE,
    THIRD,
    Master,
    client_of,
    leading,
    send,
)
from support.waiting import until

pytestmark = pytest.mark.anyio

EMPTY = {
    "epoch": 4,
    "epochs": [],
    "min_offset": 0,
    "end": 0,
    "segment_bytes": SEGMENT_SIZE,
}


@pytest.fixture
async def master(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Master]:
    """The master of epoch 4, whose other member has proved that its log is empty."""
    async with leading(tmp_path_factory.mktemp("store"), epoch=4, in_sync=BOTH) as master:
        yield master


@pytest.fixture
async def client(master: Master) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(master) as client:
        assert (await prove(client, SECOND)).json()["proved"]
        yield client


async def prove(client: httpx.AsyncClient, member: Member, **fields: object) -> httpx.Response:
    body = EMPTY | {"replica_id": member.replica_id, "uid": member.uid} | fields
    return await client.post("/replication/lineage", json=body)


async def fetch(
    client: httpx.AsyncClient,
    acknowledged: int,
    member: Member = SECOND,
    *,
    epoch: int = 4,
    **fields: float,
) -> httpx.Response:
    named: dict[str, Any] = {"epoch": epoch, "replica_id": member.replica_id, "uid": member.uid}
    body = {"acknowledged": acknowledged} | fields
    return await client.post("/replication/log", params=named, json=body)


def is_held(master: Master) -> bool:
    return len(master.feed._followers[SECOND].held) > 0


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_a_run_is_whole_writes_and_says_what_is_confirmed(
    master: Master, client: httpx.AsyncClient
) -> None:
    end = master.store.log_max_offset
    visible = await fetch(client, 0)  # the first one after a proof is verified

    whole = await fetch(client, 0)
    first = await fetch(client, 0, bytes_max=1)
    nothing = await fetch(client, end)

    assert whole.content == b"".join(master.store.log.pieces(0, end))
    assert whole.headers["content-type"] == RUN_MEDIA_TYPE
    assert whole.headers[EPOCH_HEADER] == "4"
    assert whole.headers[MAX_OFFSET_HEADER] == str(end)
    assert int(whole.headers[CONFIRMED_HEADER]) < end, "the replica has not had it yet"
    assert 0 < len(first.content) <= len(visible.content) < len(whole.content)
    assert whole.content.startswith(first.content)
    assert (nothing.content, nothing.headers[CONFIRMED_HEADER]) == (b"", str(end))
    numbers = [int(answer.headers[ANSWER_HEADER]) for answer in (whole, first, nothing)]
    assert numbers == [2, 3, 4]


async def test_an_acknowledgement_from_beyond_the_end_confirms_nothing(
    master: Master, client: httpx.AsyncClient
) -> None:
    confirmed, end = master.store.confirmed_offset, master.store.log_max_offset
    for offset in (end + 1, 2**63 - 1):
        assert code_of(await fetch(client, offset)) == (409, "foreign-replica")

    assert master.store.confirmed_offset == confirmed < end
    assert dict(master.feed.copies.held)[SECOND] == 0


async def test_an_acknowledgement_within_a_write_confirms_nothing(
    master: Master, client: httpx.AsyncClient
) -> None:
    confirmed, end = master.store.confirmed_offset, master.store.log_max_offset
    for offset in (1, 100, confirmed - 1, confirmed + 1, end - 1):
        assert code_of(await fetch(client, offset)) == (409, "foreign-replica")

    assert master.store.confirmed_offset == confirmed < end
    assert dict(master.feed.copies.held)[SECOND] == 0


async def test_another_epoch_is_refused(master: Master, client: httpx.AsyncClient) -> None:
    end = master.store.log_max_offset
    for epoch in (3, 5, 2**63 - 1):
        assert code_of(await fetch(client, end, epoch=epoch)) == (409, "stale-epoch")
        assert code_of(await prove(client, SECOND, epoch=epoch)) == (409, "stale-epoch")
    later = {"epochs": [{"epoch": 5, "begun_at": 0}], "end": 100}
    assert code_of(await prove(client, SECOND, **later)) == (409, "stale-epoch")

    assert dict(master.feed.copies.held) == {SECOND: 0}


async def test_a_store_that_has_not_proved_its_lineage_is_refused(
    master: Master, client: httpx.AsyncClient
) -> None:
    """A replica whose disk was wiped has another uid, and inherits nothing (rule 1)."""
    end = master.store.log_max_offset
    for member in (THIRD, Member(2, "another"), Member(3, "second")):
        assert code_of(await fetch(client, end, member)) == (409, "foreign-replica")
        assert code_of(await fetch(client, 0, member)) == (409, "foreign-replica")

    assert dict(master.feed.copies.held) == {SECOND: 0}


async def test_the_masters_own_id_is_refused(client: httpx.AsyncClient) -> None:
    answer = await prove(client, Member(1, "another"))

    assert code_of(answer) == (409, "foreign-replica")
    assert "replica id 1 is the master's own" in answer.json()["detail"]


async def test_a_proof_needs_the_bytes_that_were_asked_for(
    master: Master, client: httpx.AsyncClient
) -> None:
    end = master.store.role.epochs().epochs[-1].begun_at
    claim = {"end": end, "log_id": master.store.state.log_id}
    asked = await prove(client, THIRD, **claim)
    begin = asked.json()["tail_begin"]
    digest = "0" * 64

    assert (asked.json()["cut_to"], asked.json()["proved"]) == (end, False)
    for tail in ({"begin": begin, "end": end - 1}, {"begin": begin + 1, "end": end}):
        answer = await prove(client, THIRD, **claim, tail=tail | {"digest": digest})
        assert not answer.json()["proved"]
    wrong = await prove(client, THIRD, **claim, tail={"begin": begin, "end": end, "digest": digest})
    assert code_of(wrong) == (409, "foreign-replica")
    assert THIRD not in dict(master.feed.copies.held)


@pytest.mark.parametrize(
    "fields",
    [
        {"epochs": [{"epoch": 2, "begun_at": 5}, {"epoch": 2, "begun_at": 9}], "end": 50},
        {"epochs": [{"epoch": 2, "begun_at": 9}, {"epoch": 3, "begun_at": 5}], "end": 50},
        {"epochs": [{"epoch": 2, "begun_at": 50}], "end": 50},
        {"min_offset": 51, "end": 50},
        {"end": 2**63},
        {"end": -1},
        {"segment_bytes": 0},
        {"uid": ""},
        {"uid": "a b"},
        {"replica_id": 0},
        {"tail": {"begin": 0, "end": 5, "digest": "xyz"}},
        {"epochs": [{"epoch": n, "begun_at": n} for n in range(1, 10_003)], "end": 20_000},
        {"log_id": "x" * 65},
        {"more": 1},
    ],
    ids=str,
)
async def test_what_is_no_log_is_refused(
    master: Master, client: httpx.AsyncClient, fields: dict[str, object]
) -> None:
    answer = await prove(client, THIRD, **fields)

    assert code_of(answer) == (422, "validation-failed")
    assert THIRD not in dict(master.feed.copies.held)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ({"epoch": 0}, {}),
        ({"replica_id": 0}, {}),
        ({"uid": ""}, {}),
        ({"uid": "a/b"}, {}),
        ({"uid": "x" * 300}, {}),
        ({"more": 1}, {}),
        ({}, {"acknowledged": -1}),
        ({}, {"acknowledged": "x"}),
        ({}, {"acknowledged": 2**63}),
        ({}, {"sequence": -1}),
        ({}, {"answer": -1}),
        ({}, {"wait_seconds": 11}),
        ({}, {"wait_seconds": "nan"}),
        ({}, {"bytes_max": 0}),
        ({}, {"bytes_max": 2**40}),
        ({}, {"more": 1}),
    ],
    ids=str,
)
async def test_what_is_no_fetch_is_refused(
    master: Master, client: httpx.AsyncClient, query: dict[str, Any], fields: dict[str, object]
) -> None:
    named: dict[str, Any] = {"epoch": 4, "replica_id": 2, "uid": "second"}

    answer = await client.post(
        "/replication/log", params=named | query, json={"acknowledged": 0} | fields
    )

    assert code_of(answer) == (422, "validation-failed")
    assert dict(master.feed.copies.held) == {SECOND: 0}


async def test_a_second_fetch_of_a_replica_ends_the_first(
    master: Master, client: httpx.AsyncClient
) -> None:
    end = master.store.log_max_offset
    await fetch(client, end)  # after which it knows what is confirmed
    first = asyncio.create_task(fetch(client, end, wait_seconds=10))
    await until(lambda: is_held(master))
    second = asyncio.create_task(fetch(client, end, wait_seconds=10))

    assert (await first).content == b""
    assert not second.done()
    sending = asyncio.create_task(send(client))
    assert (await second).content
    sending.cancel()


async def test_a_sequence_sends_runs_before_earlier_ones_are_acknowledged(
    master: Master, client: httpx.AsyncClient
) -> None:
    end, confirmed = master.store.log_max_offset, master.store.confirmed_offset
    first = await fetch(client, 0, bytes_max=1)
    begun = int(first.headers[ANSWER_HEADER])
    second = await fetch(client, 0, sequence=begun)
    held = asyncio.create_task(fetch(client, 0, sequence=begun, wait_seconds=10))
    await until(lambda: is_held(master))

    assert first.content + second.content == b"".join(master.store.log.pieces(0, end))
    assert master.store.confirmed_offset == confirmed < end, "nothing is acknowledged yet"
    last = asyncio.create_task(
        fetch(client, len(first.content), sequence=begun, wait_seconds=10, answer=begun)
    )
    await until(lambda: len(master.feed._followers[SECOND].held) == 2)
    assert dict(master.feed.copies.held)[SECOND] == len(first.content)

    await fetch(client, end, sequence=begun)
    assert master.store.confirmed_offset == end
    sending = asyncio.create_task(send(client))
    assert (await held).content, "the first one that was held"
    sending.cancel()
    last.cancel()


async def test_a_sequence_that_is_over_goes_on_no_more(
    master: Master, client: httpx.AsyncClient
) -> None:
    begun = int((await fetch(client, 0, bytes_max=1)).headers[ANSWER_HEADER])
    again = await fetch(client, 0)

    for sequence in (begun, 10**6):
        assert code_of(await fetch(client, 0, sequence=sequence)) == (409, "foreign-replica")
    assert (await fetch(client, 0, sequence=int(again.headers[ANSWER_HEADER]))).content == b""
    assert (await prove(client, SECOND)).json()["proved"]
    stale = await fetch(client, 0, sequence=int(again.headers[ANSWER_HEADER]))
    assert code_of(stale) == (409, "foreign-replica")


async def test_the_end_of_a_term_ends_held_fetches(
    master: Master, client: httpx.AsyncClient
) -> None:
    end = master.store.log_max_offset
    await fetch(client, end)  # after which it knows what is confirmed
    held = asyncio.create_task(fetch(client, end, wait_seconds=10))
    await until(lambda: is_held(master))

    master.feed.close()

    assert code_of(await held) == (409, "stale-epoch")
    assert code_of(await fetch(client, end)) == (409, "stale-epoch")
    assert code_of(await prove(client, SECOND)) == (409, "stale-epoch")


async def test_replicas_outside_the_set_are_limited_in_number(
    master: Master, client: httpx.AsyncClient
) -> None:
    """The one that is silent longest makes room; a member never does."""
    strangers = [Member(10 + n, "stranger") for n in range(FOLLOWERS_MAX + 3)]
    for stranger in strangers:
        assert (await prove(client, stranger)).json()["proved"]

    held = dict(master.feed.copies.held)
    assert len(held) == FOLLOWERS_MAX
    assert SECOND in held
    assert strangers[0] not in held
    assert code_of(await fetch(client, 0, strangers[0])) == (409, "foreign-replica")
    assert (await fetch(client, 0, strangers[-1])).status_code == 200


async def test_a_broker_of_its_own_has_no_replicas(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    async with open_broker(tmp_path_factory.mktemp("alone")) as app, in_process(app) as client:
        for answer in (await fetch(client, 0), await prove(client, SECOND)):
            assert code_of(answer) == (409, "foreign-replica")
        status = (await client.get("/replication/status")).json()

        assert (status["role"], status["epoch"], status["replicas"]) == ("standalone", 0, [])
        assert status["end"] == status["durable"] == status["confirmed"] > 0


async def test_the_master_reports_its_replicas(master: Master, client: httpx.AsyncClient) -> None:
    end = master.store.log_max_offset
    await fetch(client, end)

    status = (await client.get("/replication/status")).json()

    assert status["role"] == "master"
    assert status["epoch"] == status["last_epoch"] == 4
    assert status["confirmed"] == end
    assert [one["uid"] for one in status["in_sync"]] == ["first", "second"]
    [replica] = status["replicas"]
    assert (replica["uid"], replica["in_sync"], replica["end"]) == ("second", True, end)
    assert replica["behind_bytes"] == replica["behind_seconds"] == 0
    assert status["following"] is None
