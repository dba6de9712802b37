"""The producer while a broker's replicas elect a master: what waits, and what goes elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse, NotConnectedError
from eruca.aio.sending import attempts
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    problem_answer,
    receipt_answer,
)
from support.sending_clients import message
from support.waiting import until

pytestmark = pytest.mark.anyio
SECONDS = 60.0


class Cluster:
    """Broker names with replicas: a name server's routes, and what each URL answers."""

    def __init__(self, *names: str, order_config: str | None = None) -> None:
        self.names = names
        self.order_config = order_config
        self.masters: dict[str, str | None] = {name: f"http://{name}-1" for name in names}
        self.epochs = dict.fromkeys(names, 7)
        self.faults: dict[str, eruca.ErucaError] = {}  # by URL
        self.changed = asyncio.Event()
        self.hot = ScriptedTransport(self.broker)
        self.client = eruca.AsyncClient(
            "http://namesrv",
            hot_transport=self.hot,
            transport=ScriptedTransport(self.name_server),
        )

    def elect(self, name: str, url: str | None, epoch: int) -> None:
        self.masters[name], self.epochs[name] = url, epoch
        self.changed.set()

    def stored_at(self) -> list[str]:
        return [request.url for request in self.hot.requests if request.url not in self.faults]

    @property
    def knows_route(self) -> bool:
        return self.client.context.routes.cached_publish_view("orders") is not None

    @property
    def known_urls(self) -> Mapping[str, str]:
        """The masters in the client's route."""
        view = self.client.context.routes.cached_publish_view("orders")
        assert view is not None
        return view.urls

    async def broker(self, request: Request) -> HttpResponse:
        await asyncio.sleep(0)
        if (fault := self.faults.get(request.url)) is None:
            return receipt_answer(request)
        if isinstance(fault, eruca.ClientError):
            raise fault
        return problem_answer(fault)

    async def name_server(self, request: Request) -> HttpResponse:
        if request.headers.get("if-none-match") == self.etag and "wait_seconds" in request.target:
            await self.changed.wait()
            self.changed.clear()
        return json_answer(self.route(), etag=self.etag)

    @property
    def etag(self) -> str:
        return f'"{self.masters}"'

    def route(self) -> dict[str, Any]:
        return {
            "topic": "orders",
            "queues": [
                {
                    "broker_name": name,
                    "read_queue_count": 2,
                    "write_queue_count": 2,
                    "permission": "rw",
                }
                for name in self.names
            ],
            "brokers": [
                {
                    "cluster": "eruca",
                    "broker_name": name,
                    "epoch": self.epochs[name],
                    "urls": {
                        "9": {"default": f"http://{name}-9"},
                        **({"0": {"default": url}} if (url := self.masters[name]) else {}),
                    },
                    "store_hosts": {"0": "10.0.0.1:10911"},
                }
                for name in self.names
            ],
            "order_config": self.order_config,
        }


MASTERLESS = [
    NotConnectedError("refused"),
    eruca.NotMasterForSureError("an election"),
    eruca.NotMasterError("a standby"),
]


@pytest.mark.parametrize("fault", MASTERLESS)
async def test_an_unordered_message_goes_to_another_broker_at_once(
    fault: eruca.ErucaError,
) -> None:
    cluster = Cluster("a", "b")
    cluster.faults["http://a-1"] = fault
    async with (
        cluster.client as client,
        client.producer(retries_max=0, send_timeout_seconds=SECONDS) as producer,
    ):
        results = [await producer.send(message()) for _ in range(6)]

    assert {result.queue.broker_name for result in results} == {"b"}


@pytest.mark.parametrize("fault", MASTERLESS)
@pytest.mark.parametrize("retries", [0, 2])
async def test_with_one_broker_a_message_waits_for_the_new_master(
    fault: eruca.ErucaError, retries: int
) -> None:
    cluster = Cluster("a")
    cluster.faults["http://a-1"] = fault
    async with (
        cluster.client as client,
        client.producer(retries_max=retries, send_timeout_seconds=SECONDS) as producer,
    ):
        sending = asyncio.create_task(producer.send(message()))
        await until(lambda: len(cluster.hot.requests) >= 5)  # more than all its retries
        cluster.elect("a", "http://a-2", 8)

        await sending

    assert cluster.stored_at() == ["http://a-2"]


async def stored_after_an_election() -> list[str]:
    """Send while the route has no master, and elect one; return where the message was stored."""
    cluster = Cluster("a")
    cluster.elect("a", None, 7)
    async with (
        cluster.client as client,
        client.producer(send_timeout_seconds=SECONDS) as producer,
    ):
        sending = asyncio.create_task(producer.send(message()))
        await until(lambda: cluster.knows_route)
        cluster.elect("a", "http://a-2", 8)

        await sending

    return cluster.stored_at()


async def test_without_a_master_in_the_route_a_message_waits_for_one() -> None:
    assert await stored_after_an_election() == ["http://a-2"]


async def test_the_route_of_a_new_master_ends_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SETTLING_PAUSE_SECONDS", "SETTLING_PAUSE_SECONDS_MAX"):
        monkeypatch.setattr(attempts, name, 10 * SECONDS)
    assert await stored_after_an_election() == ["http://a-2"]


async def test_without_a_new_master_the_error_names_the_broker() -> None:
    cluster = Cluster("a")
    cluster.elect("a", None, 7)
    async with cluster.client as client, client.producer(send_timeout_seconds=0.3) as producer:
        with pytest.raises(eruca.NoRouteError, match="no broker of topic orders has a master now"):
            await producer.send(message())


async def test_an_ordered_message_waits_though_another_broker_is_there() -> None:
    cluster = Cluster("a", "b", order_config="a:2")
    cluster.elect("a", None, 7)
    async with (
        cluster.client as client,
        client.producer(send_timeout_seconds=SECONDS) as producer,
    ):
        sending = asyncio.create_task(producer.send(message(sharding_key="k")))
        await until(lambda: cluster.knows_route)
        cluster.elect("a", "http://a-2", 8)

        await sending

    assert cluster.stored_at() == ["http://a-2"]


async def test_an_idempotent_message_whose_outcome_is_unknown_is_repeated_at_the_new_master() -> (
    None
):
    cluster = Cluster("a", "b")
    cluster.faults["http://a-1"] = eruca.OutcomeUnknownError("demoted")
    async with (
        cluster.client as client,
        client.producer(idempotent=True, send_timeout_seconds=SECONDS) as producer,
    ):
        sending = asyncio.create_task(
            producer.send(message(), queue=eruca.MessageQueue("orders", "a", 0))
        )
        await until(lambda: len(cluster.hot.requests) > 0)
        cluster.elect("a", None, 7)
        cluster.faults["http://a-1"] = NotConnectedError("refused")
        await until(lambda: "a" not in cluster.known_urls)
        cluster.elect("a", "http://a-2", 8)

        await sending

    assert cluster.stored_at() == ["http://a-2"]
    keys = {request.headers["idempotency-key"] for request in cluster.hot.requests}
    assert len(keys) == 1


async def test_an_unknown_outcome_is_treated_like_a_lost_connection() -> None:
    urls = []
    for fault in (eruca.OutcomeUnknownError("demoted"), eruca.TransportError("cut")):
        cluster = Cluster("a", "b")
        cluster.faults = {"http://a-1": fault, "http://b-1": fault}
        async with (
            cluster.client as client,
            client.producer(retries_max=1, send_timeout_seconds=SECONDS) as producer,
        ):
            with pytest.raises(eruca.SendFailedError):
                await producer.send(message())
        urls.append(sorted(request.url for request in cluster.hot.requests))

    assert urls[0] == urls[1] == ["http://a-1", "http://b-1"]


@pytest.mark.parametrize("fault", MASTERLESS[1:])
async def test_a_change_of_the_master_does_not_isolate_the_broker(
    fault: eruca.ErucaError,
) -> None:
    cluster = Cluster("a", "b")
    cluster.faults["http://a-1"] = fault
    async with (
        cluster.client as client,
        client.producer(latency_fault=True, send_timeout_seconds=SECONDS) as producer,
    ):
        for _ in range(4):
            await producer.send(message())
        cluster.faults.clear()
        results = [await producer.send(message()) for _ in range(4)]

    assert {result.queue.broker_name for result in results} == {"a", "b"}


async def test_a_new_master_is_not_blamed_for_the_connections_that_failed_before_it() -> None:
    cluster = Cluster("a", "b")
    cluster.faults["http://a-1"] = eruca.TransportError("cut")
    async with (
        cluster.client as client,
        client.producer(latency_fault=True, send_timeout_seconds=SECONDS) as producer,
    ):
        for _ in range(4):
            await producer.send(message())
        at_b = [await producer.send(message()) for _ in range(4)]
        cluster.elect("a", "http://a-2", 8)
        await until(lambda: "http://a-2" in cluster.known_urls.values())
        results = [await producer.send(message()) for _ in range(4)]

    assert {result.queue.broker_name for result in at_b} == {"b"}
    assert {result.queue.broker_name for result in results} == {"a", "b"}


async def test_brokers_that_all_elect_a_master_are_not_asked_without_a_pause() -> None:
    cluster = Cluster("a", "b")
    for url in ("http://a-1", "http://b-1"):
        cluster.faults[url] = NotConnectedError("refused")
    async with cluster.client as client, client.producer(send_timeout_seconds=0.5) as producer:
        with pytest.raises(eruca.SendFailedError):
            await producer.send(message())

    assert 3 < len(cluster.hot.requests) < 15


@pytest.mark.parametrize(("copies", "query"), [(1, ""), (2, "?copies=2")])
async def test_a_producer_asks_for_copies_and_tells_how_many_there_are(
    copies: int, query: str
) -> None:
    async def broker(request: Request) -> HttpResponse:
        return receipt_answer(request, copies=2)

    cluster = Cluster("a")
    cluster.hot.answer = broker
    async with cluster.client as client, client.producer(copies=copies) as producer:
        result = await producer.send(message())

    assert result.copies == 2
    assert [request.target.partition("records")[2] for request in cluster.hot.requests] == [query]


async def test_too_few_replicas_are_not_waited_for_longer_than_other_refusals() -> None:
    cluster = Cluster("a")
    cluster.faults["http://a-1"] = eruca.NotEnoughReplicasError("1 of 2")
    async with (
        cluster.client as client,
        client.producer(copies=2, retries_max=1, send_timeout_seconds=SECONDS) as producer,
    ):
        with pytest.raises(eruca.SendFailedError, match="1 of 2"):
            await producer.send(message())

    assert len(cluster.hot.requests) == 2
