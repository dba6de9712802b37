"""Offsets are the word of a master: who is asked while replicas change it."""

from __future__ import annotations

import pytest

import eruca
from eruca.aio.cluster import broker_api
from eruca.aio.http.transport import HttpResponse
from support.scripted_transport import Request, ScriptedTransport, json_answer, live_brokers

pytestmark = pytest.mark.anyio

NAMESRV = "http://127.0.0.1:1"
STANDBY = {"eruca-confirmed": "1"}
DOUBTFUL = {"eruca-stale": "true"}


class Replicas:
    """A broker of two replicas, ``a`` and ``b``, and a name server."""

    def __init__(self, *, is_told: bool) -> None:
        self.is_told = is_told  # whether the name server answers
        self.answers = 0
        self.marks: dict[str, list[dict[str, str]]] = {}  # of the next answers; then: a master's
        self.transport = ScriptedTransport(self)

    async def __call__(self, request: Request) -> HttpResponse:
        if request.url == NAMESRV:
            if not self.is_told:
                raise eruca.TransportError("the name server is away")
            told = live_brokers("b")
            [group] = told["brokers"]
            group["brokers"].append(
                {**group["brokers"][0], "broker_id": 2, "urls": {"default": "http://a"}}
            )
            return json_answer(told)
        self.answers += 1
        marks = self.marks[request.url]
        plain = json_answer({"group": "billing", "offsets": []})
        its = marks.pop(0) if len(marks) > 1 else marks[0]
        return HttpResponse(plain.status, {**plain.headers, **its}, plain.body)


def client_of(replicas: Replicas, timeout_seconds: float) -> eruca.AsyncClient:
    return eruca.AsyncClient(
        NAMESRV,
        timeout_seconds=timeout_seconds,
        transport=replicas.transport,
        hot_transport=ScriptedTransport(replicas),
    )


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_master_that_has_no_lease_yet_is_waited_for(*, is_told: bool) -> None:
    replicas = Replicas(is_told=is_told)
    replicas.marks = {"http://b": [DOUBTFUL, DOUBTFUL, {}]}

    async with client_of(replicas, 20) as client:
        found = await client.context.broker_api.group_offsets("http://b", "billing")

    assert (found.group, replicas.answers) == ("billing", 3)


async def test_a_master_that_has_become_a_standby_leads_to_its_successor() -> None:
    replicas = Replicas(is_told=True)
    replicas.marks = {"http://a": [STANDBY], "http://b": [{}]}

    async with client_of(replicas, 20) as client:
        found = await client.context.broker_api.group_offsets("http://a", "billing")

    assert (found.group, replicas.answers) == ("billing", 2)


async def test_without_a_master_the_refusal_comes_within_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_api, "PAUSE_SECONDS", 0.01)
    replicas = Replicas(is_told=False)
    replicas.marks = {"http://a": [STANDBY]}

    async with client_of(replicas, 0.2) as client:
        with pytest.raises(eruca.NotMasterForSureError, match="another replica at http://a"):
            await client.context.broker_api.group_offsets("http://a", "billing")

    assert replicas.answers > 1
