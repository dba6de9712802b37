"""Records by their offset ids: the client remembers who has them, and does not trust it blindly."""

from __future__ import annotations

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import ErucaError, RecordNotFoundError, TransportError
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.records import Host
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    live_brokers,
    problem_answer,
)

pytestmark = pytest.mark.anyio

HOST = Host.from_text("10.0.0.1:10911")  # of live_brokers
STRANGER = Host.from_text("10.0.0.2:10911")
ID = encode_offset_id(HOST, 17)


class Brokers:
    """One broker, with a name server that knows where it is."""

    def __init__(self) -> None:
        self.name = "a"
        self.store_host = HOST
        self.fault: ErucaError | None = None
        self.transport = ScriptedTransport(self)

    async def __call__(self, request: Request) -> HttpResponse:
        if request.target == "/v1/brokers":
            return json_answer(live_brokers(self.name))
        if request.url != f"http://{self.name}":
            raise TransportError(f"nobody is at {request.url}")
        if self.fault is not None:
            return problem_answer(self.fault)
        message = dict.fromkeys(NULL) | {
            "topic": "orders", "queue_id": 0, "queue_offset": 0, "log_offset": 17, "size": 100,
            "keys": [], "properties": {},
            "offset_message_id": encode_offset_id(self.store_host, 17),
        }  # fmt: skip
        view = {"log_offset": 17, "size": 100, "message": message, "sys_flag": 0}
        return json_answer(view | {"prepared_offset": 0, "system_properties": {}})

    def asked(self) -> list[tuple[str, str]]:
        """Return the requests since the last call, each by server and last part of its path."""
        asked = [(r.url, r.target.rpartition("/")[2]) for r in self.transport.requests]
        self.transport.requests.clear()
        return asked


NULL = (
    *("message_id", "tag", "sharding_key", "body", "flag", "reconsume_times"),
    *("born_at", "born_host", "stored_at", "store_host"),
)
NAMESRV = "http://127.0.0.1:1"
LIST = (NAMESRV, "brokers")


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def client_of(brokers: Brokers) -> eruca.AsyncClient:
    return eruca.AsyncClient(
        NAMESRV, transport=brokers.transport, hot_transport=ScriptedTransport(brokers)
    )


async def test_who_has_a_store_host_is_asked_once(brokers: Brokers) -> None:
    async with client_of(brokers) as client:
        for _ in range(3):
            view = await client.admin.message_by_offset_id(ID)
            assert view.message.offset_message_id == ID

        assert brokers.asked() == [LIST, *[("http://a", "17")] * 3]


async def test_a_broker_that_has_moved_is_found_again(brokers: Brokers) -> None:
    async with client_of(brokers) as client:
        await client.admin.message_by_offset_id(ID)
        brokers.asked()
        brokers.name = "b"

        await client.admin.message_by_offset_id(ID.lower())

        assert brokers.asked() == [("http://a", "17"), LIST, ("http://b", "17")]


async def test_another_broker_at_its_address_is_not_taken_for_it(brokers: Brokers) -> None:
    async with client_of(brokers) as client:
        await client.admin.message_by_offset_id(ID)
        brokers.asked()
        brokers.store_host = STRANGER

        await client.admin.message_by_offset_id(ID)

        # The name server has the last word: a broker has records of its former store hosts, too.
        assert brokers.asked() == [("http://a", "17"), LIST]


async def test_a_refusal_stands_if_the_name_server_knows_nobody_else(brokers: Brokers) -> None:
    async with client_of(brokers) as client:
        await client.admin.message_by_offset_id(ID)
        brokers.asked()
        brokers.fault = RecordNotFoundError("no record starts there")

        with pytest.raises(RecordNotFoundError, match="no record starts there"):
            await client.admin.message_by_offset_id(ID)

        assert brokers.asked() == [("http://a", "17"), LIST]
