"""The name server's API, as brokers and clients see it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from anyio.lowlevel import checkpoint

from eruca_chassis.app import ServiceApp
from eruca_namesrv.app import create_app
from eruca_namesrv.name_server import NameServer
from eruca_namesrv.settings import NamesrvSettings
from support.clocks import ManualClock
from support.services import client_of

pytestmark = pytest.mark.anyio
LONG = 30  # seconds; no test waits that long


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock, tmp_path: Path) -> ServiceApp:
    settings = NamesrvSettings(
        kv_file=tmp_path / "kv.json", held_requests_max=3, returns_order_config=True
    )
    return create_app(settings, clock)


@pytest.fixture
async def client(app: ServiceApp, clock: ManualClock) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        clock.advance(NamesrvSettings().settle_seconds)
        yield client


def registration(
    *topics: str, version: int = 1, host: str = "10.0.0.1:10911", **more: object
) -> dict[str, object]:
    return {
        "cluster": "c",
        "urls": {"default": f"http://{host}", "public": "https://broker.example:443"},
        "store_host": host,
        "data_version": version,
        "topics": [
            {"topic": t, "read_queue_count": 4, "write_queue_count": 4, "permission": "rw"}
            for t in topics
        ],
        **more,
    }


async def register(
    client: httpx.AsyncClient,
    name: str = "broker-a",
    *,
    topics: Sequence[str] = ("flights",),
    version: int = 1,
    host: str = "10.0.0.1:10911",
    expiry_seconds: float = 120,
) -> None:
    told = registration(*topics, version=version, host=host, expiry_seconds=expiry_seconds)
    answer = await client.put(f"/v1/brokers/{name}/0", json=told)
    assert answer.status_code == 200, answer.text


def assert_nobody_knows(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "no-live-broker")
    assert answer.json()["retryable"] is True
    assert int(answer.headers["retry-after"]) >= 1


async def held(client: httpx.AsyncClient, count: int) -> None:
    """Return once the name server holds that many requests."""
    while (await client.get("/v1/status")).json()["held_requests"] != count:
        await checkpoint()


async def test_a_registered_broker_is_in_its_topics_routes(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/brokers/broker-a/0", json=registration("flights"))
    assert answer.json() == {
        "broker_name": "broker-a",
        "broker_id": 0,
        "needs_topics": False,
        "order_topics": {},
        "ordered_topics": {},
        "ordered_topics_digest": answer.json()["ordered_topics_digest"],
    }

    route = await client.get("/v1/topics/flights/route")

    assert route.json() == {
        "topic": "flights",
        "queues": [
            {
                "broker_name": "broker-a",
                "read_queue_count": 4,
                "write_queue_count": 4,
                "permission": "rw",
            }
        ],
        "brokers": [
            {
                "cluster": "c",
                "broker_name": "broker-a",
                "urls": {
                    "0": {
                        "default": "http://10.0.0.1:10911",
                        "public": "https://broker.example:443",
                    }
                },
                "store_hosts": {"0": "10.0.0.1:10911"},
                "epoch": 0,
                "roles": {"0": "master"},
                "replica_ids": {},
            }
        ],
        "order_config": None,
    }


async def test_an_unknown_topic_is_a_problem_that_says_so(client: httpx.AsyncClient) -> None:
    await register(client)

    refused = await client.get("/v1/topics/trains/route")

    assert (refused.status_code, refused.json()["code"]) == (404, "topic-not-found")
    assert refused.json()["detail"] == "no live broker has topic trains"
    assert refused.json()["fix"].startswith("create it: eruca topic create trains")


@pytest.mark.parametrize(
    ("topic", "fix"),
    [
        ("%DLQ%billing", "a broker creates it with the group's first dead letter; "
         "see eruca dlq list billing"),
        ("%RETRY%billing", "a broker creates it when the group consumes; see eruca group list"),
        ("ERUCA_SYS_EVENTS", "a broker makes system topics by itself; "
         "see eruca topic list --system"),
    ],
)  # fmt: skip
async def test_nobody_is_told_to_create_what_a_broker_makes_by_itself(
    client: httpx.AsyncClient, topic: str, fix: str
) -> None:
    await register(client)

    refused = await client.get(f"/v1/topics/{quote(topic)}/route")

    assert (refused.json()["code"], refused.json()["fix"]) == ("topic-not-found", fix)


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/topics/flights/route"])
async def test_without_a_live_broker_it_is_unknown_which_topics_exist(
    client: httpx.AsyncClient, path: str
) -> None:
    refused = await client.get(path)

    assert_nobody_knows(refused)
    assert "start a broker" in refused.json()["fix"]


async def test_the_topics_of_the_only_broker_are_unknown_and_not_missing_while_it_restarts(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    route = "/v1/topics/flights/route"
    for away in ("stopped", "expired"):
        await register(client, expiry_seconds=20)
        known = await client.get(route)
        assert known.status_code == 200
        if away == "stopped":
            await client.delete("/v1/brokers/broker-a/0")
        else:
            clock.advance(21)

        assert_nobody_knows(await client.get(route))
        assert (await client.get("/v1/brokers")).json() == {"brokers": []}


async def test_brokers_that_have_not_told_their_topics_make_none_missing(
    client: httpx.AsyncClient,
) -> None:
    without = registration()
    del without["topics"]
    await client.put("/v1/brokers/broker-a/0", json=without)
    replica = without | {"store_host": "10.0.0.2:10911"}
    await client.put("/v1/brokers/broker-a/1", json=replica)

    assert_nobody_knows(await client.get("/v1/topics/flights/route"))


@pytest.mark.parametrize(("topic", "status"), [("flights", 200), ("trains", 404)])
async def test_who_knew_a_route_waits_for_a_broker_to_hear_whether_the_topic_is_gone(
    client: httpx.AsyncClient, topic: str, status: int
) -> None:
    asking = asyncio.create_task(
        client.get(
            f"/v1/topics/{topic}/route?wait_seconds={LONG}", headers={"if-none-match": '"x"'}
        )
    )
    await held(client, 1)

    await register(client)

    assert (await asking).status_code == status


async def test_a_known_route_is_not_sent_again(client: httpx.AsyncClient) -> None:
    await register(client)
    route = await client.get("/v1/topics/flights/route")
    etag = route.headers["etag"]

    for known in (etag, f'"x", {etag}', f"W/{etag}", "*"):
        again = await client.get("/v1/topics/flights/route", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    for unknown in ('"x"', "", "x"):
        again = await client.get("/v1/topics/flights/route", headers={"if-none-match": unknown})
        assert (again.status_code, again.content) == (200, route.content)


async def test_name_servers_that_know_the_same_agree_on_the_tag(client: httpx.AsyncClient) -> None:
    await register(client)
    mine = await client.get("/v1/topics/flights/route")

    async with client_of(create_app(NamesrvSettings())) as other:
        await register(other)
        theirs = await other.get("/v1/topics/flights/route")

    assert mine.headers["etag"] == theirs.headers["etag"]


async def test_a_held_request_is_answered_as_soon_as_the_route_changes(
    client: httpx.AsyncClient,
) -> None:
    await register(client)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = asyncio.create_task(
        client.get(
            "/v1/topics/flights/route",
            params={"wait_seconds": LONG},
            headers={"if-none-match": etag},
        )
    )
    await held(client, 1)
    await register(client, version=2, topics=["flights", "something-else"])
    await held(client, 1)

    await register(client, "broker-b", host="10.0.0.2:10911")

    answer = await request
    assert answer.status_code == 200
    assert [q["broker_name"] for q in answer.json()["queues"]] == ["broker-a", "broker-b"]
    assert answer.headers["etag"] != etag
    await held(client, 0)


async def test_a_new_master_reaches_who_waits_for_the_route(client: httpx.AsyncClient) -> None:
    former, new = "10.0.0.1:10911", "10.0.0.2:10911"
    await client.put("/v1/brokers/broker-a/0", json=registration("flights", epoch=7, replica_id=1))
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = asyncio.create_task(
        client.get(
            "/v1/topics/flights/route",
            params={"wait_seconds": LONG},
            headers={"if-none-match": etag},
        )
    )
    await held(client, 1)

    promoted = registration(
        "flights", host=new, epoch=8, replica_id=2, former_store_hosts=[former, new]
    )
    await client.put("/v1/brokers/broker-a/0", json=promoted)

    [broker] = (await request).json()["brokers"]
    assert (broker["epoch"], broker["store_hosts"]) == (8, {"0": new})
    stale = await client.put(
        "/v1/brokers/broker-a/0", json=registration("flights", epoch=7, replica_id=1)
    )
    assert (stale.status_code, stale.json()["code"]) == (409, "stale-epoch")
    [group] = (await client.get("/v1/brokers")).json()["brokers"]
    assert (group["epoch"], group["former_store_hosts"]) == (8, [former])
    assert group["brokers"][0]["role"] == "master"
    assert group["brokers"][0]["replica_id"] == 2


async def test_a_held_request_for_an_unknown_topic_is_answered_when_it_appears(
    client: httpx.AsyncClient,
) -> None:
    request = asyncio.create_task(
        client.get("/v1/topics/flights/route", params={"wait_seconds": LONG})
    )
    await held(client, 1)

    await register(client)

    assert (await request).status_code == 200


async def test_a_held_request_hears_that_its_topic_is_gone(client: httpx.AsyncClient) -> None:
    await register(client)
    await register(client, "broker-b", topics=(), host="10.0.0.2:10911")
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    known = {"if-none-match": etag}
    wait = {"wait_seconds": LONG}
    request = asyncio.create_task(
        client.get("/v1/topics/flights/route", params=wait, headers=known)
    )
    await held(client, 1)

    assert (await client.delete("/v1/brokers/broker-a/0")).status_code == 204

    assert (await request).status_code == 404
    at_once = await client.get("/v1/topics/flights/route", params=wait, headers=known)
    assert at_once.status_code == 404


async def test_after_the_wait_nothing_new_is_304_and_nothing_at_all_404(
    client: httpx.AsyncClient,
) -> None:
    await register(client)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    wait = {"wait_seconds": 0.01}

    unchanged = await client.get(
        "/v1/topics/flights/route", params=wait, headers={"if-none-match": etag}
    )
    missing = await client.get("/v1/topics/nothing/route", params=wait)

    assert (unchanged.status_code, missing.status_code) == (304, 404)


async def test_a_client_that_does_not_know_the_route_is_never_held(
    client: httpx.AsyncClient,
) -> None:
    await register(client)

    answer = await client.get(
        "/v1/topics/flights/route",
        params={"wait_seconds": LONG},
        headers={"if-none-match": '"older"'},
    )

    assert answer.status_code == 200


async def test_expiry_is_exact_on_every_read_and_wakes_who_waits(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await register(client, expiry_seconds=10)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = asyncio.create_task(
        client.get(
            "/v1/topics/flights/route",
            params={"wait_seconds": LONG},
            headers={"if-none-match": etag},
        )
    )
    await held(client, 1)

    clock.advance(10)
    assert (await client.get("/v1/topics")).json()["topics"] == ["flights"]

    clock.advance(0.001)
    for path in ("/v1/topics/flights/route", "/v1/brokers", "/v1/clusters", "/v1/topics"):
        answer = await client.get(path)
        assert "broker-a" not in answer.text
        assert '"flights"' not in answer.text
    assert_nobody_knows(await request)


async def test_the_expiry_loop_wakes_who_waits_when_nobody_asks(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await register(client, expiry_seconds=10)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = asyncio.create_task(
        client.get(
            "/v1/topics/flights/route",
            params={"wait_seconds": LONG},
            headers={"if-none-match": etag},
        )
    )
    await held(client, 1)
    clock.advance(11)

    await app.parts[NameServer].expiry_step()

    assert_nobody_knows(await request)


async def test_held_requests_are_capped_by_name(client: httpx.AsyncClient) -> None:
    wait = {"wait_seconds": LONG}
    requests = [
        asyncio.create_task(client.get("/v1/topics/flights/route", params=wait)) for _ in range(3)
    ]
    await held(client, 3)

    refused = await client.get("/v1/topics/flights/route", params=wait)

    assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
    assert "held_requests_max" in refused.json()["detail"]
    assert refused.headers["retry-after"] == "1"
    await register(client)
    assert {answer.status_code for answer in await asyncio.gather(*requests)} == {200}


async def test_stopping_releases_held_requests(app: ServiceApp, client: httpx.AsyncClient) -> None:
    request = asyncio.create_task(
        client.get("/v1/topics/flights/route", params={"wait_seconds": LONG})
    )
    await held(client, 1)

    app.begin_stop()

    answer = await request
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
    assert answer.headers["retry-after"] == "1"


async def test_a_stranger_with_a_copied_name_is_refused(client: httpx.AsyncClient) -> None:
    await register(client, version=5)

    refused = await client.put(
        "/v1/brokers/broker-a/0", json=registration("flights", version=4, host="10.9.9.9:1")
    )

    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "10.0.0.1:10911" in refused.json()["detail"]


async def test_a_registration_with_an_unusable_topic_is_refused_whole(
    client: httpx.AsyncClient,
) -> None:
    refused = await client.put("/v1/brokers/broker-a/0", json=registration("flights", "a b"))

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/body/topics/1/topic"
    assert (await client.get("/v1/brokers")).json() == {"brokers": []}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cluster", "a b"),
        ("urls", {}),
        ("urls", {"default": "ftp://x"}),
        ("urls", {"default": "http://x/path"}),
        ("data_version", -1),
        ("expiry_seconds", 0),
        ("expiry_seconds", "NaN"),
        ("unknown_field", 1),
    ],
)
async def test_a_wrong_registration_is_refused(
    client: httpx.AsyncClient, field: str, value: object
) -> None:
    refused = await client.put("/v1/brokers/broker-a/0", json=registration() | {field: value})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"].startswith(f"/body/{field}")


async def test_a_url_that_leads_nowhere_is_refused_with_what_to_write_instead(
    client: httpx.AsyncClient,
) -> None:
    urls = {"default": "http://10.0.0.1:1", "inside": "http://h:99999"}

    refused = await client.put("/v1/brokers/broker-a/0", json=registration() | {"urls": urls})

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
    assert refused.json()["errors"] == [
        {
            "pointer": "/body/urls/inside",
            "detail": 'expected a port from 1 to 65535, found 99999; got "http://h:99999"',
        }
    ]


async def test_unregistering_names_what_is_not_there_or_not_meant(
    client: httpx.AsyncClient,
) -> None:
    missing = await client.delete("/v1/brokers/broker-a/0")
    assert (missing.status_code, missing.json()["code"]) == (404, "broker-not-found")

    await register(client)
    mistaken = await client.delete("/v1/brokers/broker-a/0", params={"store_host": "10.9.9.9:1"})
    assert (mistaken.status_code, mistaken.json()["code"]) == (409, "conflict")


async def test_brokers_and_clusters_list_who_lives(client: httpx.AsyncClient) -> None:
    await register(client)
    await client.put("/v1/brokers/broker-a/1", json=registration(host="10.0.0.2:10911"))

    [group] = (await client.get("/v1/brokers")).json()["brokers"]

    assert (group["cluster"], group["broker_name"]) == ("c", "broker-a")
    assert [b["broker_id"] for b in group["brokers"]] == [0, 1]
    assert group["brokers"][0]["last_seen_at"] == "2023-11-14T22:13:32.000Z"
    assert group["brokers"][0]["expires_at"] == "2023-11-14T22:15:32.000Z"
    assert (await client.get("/v1/clusters")).json() == {"clusters": {"c": ["broker-a"]}}


async def test_topics_come_in_pages_that_leave_none_out(client: httpx.AsyncClient) -> None:
    names = [f"topic-{i:02d}" for i in range(25)]
    await register(client, topics=names)

    found: list[str] = []
    params: dict[str, str | int] = {"limit": 10}
    while True:
        page = (await client.get("/v1/topics", params=params)).json()
        found += page["topics"]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]

    assert found == names


async def test_a_cursor_that_nobody_gave_is_refused(client: httpx.AsyncClient) -> None:
    refused = await client.get("/v1/topics", params={"cursor": "made-up!"})

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")


async def test_kv_entries_are_set_read_listed_and_removed(client: httpx.AsyncClient) -> None:
    url = "/v1/kv/settings/colour"
    entry = {"namespace": "settings", "key": "colour", "value": "red"}

    assert (await client.put(url, json={"value": "red"})).json() == entry
    assert (await client.get(url)).json() == entry
    listed = await client.get("/v1/kv/settings")
    assert listed.json() == {"namespace": "settings", "entries": {"colour": "red"}}
    assert (await client.delete(url)).status_code == 204
    for refused in (await client.get(url), await client.delete(url)):
        assert (refused.status_code, refused.json()["code"]) == (404, "key-not-found")
    assert (await client.get("/v1/kv/settings")).json()["entries"] == {}


async def test_the_order_of_a_topic_reaches_its_broker_its_route_and_who_waits(
    client: httpx.AsyncClient,
) -> None:
    await register(client)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = asyncio.create_task(
        client.get(
            "/v1/topics/flights/route",
            params={"wait_seconds": LONG},
            headers={"if-none-match": etag},
        )
    )
    await held(client, 1)

    order = {"value": "broker-a:4"}
    await client.put("/v1/kv/ORDER_TOPIC_CONFIG/flights", json=order)

    assert (await request).json()["order_config"] == "broker-a:4"
    answer = await client.put("/v1/brokers/broker-a/0", json=registration("flights"))
    assert answer.json()["order_topics"] == {"flights": "broker-a:4"}


async def test_status_counts_what_is_known(client: httpx.AsyncClient) -> None:
    await register(client, topics=["t", "u"])

    status = (await client.get("/v1/status")).json()

    assert (status["brokers"], status["topics"]) == (1, 2)
    assert (status["held_requests"], status["held_requests_max"]) == (0, 3)
    assert status["started_at"] == "2023-11-14T22:13:20.000Z"
    metrics = (await client.get("/metrics")).text
    assert "eruca_namesrv_brokers 1.0" in metrics
    assert "eruca_namesrv_topics 2.0" in metrics


async def test_the_order_of_a_topic_is_in_its_route_although_who_set_it_has_left(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(client)
    assert (await client.get("/v1/topics/flights/route")).json()["order_config"] is None
    is_writing, may_end = threading.Event(), threading.Event()

    def slow_fsync(_descriptor: int) -> None:
        is_writing.set()
        assert may_end.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr("eruca_namesrv.kv.os.fsync", slow_fsync)
        order = {"value": "broker-a:4"}
        putting = asyncio.create_task(client.put("/v1/kv/ORDER_TOPIC_CONFIG/flights", json=order))
        assert await asyncio.to_thread(is_writing.wait, 60)
        putting.cancel()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await putting

    stored = await client.get("/v1/kv/ORDER_TOPIC_CONFIG/flights")
    assert stored.json()["value"] == "broker-a:4"
    assert (await client.get("/v1/topics/flights/route")).json()["order_config"] == "broker-a:4"
