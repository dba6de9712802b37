"""Acts of pages: a recall, a reset and a send, each shown first and done once confirmed."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

import eruca
from eruca.contract.recall_handles import RecallHandle, encode_recall_handle
from support.consoles import Visited, visited_in
from support.waiting import until_told

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def visited(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visited]:
    async with visited_in(tmp_path_factory.mktemp("cluster")) as visited:
        for topic in ("orders", "returns"):
            await visited.client.admin.create_topic(topic, queue_count=1)
        yield visited


async def ends(client: eruca.AsyncClient, topic: str) -> dict[str, int]:
    """Return the next offset of a topic's only queue at each broker."""
    queues = await client.admin.queues(topic)
    return {queue.broker_name: one.max_offset for queue, one in queues.items()}


async def test_a_scheduled_message_is_recalled_and_no_other_one(visited: Visited) -> None:
    handles: list[str] = []
    async with visited.client.producer() as producer:
        for key in ("keep", "drop"):
            message = eruca.Message("orders", b"x", message_id=key, delay_seconds=3_600)
            sent = await producer.send(message)
            assert sent.recall_handle is not None
            handles.append(sent.recall_handle)
    text = await until_told(
        lambda: visited.page("/scheduled"), lambda text: text.count("Recall …") == 2
    )
    assert f'href="/scheduled/{handles[1]}"' in text
    assert "<code>drop</code>" in await visited.page("/scheduled?q=drop")
    path = f"/scheduled/{handles[1]}"

    assert "One message is never delivered to the topic orders." in await visited.page(path)
    refused = await visited.act(path, typed="order")
    assert "expected orders, found" in refused.text
    assert len([held async for held in visited.client.admin.scheduled()]) == 2

    done = await visited.act(path, typed="orders")
    assert "The message is never delivered." in done.text
    left = [held.message.message_id async for held in visited.client.admin.scheduled()]
    assert left == ["keep"]
    assert "It does not wait any more." in await visited.page(path)


async def test_a_message_that_was_never_scheduled_is_not_said_to_be_recalled(
    visited: Visited,
) -> None:
    handle = encode_recall_handle(RecallHandle("orders", "broker-a", 1_800_000_000_000, "none"))
    form = await visited.page("/scheduled")
    token = re.search(r'name="csrf" value="([^"]+)"', form)
    assert token is not None

    answer = await visited.http.post(
        f"/scheduled/{handle}", data={"csrf": token[1], "typed": "orders"}
    )

    assert answer.status_code == httpx.codes.NOT_FOUND
    assert "never delivered" not in answer.text


async def test_a_message_is_sent_with_its_key_and_tag(visited: Visited) -> None:
    assert "No group subscribes to this topic now." in await visited.page("/topics/returns/send")
    before = sum((await ends(visited.client, "returns")).values())

    fields = {"body": '{"order": 17}\r\nnext', "keys": "17 18", "tag": "paid"}
    done = await visited.act("/topics/returns/send", **fields)

    assert done.status_code == httpx.codes.OK, done.text
    assert "at offset" in done.text
    assert sum((await ends(visited.client, "returns")).values()) == before + 1
    [found] = await visited.client.admin.messages_by_key("returns", "18")
    assert found.body is not None
    assert (found.body.octets(), found.tag) == (b'{"order": 17}\nnext', "paid")
    assert "eruca send --topic returns --key 17 --key 18 --tag paid" in done.text
    refused = await visited.act("/topics/returns/send", body="x", tag="two\x02words")
    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert "tag" in refused.text
    assert sum((await ends(visited.client, "returns")).values()) == before + 1


async def test_a_position_is_reset_queue_by_queue_as_it_was_shown(visited: Visited) -> None:
    client = visited.client
    await client.admin.groups.create("billing", start="earliest")
    async with client.producer() as producer:
        for name in ("broker-a", "broker-a", "broker-b"):
            queue = eruca.MessageQueue("orders", name, 0)
            await producer.send(eruca.Message("orders", b"x"), queue=queue)
    end = await ends(client, "orders")
    offsets = {eruca.MessageQueue("orders", name, 0): at for name, at in end.items()}
    await client.admin.groups.commit("billing", offsets)
    path = "/groups/billing/reset?topic=orders&to=earliest"
    count = sum(end.values())

    shown = await visited.page(path)
    assert f"<dt>Messages consumed again, at most</dt><dd>{count}</dd>" in shown
    assert shown.count("would be reset") == 2
    refused = await visited.act(path, topic="orders", to="earliest", typed="bill")
    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    lag = await client.admin.groups.lag("billing", topic="orders")
    assert lag.lag == 0

    done = await visited.act(path, topic="orders", to="earliest", typed="billing")
    assert done.status_code == httpx.codes.OK, done.text
    assert done.text.count('<span class="badge good">reset</span>') == 2
    after = await client.admin.groups.lag("billing", topic="orders")
    assert {one.committed_offset for one in after.queues.values()} == {0}
    late = await visited.page("/groups/billing/reset?topic=orders&to=time&at=2040-01-01T00:00:00")
    assert f"<dt>Messages passed over, at most</dt><dd>{count}</dd>" in late
    assert "2040-01-01 00:00:00 UTC" in late
