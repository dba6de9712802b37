"""Registration: with every name server at once, in time, and again when one forgets."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs

import pytest
from structlog.testing import capture_logs

from eruca.contract.errors import (
    PROBLEM_MEDIA_TYPE,
    ConflictError,
    NotFoundError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.topics import TopicConfig
from eruca.services.http import ANONYMOUS, Credentials
from eruca_broker.loops import registration
from eruca_broker.loops.registration import ONLY_BROKER, Place, Registrant, Registration
from support.clocks import ManualClock
from support.waiting import until

pytestmark = pytest.mark.anyio

REGISTRANT = Registrant(
    cluster="eruca",
    broker_name="broker-a",
    urls={"default": "http://127.0.0.1:1"},
    store_host="127.0.0.1:1",
    heartbeat_seconds=0.02,
    registration_seconds=30,
    expiry_seconds=20,
)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class NameServer:
    """Answers registrations as it is told to, and remembers them; HTTP/1.1 by hand."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.status = 200
        self.is_silent = False  # closes the connection instead of an answer
        self.goes_on = asyncio.Event()  # while not set, it answers nothing, as if it were stopped
        self.goes_on.set()
        self.is_behind_proxy = False  # which answers errors in its own way
        self.needs_topics = False
        self.ordered_topics: dict[str, str] | None = None
        self.url = ""
        self.broker_id = 0  # under which the broker must register

    @property
    def registrations(self) -> list[dict[str, Any]]:
        return [body for method, body in self.requests if method == "PUT"]

    @property
    def with_topics(self) -> list[dict[str, Any]]:
        return [body for body in self.registrations if body["topics"] is not None]

    @property
    def known(self) -> list[str]:
        """The topics that were registered last."""
        return [topic["topic"] for topic in self.with_topics[-1]["topics"]]

    async def registered(self, times: int) -> None:
        """Return once the broker's registration was renewed so often."""
        await until(lambda: len(self.registrations) >= times)

    async def told_topics(self, times: int) -> None:
        """Return once it received the topics so often."""
        await until(lambda: len(self.with_topics) >= times)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing_quietly(writer):
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, target = head.decode().split(" ")[:2]
                path, _, query = target.partition("?")
                assert path == f"/v1/brokers/broker-a/{self.broker_id}"
                if method == "DELETE":
                    assert parse_qs(query) == {"store_host": [REGISTRANT.store_host]}
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
                body = await reader.readexactly(size)
                self.requests.append((method, json.loads(body) if body else {}))
                await self.goes_on.wait()
                if self.is_silent:
                    return
                result = json.dumps(
                    {
                        "broker_name": "broker-a",
                        "broker_id": 0,
                        "needs_topics": self.needs_topics,
                        "order_topics": {},
                        "ordered_topics": self.ordered_topics,
                        "ordered_topics_digest": str(hash(str(self.ordered_topics))),
                    }
                ).encode()
                self.needs_topics = False
                media_type = "application/json"
                if self.status >= 300 and not self.is_behind_proxy:
                    media_type, result = PROBLEM_MEDIA_TYPE, problem_of(self.status)
                answer = (
                    f"HTTP/1.1 {self.status} x\r\ncontent-type: {media_type}\r\n"
                    f"content-length: {len(result)}\r\n\r\n"
                )
                writer.write(answer.encode() + result)
                await writer.drain()


def problem_of(status: int) -> bytes:
    kinds = {kind.status: kind for kind in (NotFoundError, ConflictError, UnavailableError)}
    return json.dumps(kinds[status]("because").problem()).encode()


@contextmanager
def closing_quietly(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the client is done
    finally:
        writer.close()


@asynccontextmanager
async def name_servers(count: int) -> AsyncIterator[list[NameServer]]:
    servers = [NameServer() for _ in range(count)]
    listening = []
    for server in servers:
        listener = await asyncio.start_server(server.answer, "127.0.0.1", 0)
        server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        listening.append(listener)
    try:
        yield servers
    finally:
        for listener in listening:
            listener.close()


class Broker:
    """A broker that registers: the test changes its topics and their version."""

    def __init__(
        self, urls: list[str], credentials: Credentials, registrant: Registrant = REGISTRANT
    ) -> None:
        self.clock = ManualClock()
        self.names: list[str] = ["orders"]
        self.place = ONLY_BROKER
        self.registration = Registration(
            registrant,
            urls,
            topics=lambda: [
                TopicConfig(topic=name, read_queue_count=4, write_queue_count=4, permission="rw")
                for name in self.names
            ],
            version=lambda: len(self.names),
            clock=self.clock,
            credentials=credentials,
            place=lambda: self.place,
        )

    def create(self, name: str) -> asyncio.Task[None]:
        """Create a topic; the task ends once the change is known."""
        self.names.append(name)
        self.registration.topics_changed()
        return asyncio.create_task(self.registration.told())


@asynccontextmanager
async def registering(
    *urls: str, by: Credentials = ANONYMOUS, registrant: Registrant = REGISTRANT
) -> AsyncIterator[Broker]:
    broker = Broker(list(urls), by, registrant)
    broker.registration.start()
    try:
        yield broker
    finally:
        await broker.registration.stop()


async def test_topics_are_told_once_and_then_only_that_it_lives() -> None:
    async with name_servers(2) as servers, registering(*(s.url for s in servers)) as broker:
        for server in servers:
            await server.registered(4)

        for server in servers:
            first, *others = server.registrations
            assert [topic["topic"] for topic in first["topics"]] == ["orders"]
            assert first["urls"] == REGISTRANT.urls
            assert (first["expiry_seconds"], first["data_version"]) == (20, 1)
            assert {other["topics"] for other in others} == {None}
        assert broker.registration.registered_count == 2


async def test_a_change_of_topics_is_told_at_once() -> None:
    async with name_servers(2) as servers, registering(*(s.url for s in servers)) as broker:
        for server in servers:
            await server.registered(1)
        broker.names.append("flights")

        broker.registration.topics_changed()

        for server in servers:
            await server.told_topics(2)
            assert [t["topic"] for t in server.with_topics[1]["topics"]] == ["orders", "flights"]
            assert server.with_topics[1]["data_version"] == 2


async def test_a_change_is_known_once_the_name_servers_have_acknowledged_it() -> None:
    nobody = "http://127.0.0.1:1"
    async with name_servers(2) as servers, registering(nobody, *(s.url for s in servers)) as broker:
        await until(lambda: broker.registration.registered_count == 2)
        broker.names.append("flights")
        broker.registration.topics_changed()

        await broker.registration.told()

        for server in servers:
            assert [t["topic"] for t in server.with_topics[-1]["topics"]] == ["orders", "flights"]


async def test_a_silent_name_server_is_waited_for_once_and_during_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = 0.3
    now = asyncio.get_running_loop().time
    async with name_servers(1) as (server,), registering(server.url) as broker:
        await until(lambda: broker.registration.registered_count == 1)
        server.goes_on.clear()
        monkeypatch.setattr(registration, "TOLD_SECONDS", limit)
        begun_at = now()
        async with asyncio.timeout(10 * limit):
            await broker.create("flights")
        assert now() - begun_at >= 0.9 * limit
        assert broker.registration.registered_count == 1

        monkeypatch.setattr(registration, "TOLD_SECONDS", 3600)
        async with asyncio.timeout(10 * limit):
            await broker.create("trains")

        server.goes_on.set()
        await until(lambda: "trains" in server.known)
        await server.registered(len(server.registrations) + 1)  # that one was acknowledged
        server.goes_on.clear()
        is_known = broker.create("ships")
        await until(lambda: "ships" in server.known)
        assert not is_known.done()
        server.goes_on.set()
        await is_known


async def test_who_waits_for_a_name_server_goes_on_when_another_one_has_waited_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with name_servers(1) as (server,), registering(server.url) as broker:
        await until(lambda: broker.registration.registered_count == 1)
        server.goes_on.clear()
        monkeypatch.setattr(registration, "TOLD_SECONDS", 3600)
        patient = broker.create("flights")
        await until(lambda: "flights" in server.known)
        monkeypatch.setattr(registration, "TOLD_SECONDS", 0.05)

        async with asyncio.timeout(10):
            await broker.create("trains")
            await patient
        server.goes_on.set()


async def test_a_change_during_the_first_registration_is_waited_for() -> None:
    async with name_servers(1) as (server,):
        server.goes_on.clear()
        async with registering(server.url) as broker:
            await server.registered(1)
            is_known = broker.create("flights")
            server.goes_on.set()

            await is_known

            assert server.known == ["orders", "flights"]


async def test_a_change_after_a_failed_registration_is_waited_for_until_the_last_one_expires(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "TOLD_SECONDS", 3600)
    async with name_servers(1) as (server,), registering(server.url) as broker:
        await until(lambda: broker.registration.registered_count == 1)
        server.is_silent = True
        await until(lambda: broker.registration.registered_count == 0)
        is_known = broker.create("flights")
        server.is_silent = False
        await is_known
        assert server.known == ["orders", "flights"]

        server.is_silent = True
        await until(lambda: broker.registration.registered_count == 0)
        broker.clock.advance(REGISTRANT.expiry_seconds)

        async with asyncio.timeout(10):
            await broker.create("trains")
        assert broker.registration.registered_count == 0
        server.is_silent = False


async def test_a_name_server_that_refuses_this_broker_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registration, "TOLD_SECONDS", 3600)
    async with name_servers(1) as (server,), registering(server.url) as broker:
        await until(lambda: broker.registration.registered_count == 1)
        server.status = 409
        await until(lambda: broker.registration.refusal is not None)

        async with asyncio.timeout(10):
            await broker.create("flights")


async def test_changes_during_a_registration_share_the_next_one() -> None:
    async with name_servers(1) as (server,), registering(server.url) as broker:
        await until(lambda: broker.registration.registered_count == 1)
        server.goes_on.clear()
        first = broker.create("flights")
        await until(lambda: "flights" in server.known)
        before = len(server.with_topics)
        names = [f"trains-{number}" for number in range(30)]
        are_known = [first, *(broker.create(name) for name in names)]
        server.goes_on.set()

        await asyncio.gather(*are_known)

        assert server.known == ["orders", "flights", *names]
        assert len(server.with_topics) == before + 1


async def test_another_place_in_the_group_is_registered_at_once() -> None:
    async with name_servers(1) as (server,), registering(server.url) as broker:
        await server.registered(2)
        first = server.registrations[0]
        assert (first["epoch"], first["role"], first["replica_id"]) == (0, None, None)

        server.broker_id = 2
        broker.place = Place(2, 7, "standby", 2, ("10.0.0.1:10911",))
        broker.registration.topics_changed()

        await until(lambda: server.with_topics[-1]["epoch"] == 7)
        last = server.with_topics[-1]
        assert (last["role"], last["replica_id"]) == ("standby", 2)
        assert last["former_store_hosts"] == ["10.0.0.1:10911"]


async def test_topics_are_told_again_after_half_a_minute() -> None:
    async with name_servers(1) as [server], registering(server.url) as broker:
        await server.registered(3)
        assert len(server.with_topics) == 1

        broker.clock.advance(30)

        await server.told_topics(2)


async def test_a_name_server_that_asks_for_topics_gets_them() -> None:
    async with name_servers(1) as [server], registering(server.url):
        await server.registered(2)

        server.needs_topics = True

        await server.told_topics(2)


async def test_a_name_server_that_is_down_delays_no_other() -> None:
    async with (
        name_servers(2) as [down, up],
        registering("http://127.0.0.1:1", down.url, up.url) as broker,
    ):
        down.status = 503
        await up.registered(5)
        assert broker.registration.registered_count <= 2

        down.status = 200
        before = len(down.with_topics)

        # It may have forgotten the topics: the registration has them, and is no mere heartbeat.
        await until(lambda: broker.registration.registered_count == 2)
        assert len(down.with_topics) > before


async def test_a_failed_registration_does_not_wait_for_the_next_heartbeat() -> None:
    seldom = replace(REGISTRANT, heartbeat_seconds=3600)
    async with name_servers(1) as [server]:
        server.status = 503
        async with registering(server.url, registrant=seldom) as broker:
            await server.registered(2)
            server.status = 200

            await until(lambda: broker.registration.registered_count == 1)
            assert server.registrations[-1]["topics"] is not None


async def test_at_the_end_it_leaves_the_name_servers_that_know_it() -> None:
    async with name_servers(2) as [first, second]:
        async with registering(first.url, "http://127.0.0.1:1", second.url):
            for server in (first, second):
                await server.registered(1)

        for server in (first, second):
            assert server.requests[-1][0] == "DELETE"
            assert [method for method, _ in server.requests].count("DELETE") == 1


async def test_at_the_end_it_leaves_a_name_server_whose_answer_did_not_come() -> None:
    async with name_servers(1) as [server]:
        async with registering(server.url) as broker:
            await until(lambda: broker.registration.registered_count == 1)
            server.is_silent = True
            await until(lambda: broker.registration.registered_count == 0)
            server.is_silent = False
            server.status = 404

        assert server.requests[-1][0] == "DELETE"


@pytest.mark.parametrize(
    ("status", "is_warned"), [(204, False), (404, False), (409, False), (503, True)]
)
async def test_not_having_been_there_is_as_good_as_having_left(
    status: int, *, is_warned: bool
) -> None:
    with capture_logs() as logs:
        async with name_servers(1) as [server], registering(server.url) as broker:
            await until(lambda: broker.registration.registered_count == 1)
            server.status = status
            await broker.registration.stop()

    assert ("not unregistered" in [entry["event"] for entry in logs]) == is_warned


async def test_no_name_server_is_no_error() -> None:
    async with registering() as broker:
        broker.registration.topics_changed()

        assert broker.registration.registered_count == 0


async def test_a_broker_whose_name_another_one_has_is_refused_until_the_name_is_free() -> None:
    async with name_servers(1) as [server]:
        server.status = 409
        async with registering("http://127.0.0.1:1", server.url) as broker:
            await broker.registration.first_outcomes()
            assert broker.registration.refusal is not None

            server.status = 200

            await until(lambda: broker.registration.refusal is None)


async def test_a_broker_that_one_name_server_has_is_not_stopped_by_another_that_refuses_it() -> (
    None
):
    async with name_servers(2) as [refusing, other]:
        refusing.status = 409
        async with registering(refusing.url, other.url) as broker:
            await broker.registration.first_outcomes()

            assert broker.registration.refusal is None


async def test_a_proxys_conflict_is_no_refusal() -> None:
    """It is not the name server's word, so it stops no broker."""
    async with name_servers(1) as [server]:
        server.status = 409
        server.is_behind_proxy = True
        async with registering(server.url) as broker:
            await broker.registration.first_outcomes()

            assert broker.registration.refusal is None
            assert broker.registration.registered_count == 0


async def test_credentials_that_cannot_be_had_are_a_fault_and_no_crash() -> None:
    class Missing:
        has_headers = True

        async def headers(self, url: str) -> list[tuple[str, str]]:
            raise ValidationError("the key file is missing")

        async def renew(self, refused: object) -> bool:
            raise AssertionError

        async def ssl_context(self) -> ssl.SSLContext:
            raise AssertionError

    with capture_logs() as logs:
        async with name_servers(1) as [server], registering(server.url, by=Missing()) as broker:
            await broker.registration.first_outcomes()

            assert server.requests == []
            assert broker.registration.refusal is None

    assert "the key file is missing" in next(e["why"] for e in logs)


async def test_name_servers_that_do_not_answer_refuse_nobody() -> None:
    async with registering("http://127.0.0.1:1") as broker:
        await broker.registration.first_outcomes()

        assert broker.registration.refusal is None


async def test_what_one_name_server_says_of_other_brokers_ordered_topics_all_are_told() -> None:
    async with name_servers(2) as [first, second]:
        first.ordered_topics = {"broker-a": "its own", "broker-b": "of another"}
        async with registering(first.url, second.url) as broker:
            await first.registered(2)
            await second.registered(1)

            second.needs_topics = True
            broker.registration.topics_changed()

            await second.told_topics(2)

    assert second.with_topics[-1]["ordered_topics"] == {"broker-b": "of another"}
    assert first.registrations[-1]["ordered_topics_digest"] is not None


async def test_it_knows_at_which_other_brokers_a_topic_is_ordered() -> None:
    async with name_servers(2) as [first, second]:
        first.ordered_topics = {
            "broker-a": '{"orders": [1, "broker-a:4"], "own": [0, ""]}',
            "broker-b": '{"orders": [1, "broker-b:4"]}',
        }
        second.ordered_topics = {"broker-c": '{"orders": [0, ""]}', "broker-d": "not an entry"}
        async with registering(first.url, second.url) as broker:
            ordered_at = broker.registration.ordered_at
            await until(lambda: ordered_at("orders") == ["broker-b", "broker-c"])

            assert (ordered_at("own"), ordered_at("other")) == ([], [])

            second.ordered_topics = {}
            await until(lambda: ordered_at("orders") == ["broker-b"])
