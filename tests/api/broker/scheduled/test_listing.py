"""The list of delayed messages."""

from __future__ import annotations

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.scheduled_calls import listed, send
from support.waiting import turns_during

pytestmark = pytest.mark.anyio


async def test_what_waits_is_listed_as_it_comes_due_in_pages(client: httpx.AsyncClient) -> None:
    delays = [300, 20, 100_000, 40, 20, 7_200]
    ids = [(await send(client, delay_seconds=delay))["message_id"] for delay in delays]
    by_time = [ids[index] for index in (1, 4, 3, 0, 5, 2)]

    assert await listed(client) == by_time
    assert await listed(client, limit=2) == by_time
    assert await listed(client, limit=6) == by_time
    assert await listed(client, topic="orders") == by_time
    assert await listed(client, topic="others") == []


async def test_others_have_their_turn_while_a_page_looks_at_many(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        await send(client, delay_seconds=60 + number)
    monkeypatch.setattr("eruca_broker.processors.pacing.TURN_SECONDS", 0)
    monkeypatch.setattr("eruca_broker.processors.scheduled._LOOKED_AT_ONCE", 2)

    scheduled = broker_of(app).scheduled
    (page, following), turns = await turns_during(
        scheduled.page(topic="others", limit=1, after=None)
    )

    assert (page.scheduled, following) == ([], None)
    assert turns >= 3


@pytest.mark.parametrize("cursor", ["", "x", "MQ", "MS4", "Li4u", "MS4yLjM", "é"])
async def test_a_cursor_of_no_list_is_refused(client: httpx.AsyncClient, cursor: str) -> None:
    answer = await client.get("/scheduled", params={"cursor": cursor})

    assert answer.status_code == 422, answer.text
