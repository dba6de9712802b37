"""Requests for what is not in memory wait for the disk, and no other request waits with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of
from support.cold_files import ColdFiles
from support.delivery_clients import DeliveryClient
from support.delivery_clients import texts as texts_of
from support.pulled_messages import AS_RECORDS, QUEUE, position, put, texts
from support.roles import roles_of_store

pytestmark = pytest.mark.anyio
LARGE = "x" * 10_000  # has pages of its own


@pytest.fixture
def files(app: ServiceApp, monkeypatch: pytest.MonkeyPatch) -> Iterator[ColdFiles]:
    """Files that are cold; the disk reads at the latest when the broker stops."""
    assert broker_of(app)
    files = ColdFiles(monkeypatch)
    yield files
    files.let_read()


@pytest.mark.parametrize("headers", [{}, AS_RECORDS], ids=["json", "records"])
async def test_a_pull_waits_for_the_disk_and_sends_do_not(
    client: httpx.AsyncClient, files: ColdFiles, headers: dict[str, str]
) -> None:
    await put(client, "a", "b")
    pull = asyncio.create_task(client.get(QUEUE, params={"offset": 0}, headers=headers))
    await files.asked()

    await put(client, "sent meanwhile")

    assert not pull.done()
    files.let_read()
    answer = await pull
    assert answer.status_code == 200
    if not headers:
        assert texts(answer.json()) == ["a", "b", "sent meanwhile"]


@pytest.mark.parametrize(
    "path",
    ["/topics/orders/messages?key=none", "/log?from_offset=0", "/log/records/0"],
)
async def test_look_ups_and_the_log_wait_in_the_same_way(
    client: httpx.AsyncClient, files: ColdFiles, path: str
) -> None:
    await put(client, "a")
    found = asyncio.create_task(client.get(path))
    if "key=" not in path:  # nothing of the index has to be read for it
        await files.asked()
        assert not found.done()

    files.let_read()
    assert (await found).status_code == 200


async def test_a_pull_of_many_is_answered_with_what_is_in_memory(
    client: httpx.AsyncClient, files: ColdFiles
) -> None:
    await put(client, LARGE)
    await put(client, LARGE, queue_id=1)
    files.let_read()
    await client.get("/topics/orders/queues/1/messages", params={"offset": 0})
    files.hold()
    request = {"queues": [position(0), position(1)]}

    [answer] = (await client.post("/pull", json=request)).json()["queues"]
    assert answer["queue_id"] == 1

    await files.asked()  # meanwhile, for the next pull
    files.let_read()
    rest = (await client.post("/pull", json={"queues": [position(0)]})).json()["queues"]
    assert [one["queue_id"] for one in rest] == [0]


async def test_a_pull_of_many_waits_if_nothing_is_in_memory(
    client: httpx.AsyncClient, files: ColdFiles
) -> None:
    await put(client, LARGE)
    await put(client, LARGE, queue_id=1)
    pull = asyncio.create_task(
        client.post("/pull", json={"queues": [position(0), position(1)], "wait_seconds": 0})
    )
    await files.asked()
    assert not pull.done()

    files.let_read()
    assert (await pull).json()["queues"] != []


async def test_deliveries_wait_outside_of_their_groups_turn(
    client: httpx.AsyncClient, files: ColdFiles
) -> None:
    orders = DeliveryClient(client)
    files.let_read()
    await orders.create()
    await orders.send("first")
    [first] = await orders.receive()
    await orders.send(LARGE)
    files.hold()

    receiving = asyncio.create_task(orders.receive())
    await files.asked()
    assert (await orders.ack(first)).is_success
    assert not receiving.done()

    files.let_read()
    assert texts_of(await receiving) == [LARGE]


async def test_a_disk_that_cannot_be_read_is_said_to_the_client(
    client: httpx.AsyncClient, files: ColdFiles
) -> None:
    await put(client, "a")
    files.fault = OSError(5, "Input/output error")
    files.let_read()

    answer = await client.get(QUEUE, params={"offset": 0})

    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "Input/output error" in answer.json()["detail"]


async def test_a_store_whose_role_has_changed_still_reads_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with roles_of_store(tmp_path) as roles, client_of(roles.app) as client:
        async with roles.role(is_master=False):
            pass
        async with roles.role(is_master=True):
            await DeliveryClient(client).create()
            await put(client, "a")
            files = ColdFiles(monkeypatch)
            files.let_read()

            answer = await client.get(QUEUE, params={"offset": 0})

            assert texts(answer.json()) == ["a"]
            assert (roles.store.cold.count, roles.store.cold.on_loop_count) == (len(files.reads), 0)
            assert files.reads
