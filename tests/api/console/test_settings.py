"""Settings of topics and groups: what would change is shown, and each broker has an outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from support.consoles import Visited, visited_in

pytestmark = pytest.mark.anyio
CREATE = {"write_queue_count": "3", "permission": "rw"}


@pytest.fixture(scope="module")
async def visited(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visited]:
    async with visited_in(tmp_path_factory.mktemp("cluster")) as visited:
        yield visited


async def test_a_topic_is_created_as_it_was_shown(visited: Visited) -> None:
    path = "/topic-settings?topic=new&write_queue_count=3&step=preview"
    shown = await visited.page(path)
    assert "Create the topic" in shown
    assert shown.count("would be set") == 8  # four settings at two brokers
    assert "typed" not in shown
    assert "new" not in await visited.client.admin.list_topics()

    done = await visited.act("/topic-settings", topic="new", write_queue_count="3")

    assert done.status_code == httpx.codes.OK, done.text
    assert done.text.count('<span class="badge good">set</span>') == 8
    configs = await visited.client.admin.topic("new")
    assert {one.write_queue_count for one in configs.values()} == {3}
    assert "eruca topic create new --queue-count=3" in done.text


async def test_only_what_is_given_changes_and_only_at_the_broker_that_is_named(
    visited: Visited,
) -> None:
    await visited.client.admin.create_topic("some", queue_count=2)
    again = await visited.page("/topic-settings?topic=some&write_queue_count=2&step=preview")
    assert "Nothing would change" in again
    assert '<form class="stack act"' not in again

    done = await visited.act(
        "/topic-settings",
        topic="some",
        write_queue_count="4",
        read_queue_count="4",
        broker="broker-a",
    )

    assert done.status_code == httpx.codes.OK, done.text
    configs = await visited.client.admin.topic("some")
    assert {name: one.write_queue_count for name, one in configs.items()} == {
        "broker-a": 4,
        "broker-b": 2,
    }
    assert {one.permission for one in configs.values()} == {"rw"}


async def test_what_takes_something_away_needs_the_name_typed(visited: Visited) -> None:
    await visited.client.admin.create_topic("ledger", queue_count=2)
    path = "/topic-settings?topic=ledger&permission=r&step=preview"
    shown = await visited.page(path)
    assert shown.count("takes something away") == 2
    assert 'name="typed"' in shown

    refused = await visited.act("/topic-settings", topic="ledger", permission="r", typed="ledge")
    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    configs = await visited.client.admin.topic("ledger")
    assert {one.permission for one in configs.values()} == {"rw"}

    done = await visited.act("/topic-settings", topic="ledger", permission="r", typed="ledger")
    assert done.status_code == httpx.codes.OK, done.text
    configs = await visited.client.admin.topic("ledger")
    assert {one.permission for one in configs.values()} == {"r"}


async def test_a_broker_that_refuses_has_its_reason_beside_it(visited: Visited) -> None:
    await visited.client.admin.create_topic("narrow", read_queue_count=4, write_queue_count=2)
    shown = await visited.page("/topic-settings?topic=narrow&write_queue_count=9&step=preview")
    assert shown.count('<span class="badge bad">would be refused</span>') == 2
    assert "expected at most 4 queues to write to" in shown
    assert "would be set" not in shown
    assert '<form class="stack act"' not in shown

    done = await visited.act("/topic-settings", topic="narrow", write_queue_count="9")

    assert done.status_code == httpx.codes.OK, done.text
    assert done.text.count('<span class="badge bad">refused</span>') == 2
    assert "expected at most 4 queues to write to" in done.text
    configs = await visited.client.admin.topic("narrow")
    assert {one.write_queue_count for one in configs.values()} == {2}


async def test_only_the_broker_that_would_refuse_is_said_to(visited: Visited) -> None:
    admin = visited.client.admin
    for name, count in (("broker-a", 8), ("broker-b", 4)):
        await admin.create_topic(
            "uneven", read_queue_count=count, write_queue_count=2, broker_name=name
        )
    fields = {"topic": "uneven", "write_queue_count": "6"}

    shown = await visited.page(
        "/topic-settings?topic=uneven&write_queue_count=6&permission=rw&step=preview"
    )
    done = await visited.act("/topic-settings", **fields)

    assert (shown.count("would be refused"), shown.count("would be set")) == (1, 1)
    assert '<form class="stack act"' in shown
    configs = await admin.topic("uneven")
    assert {name: one.write_queue_count for name, one in configs.items()} == {
        "broker-a": 6,
        "broker-b": 2,
    }
    assert done.text.count('<span class="badge bad">refused</span>') == 1


async def test_a_new_topic_with_more_queues_to_write_than_to_read_would_be_refused(
    visited: Visited,
) -> None:
    path = "/topic-settings?topic=odd&write_queue_count=3&read_queue_count=2&step=preview"
    shown = await visited.page(path)

    assert "would be refused" in shown
    assert "would be set" not in shown


async def test_the_removal_of_queues_is_asked_about_only_if_queues_are_removed(
    visited: Visited,
) -> None:
    await visited.client.admin.create_topic("wide", read_queue_count=4, write_queue_count=2)

    path = "/topic-settings?topic=wide&step=preview"
    assert 'name="force"' not in await visited.page(f"{path}&permission=r")
    assert 'name="force"' in await visited.page(f"{path}&read_queue_count=3")


async def test_a_time_is_shown_as_on_other_pages(visited: Visited) -> None:
    path = "/group-settings?group=timed&start=time&start_at=2026-11-21T08:00:00"
    assert "2026-11-21 08:00:00 UTC" in await visited.page(f"{path}&step=preview")
    new = await visited.page("/group-settings?group=timed")
    assert "as it is" not in new
    assert "the default" in new


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("/topic-settings", {"topic": "bad name"}, "bad name"),
        ("/topic-settings", {"topic": ""}, "topic: expected a name"),
        ("/topic-settings", {"topic": "t", "write_queue_count": "many"}, "write_queue_count"),
        ("/topic-settings", {"topic": "t", "write_queue_count": "100000"}, "write_queue_count"),
        ("/topic-settings", {"topic": "t", "permission": "x"}, "permission"),
        ("/topic-settings", {"topic": "t", "ordered": "maybe"}, "ordered"),
        ("/topic-settings", {"topic": "t", "broker": "broker-z"}, "broker-z"),
        ("/group-settings", {"group": ""}, "group: expected a name"),
        ("/group-settings", {"group": "g", "start": "time"}, "start_at"),
        ("/group-settings", {"group": "g", "start": "soon"}, "start"),
        ("/group-settings", {"group": "g", "retries_max": "-1"}, "retries_max"),
        ("/group-settings", {"group": "g", "consume_enabled": "1"}, "consume_enabled"),
    ],
)
async def test_a_field_that_is_invalid_is_named_and_changes_nothing(
    visited: Visited, path: str, fields: dict[str, str], named: str
) -> None:
    refused = await visited.act(path, **fields)

    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY, refused.text
    assert named in refused.text
    assert "t" not in await visited.client.admin.list_topics()
    assert "g" not in await visited.client.admin.groups.list()


async def test_a_group_is_created_paused_and_resumed(visited: Visited) -> None:
    done = await visited.act("/group-settings", group="billing", start="earliest", retries_max="3")
    assert done.status_code == httpx.codes.OK, done.text
    assert done.text.count('<span class="badge good">set</span>') == 12
    group = await visited.page("/groups/billing")
    assert "Pause …" in group
    shown = await visited.page("/group-settings?group=billing&consume_enabled=no&step=preview")
    assert "The group is paused" in shown
    refused = await visited.act("/group-settings", group="billing", consume_enabled="no")
    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY

    await visited.act("/group-settings", group="billing", consume_enabled="no", typed="billing")

    configs = await visited.client.admin.groups.get("billing")
    assert {one.consume_enabled for one in configs.values()} == {False}
    assert {(one.start, one.retries_max) for one in configs.values()} == {("earliest", 3)}
    assert "Resume …" in await visited.page("/groups/billing")
    done = await visited.act("/group-settings", group="billing", consume_enabled="yes")
    assert "eruca group create billing --enabled" in done.text
    configs = await visited.client.admin.groups.get("billing")
    assert {one.consume_enabled for one in configs.values()} == {True}
