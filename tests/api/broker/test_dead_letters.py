"""Dead letters: listed, looked at, redriven once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Host
from eruca.contract.retries import DeadLetterFilter
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.processors.dead_letters import Stretch
from eruca_chassis.app import ServiceApp
from support.brokers import (
    RECORDS,
    batch,
    broker_of,
    client_of,
    open_broker,
    record,
    rot,
    rot_beyond_reading,
    rotten_count,
)
from support.members import joined
from support.stores import new_term
from support.waiting import turns_during

pytestmark = pytest.mark.anyio

HOST = Host.parse("127.0.0.1", 10_911)
GROUP = "billing"
PATH = f"/groups/{GROUP}/dead-letters"


async def give_up(client: httpx.AsyncClient, topic: str, count: int, **more: object) -> None:
    """Send messages to queue 1 of a topic, and make them dead letters."""
    await client.put(f"/topics/{topic}", json={"read_queue_count": 2, "write_queue_count": 2})
    for number in range(count):
        sent = await client.post(
            f"/topics/{topic}/messages",
            params={"queue_id": 1},
            json={"body": {"text": f"{topic} {number}"}, "message_id": f"{topic}-{number}"},
        )
        assert sent.status_code == 201, sent.text
    await send_back(client, topic, count, **more)


async def send_back(client: httpx.AsyncClient, topic: str, count: int, **more: object) -> None:
    """Make the first messages of a topic's queue 1 dead letters."""
    member = await joined(client, GROUP, topic, client_id=f"of-{topic}")
    await member.lock(topic, 1)
    answer = await member.send_back(
        *(
            {"topic": topic, "queue_id": 1, "queue_offset": number, "delay_level": -1} | more
            for number in range(count)
        )
    )
    assert answer.status_code == 200, answer.text
    left = await client.delete(
        f"/groups/{GROUP}/members/of-{topic}", params={"incarnation": "first"}
    )
    assert left.status_code == 204


async def letters(client: httpx.AsyncClient, **query: str | int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        answer = await client.get(PATH, params=query)
        assert answer.status_code == 200, answer.text
        found += answer.json()["dead_letters"]
        if (cursor := answer.json()["next_cursor"]) is None:
            return found
        query["cursor"] = cursor


async def redrive(client: httpx.AsyncClient, **request: object) -> dict[str, Any]:
    answer = await client.post(f"{PATH}:redrive", json=request)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def outcomes(answer: dict[str, Any]) -> list[str]:
    return [outcome["outcome"] for outcome in answer["outcomes"]]


async def bodies(client: httpx.AsyncClient, topic: str) -> list[str]:
    answer = await client.get(f"/topics/{topic}/queues/1/messages", params={"offset": 0})
    return [message["body"]["text"] for message in answer.json()["messages"]]


@pytest.mark.parametrize("claimed", ["refunds", EVENTS_TOPIC])
@pytest.mark.parametrize("name", ["RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"])
async def test_a_record_that_claims_another_origin_is_redriven_to_its_own_topic(
    client: httpx.AsyncClient, name: str, claimed: str
) -> None:
    for topic in ("orders", "refunds"):
        await client.put(f"/topics/{topic}", json={"read_queue_count": 2, "write_queue_count": 2})
    forged = record("orders", queue_id=1, properties=f"{name}\x01{claimed}\x02")
    path = "/topics/orders/queues/1/records"
    assert (await client.post(path, content=batch([forged]), headers=RECORDS)).status_code == 201
    await send_back(client, "orders", 1)

    assert [letter["origin_topic"] for letter in await letters(client)] == ["orders"]
    answer = await redrive(client, filter={})

    assert [outcome["topic"] for outcome in answer["outcomes"]] == ["orders"]
    assert await bodies(client, "orders") == ["body", "body"]


async def test_dead_letters_are_listed_and_filtered(client: httpx.AsyncClient) -> None:
    await give_up(client, "orders", 3, reason="failed", error="no")
    await give_up(client, "refunds", 2, reason="timed_out")

    everything = await letters(client)

    assert [letter["dead_letter_id"] for letter in everything] == [0, 1, 2, 3, 4]
    assert await letters(client, limit=2) == everything
    assert await letters(client, limit=1, topic="refunds") == everything[3:]
    assert await letters(client, reason="failed") == everything[:3]
    assert await letters(client, **{"since": everything[3]["dead_at"]}) == everything[3:]
    assert await letters(client, until=everything[3]["dead_at"]) == everything[:3]
    assert everything[1] | {"dead_at": None, "size": None} == {
        "dead_letter_id": 1,
        "origin_topic": "orders",
        "origin_queue_id": 1,
        "origin_offset": 1,
        "message_id": "orders-1",
        "reason": "failed",
        "attempts": 1,
        "last_error": "no",
        "dead_at": None,
        "redriven_at": None,
        "size": None,
        "damage": None,
    }


async def test_times_of_which_the_later_comes_first_are_refused(client: httpx.AsyncClient) -> None:
    """As where messages are found: an empty list would say that there is nothing."""
    await give_up(client, "orders", 1)
    wrong = {"since": "2026-11-22T08:00:00Z", "until": "2026-11-21T08:00:00Z"}

    listed = await client.get(PATH, params=wrong)
    redriven = await client.post(f"{PATH}:redrive", json={"filter": wrong})

    assert (listed.status_code, redriven.status_code) == (422, 422)
    assert listed.json()["errors"][0]["pointer"] == "/query/since"
    assert redriven.json()["errors"][0]["pointer"] == "/body/filter/since"
    assert listed.json()["fix"] == redriven.json()["fix"]


async def test_others_have_their_turn_while_a_page_looks_at_many(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await give_up(client, "orders", 5)
    monkeypatch.setattr("eruca_broker.processors.pacing.TURN_SECONDS", 0)

    chosen = DeadLetterFilter(topic="refunds")
    (page, following), turns = await turns_during(
        broker_of(app).dead_letters.page(GROUP, chosen, Stretch(), limit=1)
    )

    assert (page.dead_letters, following) == ([], None)
    assert turns >= 5


async def test_a_list_whose_letters_are_deleted_and_begin_again_is_refused(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ids are those of other letters then."""
    await give_up(client, "orders", 3)
    cold = broker_of(app).store.cold
    read = cold.read

    async def read_slowly(*args: Any) -> object:  # noqa: ANN401
        found = await read(*args)
        monkeypatch.setattr(cold, "read", read)
        assert (await client.delete(f"/groups/{GROUP}")).status_code == 204
        deleted = await client.delete(f"/topics/%25DLQ%25{GROUP}")
        assert deleted.status_code == 204, deleted.text
        await give_up(client, "refunds", 1)
        return found

    monkeypatch.setattr(cold, "read", read_slowly)
    refused = await client.get(PATH)

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert "were deleted while they were read" in refused.json()["detail"]
    assert [letter["origin_topic"] for letter in await letters(client)] == ["refunds"]


@pytest.mark.parametrize("start", [0, 2])
async def test_a_list_ends_where_its_queue_ends_now(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    """The log of a replica was truncated behind the beginning of the list."""
    await give_up(client, "orders", 2)
    queues = broker_of(app).store.queues
    reads: list[int] = []
    read = queues.read

    def counted(*args: Any, **more: Any) -> object:  # noqa: ANN401
        reads.append(args[2])
        assert len(reads) < 5, "it reads the same again and again"
        return read(*args, **more)

    monkeypatch.setattr(queues, "read", counted)
    monkeypatch.setattr(queues, "range", lambda *_: (0, 4))
    page, _ = await broker_of(app).dead_letters.page(
        GROUP, DeadLetterFilter(), Stretch(start), limit=9
    )

    assert [letter.dead_letter_id for letter in page.dead_letters] == [*range(start, 2)]


async def test_a_dead_letter_shows_its_message(client: httpx.AsyncClient) -> None:
    await give_up(client, "orders", 2)

    letter = (await client.get(f"{PATH}/1")).json()
    missing = await client.get(f"{PATH}/2")

    assert letter["message"]["body"] == {"text": "orders 1"}
    assert letter["message"]["topic"] == f"%DLQ%{GROUP}"
    assert {name: letter[name] for name in ("dead_letter_id", "message_id")} == {
        "dead_letter_id": 1,
        "message_id": "orders-1",
    }
    assert (missing.status_code, missing.json()["code"]) == (404, "dead-letter-not-found")


async def test_redriven_ones_are_as_good_as_new_and_go_once(client: httpx.AsyncClient) -> None:
    await give_up(client, "orders", 3)

    first = await redrive(client, ids=[2, 0, 2, 9])
    second = await redrive(client, ids=[0, 1])

    assert outcomes(first) == ["redriven", "redriven", "not_found"]
    assert outcomes(second) == ["skipped", "redriven"]
    assert "was redriven at" in second["outcomes"][0]["detail"]
    assert await bodies(client, "orders") == [
        "orders 0", "orders 1", "orders 2", "orders 2", "orders 0", "orders 1",
    ]  # fmt: skip
    pulled = await client.get("/topics/orders/queues/1/messages", params={"offset": 3})
    again = pulled.json()["messages"][0]
    assert (again["message_id"], again["reconsume_times"]) == ("orders-2", 0)
    record = (await client.get(f"/log/records/{again['log_offset']}")).json()
    assert record["system_properties"].keys() == {"UNIQ_KEY"}
    assert all(letter["redriven_at"] for letter in await letters(client))


async def test_a_filter_redrives_page_by_page(client: httpx.AsyncClient) -> None:
    await give_up(client, "refunds", 1)
    await give_up(client, "orders", 5)
    dry = await redrive(client, filter={"topic": "orders"}, dry_run=True)
    assert (outcomes(dry), dry["dry_run"]) == (["redriven"] * 5, True)

    request: dict[str, Any] = {"filter": {"topic": "orders"}, "limit": 2}
    rounds = []
    while True:
        answer = await redrive(client, **request)
        rounds.append(outcomes(answer))
        if answer["next_cursor"] is None:
            break
        request["cursor"] = answer["next_cursor"]

    assert rounds == [["redriven"] * 2, ["redriven"] * 2, ["redriven"]]
    assert len(await bodies(client, "orders")) == 10
    assert len(await bodies(client, "refunds")) == 1
    one = await redrive(client, filter={"message_ids": ["refunds-0", "orders-0"]})
    assert outcomes(one) == ["redriven", "skipped"]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_a_redrive_ends_with_what_was_dead_when_it_began(
    client: httpx.AsyncClient, limit: int
) -> None:
    await give_up(client, "orders", 3)
    request: dict[str, Any] = {"filter": {}, "limit": limit}
    redriven = []
    while True:
        answer = await redrive(client, **request)
        redriven += answer["outcomes"]
        await die_again(client, first=len(redriven) - len(answer["outcomes"]) + 3)
        if answer["next_cursor"] is None:
            break
        request["cursor"] = answer["next_cursor"]

    assert [outcome["dead_letter_id"] for outcome in redriven] == [0, 1, 2]
    assert len(await letters(client)) == 6  # these again, for the next redrive


async def die_again(client: httpx.AsyncClient, *, first: int) -> None:
    """Make dead letters of what queue 1 of orders has from *first* on."""
    pulled = await client.get("/topics/orders/queues/1/messages", params={"offset": first})
    member = await joined(client, GROUP, "orders", client_id="of-orders")
    await member.lock("orders", 1)
    await member.send_back(
        *(
            {
                "topic": "orders",
                "queue_id": 1,
                "queue_offset": message["queue_offset"],
                "delay_level": -1,
            }
            for message in pulled.json()["messages"]
        )
    )
    await client.delete(f"/groups/{GROUP}/members/of-orders", params={"incarnation": "first"})


async def test_a_list_ends_with_what_was_dead_at_its_first_page(
    client: httpx.AsyncClient,
) -> None:
    await give_up(client, "orders", 2)
    first = (await client.get(PATH, params={"limit": 1})).json()
    await give_up(client, "refunds", 2)
    second = (await client.get(PATH, params={"limit": 9, "cursor": first["next_cursor"]})).json()

    assert (first["min_offset"], first["max_offset"]) == (0, 2)
    assert [letter["dead_letter_id"] for letter in second["dead_letters"]] == [1]
    assert (second["max_offset"], second["next_cursor"]) == (2, None)


@pytest.mark.parametrize("is_unclean", [False, True])
async def test_a_page_continues_its_list_after_an_election_that_has_lost_nothing(
    client: httpx.AsyncClient, app: ServiceApp, *, is_unclean: bool
) -> None:
    """An unclean one may have given the ids to other letters."""
    await give_up(client, "orders", 3)
    first = (await client.get(PATH, params={"limit": 1})).json()
    store = broker_of(app).store
    await new_term(store, EpochBegan(1, 1, "uid", "127.0.0.1:10911", 0, unclean=is_unclean))

    listed = await client.get(PATH, params={"limit": 9, "cursor": first["next_cursor"]})
    again = {"filter": {}, "cursor": first["next_cursor"]}
    redriven = await client.post(f"{PATH}:redrive", json=again)

    if is_unclean:
        assert listed.status_code == redriven.status_code == 422, listed.text
        assert "unclean election" in listed.json()["detail"]
        assert len(await letters(client)) == 3, "a list that begins after it is whole"
    else:
        assert [one["dead_letter_id"] for one in listed.json()["dead_letters"]] == [1, 2]
        assert redriven.status_code == 200, redriven.text


async def test_a_redrive_takes_no_letter_behind_the_end_it_is_given(
    client: httpx.AsyncClient,
) -> None:
    await give_up(client, "orders", 4)

    none = await redrive(client, filter={}, before_id=0)
    some = await redrive(client, filter={}, before_id=2)
    rest = await redrive(client, filter={}, before_id=99, limit=3)

    assert (outcomes(none), none["looked_at_count"], none["next_cursor"]) == ([], 0, None)
    assert [one["dead_letter_id"] for one in some["outcomes"]] == [0, 1]
    assert (some["looked_at_count"], some["next_cursor"]) == (2, None)
    assert outcomes(rest) == ["skipped", "skipped", "redriven"]
    assert (rest["looked_at_count"], rest["next_cursor"] is None) == (3, False)


async def test_a_letter_that_tells_no_topic_of_origin_is_not_redriven_to_itself(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    """As one that another program wrote into the store that the broker was given."""
    await give_up(client, "orders", 1)
    foreign = batch_of_records(f"%DLQ%{GROUP}", 0, [record(f"%DLQ%{GROUP}", b"whose?")])
    await broker_of(app).store.append(foreign, HOST)

    answer = await redrive(client, filter={})

    assert outcomes(answer) == ["redriven", "skipped"]
    assert "topic of origin is unknown" in answer["outcomes"][1]["detail"]
    assert len(await letters(client)) == 2


async def test_two_operators_do_not_redrive_one_letter_twice(client: httpx.AsyncClient) -> None:
    await give_up(client, "orders", 4)

    answers = await asyncio.gather(*(redrive(client, ids=[0, 1, 2, 3]) for _ in range(3)))

    redriven = [outcome for answer in answers for outcome in outcomes(answer)]
    assert sorted(redriven) == ["redriven"] * 4 + ["skipped"] * 8
    assert len(await bodies(client, "orders")) == 8


async def test_where_the_topic_is_gone_a_letter_stays(client: httpx.AsyncClient) -> None:
    await give_up(client, "orders", 1)
    await give_up(client, "refunds", 1)
    await client.put("/topics/refunds", json={"permission": "r"})
    await client.delete("/topics/orders")

    answer = await redrive(client, ids=[0, 1])

    assert outcomes(answer) == ["skipped", "skipped"]
    assert "no longer exists" in answer["outcomes"][0]["detail"]
    assert "is not writable" in answer["outcomes"][1]["detail"]
    assert [letter["redriven_at"] for letter in await letters(client)] == [None, None]


async def test_what_was_redriven_is_known_after_a_restart(tmp_path: Path) -> None:
    async with open_broker(tmp_path / "again") as app, client_of(app) as client:
        await give_up(client, "orders", 2)
        await redrive(client, ids=[1])
        before = await letters(client)

    async with open_broker(tmp_path / "again") as app, client_of(app) as client:
        assert await letters(client) == before
        assert outcomes(await redrive(client, ids=[0, 1])) == ["redriven", "skipped"]


async def test_dead_letters_outlive_their_group(client: httpx.AsyncClient) -> None:
    await give_up(client, "orders", 1)
    deleted = await client.delete(f"/groups/{GROUP}")
    assert deleted.status_code == 204, deleted.text

    assert len(await letters(client)) == 1
    assert outcomes(await redrive(client, ids=[0])) == ["redriven"]


async def test_no_group_no_letters(client: httpx.AsyncClient) -> None:
    for answer in (
        await client.get(PATH),
        await client.get(f"{PATH}/0"),
        await client.post(f"{PATH}:redrive", json={"ids": [0]}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "group-not-found")


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"ids": []},
        {"ids": [-1]},
        {"ids": ["x"]},
        {"ids": list(range(101))},
        {"ids": [0], "filter": {}},
        {"ids": [0], "cursor": "MQ"},
        {"filter": {"surprise": 1}},
        {"filter": {"since": 7}},
        {"filter": {}, "cursor": "%%%"},
        {"filter": {}, "cursor": "eA"},
        {"filter": {}, "limit": 0},
        {"filter": {}, "cursor": "MTc"},
        {"filter": {}, "before_id": -1},
        {"ids": [0], "before_id": 1},
    ],
)
async def test_nonsense_is_refused(
    client: httpx.AsyncClient, app: ServiceApp, request_: dict[str, Any]
) -> None:
    await give_up(client, "orders", 1)
    end = broker_of(app).store.log_max_offset

    answer = await client.post(f"{PATH}:redrive", json=request_)

    assert answer.status_code == 422, answer.text
    assert broker_of(app).store.log_max_offset == end


@pytest.mark.parametrize("cursor", ["%%%", "eA"])
async def test_a_cursor_that_no_list_gave_is_pointed_at_where_it_stood(
    client: httpx.AsyncClient, cursor: str
) -> None:
    await give_up(client, "orders", 1)

    in_body = await client.post(f"{PATH}:redrive", json={"filter": {}, "cursor": cursor})
    in_query = await client.get(PATH, params={"cursor": cursor})

    assert [error["pointer"] for error in in_body.json()["errors"]] == ["/body/cursor"]
    assert [error["pointer"] for error in in_query.json()["errors"]] == ["/query/cursor"]


@pytest.mark.parametrize(
    "query", [{"cursor": "x"}, {"since": "yesterday"}, {"limit": 0}, {"reason": "Not A Word"}]
)
async def test_a_nonsensical_list_is_refused(
    client: httpx.AsyncClient, query: dict[str, str]
) -> None:
    await give_up(client, "orders", 1)

    assert (await client.get(PATH, params=query)).status_code == 422


async def test_a_letter_that_has_rotted_is_not_redriven(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await give_up(client, "orders", 2)
    rot(app, b"orders 1")

    answer = await redrive(client, ids=[0, 1])

    assert outcomes(answer) == ["redriven", "skipped"]
    assert "is damaged" in answer["outcomes"][1]["detail"]
    assert await bodies(client, "orders") == ["orders 0", "orders 1", "orders 0"]
    assert rotten_count(app) == 1


@pytest.mark.parametrize("rotten", [0, 1, 2])
async def test_a_letter_that_cannot_be_read_any_more_hides_none_of_the_others(
    app: ServiceApp, client: httpx.AsyncClient, rotten: int
) -> None:
    await give_up(client, "orders", 3)
    rot_beyond_reading(app, b"orders %d" % rotten)
    sound = [number for number in range(3) if number != rotten]

    for options in ({}, {"limit": 1}, {"topic": "orders"}):
        listed = await letters(client, **options)
        assert [letter["dead_letter_id"] for letter in listed] == [0, 1, 2]
        marked = {letter["dead_letter_id"]: letter["damage"] for letter in listed}
        assert [id_ for id_, damage in marked.items() if damage is None] == sound
        assert "at log offset" in marked[rotten]
        assert (listed[rotten]["origin_topic"], listed[rotten]["dead_at"]) == (None, None)
    unread = await client.get(f"{PATH}/{rotten}")
    assert (unread.status_code, unread.json()["code"]) == (404, "dead-letter-not-found")
    assert "is damaged" in unread.json()["detail"]
    by_id = await redrive(client, ids=[rotten, sound[0]])
    by_filter = await redrive(client, filter={"topic": "orders"})

    assert outcomes(by_id) == ["skipped", "redriven"]
    assert "is damaged" in by_id["outcomes"][0]["detail"]
    assert sorted(outcomes(by_filter)) == ["redriven", "skipped", "skipped"]
    assert by_filter["next_cursor"] is None
