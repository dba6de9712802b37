"""Numbers of messages by time: each message is counted once, wherever it is found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import eruca
from eruca_query.searching import message_counts
from support.query_services import Queried
from support.times import moment
from support.waiting import until_next_millisecond, until_told

pytestmark = pytest.mark.anyio
TOPIC = "flights"


async def send(queried: Queried, count: int) -> list[eruca.SendResult]:
    until_next_millisecond()
    async with queried.client.producer() as producer:
        sent = await producer.send_many(
            [eruca.Message(TOPIC, b"x", keys="k") for _ in range(count)]
        )
    return list(sent)


async def stored_at(queried: Queried, sent: eruca.SendResult) -> Any:  # noqa: ANN401
    found = await queried.get(f"/v1/messages/{sent.offset_message_id}")
    return moment(found["message"]["stored_at"])


async def test_each_message_is_in_the_stretch_in_which_it_was_stored(queried: Queried) -> None:
    early = await send(queried, 3)
    begin = min([await stored_at(queried, one) for one in early])
    await queried.caught_up()
    late = await send(queried, 5)
    end = max([await stored_at(queried, one) for one in late]) + timedelta(milliseconds=1)
    middle = min([await stored_at(queried, one) for one in late])

    whole = await queried.get(
        "/v1/message-counts", topic=TOPIC, since=begin.isoformat(), until=end.isoformat(), buckets=1
    )
    after = await queried.get(
        "/v1/message-counts",
        topic=TOPIC,
        since=middle.isoformat(),
        until=end.isoformat(),
        buckets=500,
    )

    assert [one["count"] for one in whole["counts"]] == [8]
    assert sum(one["count"] for one in after["counts"]) == 5
    assert len(after["counts"]) <= 500
    assert moment(after["since"]) == middle
    assert moment(after["until"]) == end
    assert whole["incomplete"] == after["incomplete"] == []
    assert {one["broker_name"] for one in whole["read_model"]} == {"broker-a", "broker-b"}


async def test_the_last_hour_is_counted_by_minutes(queried: Queried) -> None:
    await send(queried, 4)

    shown = await queried.get("/v1/message-counts", topic=TOPIC)

    assert (shown["width_ms"], len(shown["counts"])) == (60_000, 60)
    assert sum(one["count"] for one in shown["counts"]) == 4


async def test_messages_of_a_deleted_topic_are_not_counted(queried: Queried) -> None:
    await send(queried, 4)
    await queried.caught_up()
    await queried.client.admin.delete_topic(TOPIC)
    await send(queried, 2)

    shown = await until_told(
        lambda: queried.get("/v1/message-counts", topic=TOPIC, buckets=1),
        lambda shown: shown["counts"][0]["count"],
    )

    assert shown["counts"][0]["count"] == 2
    await queried.caught_up()
    shown = await queried.get("/v1/message-counts", topic=TOPIC, buckets=1)
    assert shown["counts"][0]["count"] == 2


async def test_what_was_not_counted_is_unknown_and_said_to_be(
    queried: Queried, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(queried, 4)
    await queried.caught_up()
    monkeypatch.setattr(message_counts, "COUNT_SECONDS", -1.0)

    shown = await queried.get("/v1/message-counts", topic=TOPIC, buckets=10)

    if queried.is_following:
        assert shown["counts"][0]["count"] is None
        [missing] = shown["incomplete"]
        assert missing["reason"] == "too_many"
        assert "are not counted" in missing["detail"]
    else:  # all messages are in the tails, which are always counted
        assert sum(one["count"] for one in shown["counts"]) == 4


@pytest.mark.parametrize(
    ("params", "status", "named"),
    [
        ({"topic": "nowhere"}, 404, "nowhere"),
        ({"topic": TOPIC, "buckets": "0"}, 422, "/query/buckets"),
        ({"topic": TOPIC, "buckets": "501"}, 422, "/query/buckets"),
        ({"topic": TOPIC, "since": "2999-01-01T00:00:00Z"}, 422, "/query/since"),
        (
            {"topic": TOPIC, "since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
            422,
            "/query/since",
        ),
        ({"topic": "ERUCA_SYS_EVENTS"}, 422, "/query/topic"),
        ({}, 422, "/query/topic"),
    ],
)
async def test_a_question_that_has_no_answer_is_refused(
    queried: Queried, params: dict[str, str], status: int, named: str
) -> None:
    answer = await queried.http.get("/v1/message-counts", params=params)

    assert answer.status_code == status, answer.text
    assert named in answer.text


async def test_the_sdk_asks_the_same(queried: Queried) -> None:
    await send(queried, 3)

    counted = await queried.client.query.counts(TOPIC, buckets=12)

    assert sum(one.count or 0 for one in counted.counts) == 3
    assert counted.width_ms == 300_000
