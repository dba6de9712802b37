"""A broker that is away is said to be away, and totals without its part are unknown."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

import eruca
from support.consoles import visited_in
from support.registered_brokers import register
from support.waiting import until_told

pytestmark = pytest.mark.anyio


async def test_the_settings_of_a_live_broker_that_does_not_answer_are_unknown(
    tmp_path: Path,
) -> None:
    async with visited_in(tmp_path) as visited:
        await visited.client.admin.create_topic("orders", queue_count=1)
        [name_server] = visited.cluster.namesrv_urls
        async with httpx.AsyncClient(base_url=name_server, trust_env=False) as registrar:
            await register(registrar, "broker-c", host="127.0.0.1:1")

        preview = await until_told(
            lambda: visited.page("/topic-settings?topic=orders&permission=r&step=preview"),
            lambda text: "broker-c does not answer" in text,
        )

        assert re.search(r"As of [\d:]+ UTC, from broker-a, broker-b\.", preview)
        assert re.search(
            r">broker-c</th>\s*<td>Permission</td>\s*<td>\?</td>\s*<td>read only</td>", preview
        )
        assert preview.count("takes something away") == 2
        assert "unknown" in preview
        assert 'name="typed"' in preview


async def test_nothing_is_shown_as_if_the_broker_had_never_been_there(tmp_path: Path) -> None:
    async with visited_in(tmp_path, request_timeout_seconds=30) as visited:
        assert "There is no topic yet." in await visited.page("/topics")
        assert "There is no group yet." in await visited.page("/groups")
        await visited.client.admin.create_topic("orders", queue_count=1)
        await visited.client.admin.create_topic("local", broker_name="broker-b")
        await visited.client.admin.groups.create("billing", start="earliest")
        async with visited.client.producer() as producer:
            await producer.send(eruca.Message("orders", b"x"))
        consumer = visited.client.push_consumer("billing", start="earliest")
        consumer.on("orders")(lambda message: None)
        async with consumer:
            await until_told(
                lambda: visited.page("/groups/billing"),
                lambda text: "<dt>To consume</dt><dd>0</dd>" in text,
            )
        await visited.cluster.take_broker_away("broker-b")

        # Answers are remembered for a second.
        overview = await until_told(
            lambda: visited.page("/overview"),
            lambda text: (
                text.count('<span class="figure">?</span>') == 3
                # Until a name server forgets it, it is one that does not answer.
                and '<span class="badge bad">away' in text
            ),
        )
        assert "It is away: no process of this name is registered." in overview
        assert re.search(r'class="figure">1<small> / 2', overview)
        assert '<span class="badge bad">away' in await visited.page("/brokers")
        away = await visited.page("/brokers/broker-b")
        assert "It is away: no process of this name is registered." in away
        switch = await visited.http.get("/brokers/broker-b/switch")
        assert "has no registered master" in switch.text

        topics = await until_told(
            lambda: visited.page("/topics"), lambda text: "its part is missing" in text
        )
        assert 'href="/topics/local"' not in topics
        assert "broker-b does not answer, so its part is missing" in topics
        assert "There is no topic" not in await visited.page("/topics?q=local")
        await until_told(
            lambda: visited.page("/groups/billing"),
            lambda text: text.count("</dt><dd>?</dd>") == 3,  # lag, oldest, members
        )
        groups = await visited.page("/groups")
        assert re.search(r">billing</a></th>\s*<td class=\"number\">\?</td>", groups)
        file = await visited.http.get("/topics?format=csv")
        assert 'filename="topics-incomplete.csv"' in file.headers["content-disposition"]
        reset = await visited.page("/groups/billing/reset?topic=orders&to=earliest")
        assert "<dt>Messages consumed again, at most</dt><dd>?</dd>" in reset
        assert "broker-b does not answer, so its part is missing" in reset
        for path, title in (
            ("/topic-settings?topic=local&write_queue_count=3", "Change a topic"),
            ("/group-settings?group=billing&retries_max=3", "Change a group"),
        ):
            preview = await visited.page(f"{path}&step=preview")
            assert title in preview, path  # broker-b may have it
            assert "broker-b does not answer, so its part is missing" in preview, path
            assert re.search(r"As of [\d:]+ UTC, from broker-a\.", preview), path
        for path in ("/scheduled", "/transactions"):
            text = await visited.page(path)
            assert "</dt><dd>?</dd>" in text, path
            assert "broker-b does not answer" in text, path
        topic = await visited.page("/topics/orders")
        assert "<dt>Messages kept</dt><dd>?</dd>" in topic

        await visited.cluster.take_broker_away("broker-a")
        empty = await until_told(
            lambda: visited.page("/topics"), lambda text: "broker-a does not answer" in text
        )
        assert "There is no topic" not in empty
