"""The log follower at a broker with replicas: whom it reads from, and whose word counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.fields import BrokerRole
from support.broker_statuses import broker_status
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer

pytestmark = pytest.mark.anyio
MASTER, STANDBY, LEARNER = "http://master", "http://standby", "http://learner"


class Group:
    """A broker's replicas, of which each answers with a part of one log of zeros."""

    def __init__(self, *, epoch: int = 7) -> None:
        self.epoch = epoch
        self.faults: dict[str, eruca.ErucaError] = {}
        self.ends = {MASTER: 500, STANDBY: 500, LEARNER: 100}
        self.begins = {MASTER: 0, STANDBY: 0, LEARNER: 0}
        self.headers: Mapping[str, str] = {}
        self.damaged: dict[str, str] = {}  # log offsets of damaged records, by URL
        self.roles: dict[str, tuple[int, BrokerRole]] = {
            MASTER: (0, "master"), STANDBY: (2, "standby"), LEARNER: (3, "learner"),
        }  # fmt: skip
        self.asked: list[tuple[str, str | None]] = []
        self.client = eruca.AsyncClient(
            "http://namesrv",
            hot_transport=ScriptedTransport(self.log),
            transport=ScriptedTransport(self.name_server),
        )

    async def name_server(self, request: Request) -> HttpResponse:
        if request.target == "/v1/status":
            return self.status(request.url)
        brokers = [
            {
                "broker_id": broker_id,
                "epoch": self.epoch,
                "role": role,
                "urls": {"default": url},
                "store_host": f"10.0.0.{broker_id + 1}:1",
                "data_version": 1,
                "last_seen_at": "2026-01-01T00:00:00Z",
                "expires_at": "2026-01-01T00:02:00Z",
            }
            for url, (broker_id, role) in self.roles.items()
        ]
        group: dict[str, Any] = {
            "cluster": "c",
            "broker_name": "a",
            "epoch": self.epoch,
            "brokers": brokers,
        }
        return json_answer({"brokers": [group]})

    def status(self, url: str) -> HttpResponse:
        broker_id, role = self.roles[url]
        ends = {"min_offset": self.begins[url], "max_offset": self.ends[url]}
        if url == MASTER:
            ends["begin_offset"] = self.begins[url]  # the others are of an earlier version
        found = broker_status(broker_id=broker_id, role=role, **ends)
        return HttpResponse(200, {}, found.model_dump_json(exclude_unset=True).encode())

    async def log(self, request: Request) -> HttpResponse:
        query = parse_qs(urlsplit(request.target).query)
        self.asked.append((request.url, query.get("epoch", [None])[0]))
        if (fault := self.faults.get(request.url)) is not None:
            return problem_answer(fault)
        begin, end = int(query["from_offset"][0]), self.ends[request.url]
        headers = {
            "eruca-next-offset": str(max(begin, min(begin + 100, end))),
            "eruca-max-offset": str(end),
            **({"eruca-epoch": str(self.epoch)} if self.epoch else {}),
            "eruca-damaged-offsets": self.damaged.get(request.url, ""),
            **self.headers,
        }
        return HttpResponse(200, headers, b"")

    def asked_urls(self) -> list[str]:
        return [url for url, _ in self.asked]


async def test_a_reader_that_prefers_it_reads_from_a_standby_that_is_in_sync() -> None:
    group = Group()
    async with (
        group.client as client,
        client.log_follower("a", from_offset=0, prefers_replica=True) as preferring,
        client.log_follower("a", from_offset=0) as other,
    ):
        for _ in range(3):
            await preferring.read_block()
        await other.read_block()

    assert group.asked_urls() == [STANDBY] * 3 + [MASTER]


async def test_without_an_epoch_nobody_is_a_replica() -> None:
    group = Group(epoch=0)
    async with (
        group.client as client,
        client.log_follower("a", from_offset=0, prefers_replica=True) as follower,
    ):
        await follower.read_block()
        assert follower.epoch is None

    assert group.asked == [(MASTER, None)]


async def test_the_epoch_of_what_was_read_goes_with_the_next_position() -> None:
    group = Group()
    async with (
        group.client as client,
        client.log_follower("a", from_offset=0, from_epoch=6) as follower,
    ):
        block = await follower.read_block()
        await follower.read_block()

        assert (follower.epoch, block.epoch) == (7, 7)
    assert [epoch for _, epoch in group.asked] == ["6", "7"]


@pytest.mark.parametrize(
    "fault",
    [
        eruca.StaleEpochError("other records"),
        eruca.RecordNotFoundError("deleted here"),
        eruca.NotMasterForSureError("starting"),
    ],
)
async def test_a_standbys_refusal_counts_only_if_the_master_repeats_it(
    fault: eruca.ErucaError,
) -> None:
    group = Group()
    group.faults[STANDBY] = fault
    async with (
        group.client as client,
        client.log_follower("a", from_offset=0, prefers_replica=True) as follower,
    ):
        assert (await follower.read_block()).next_offset == 100
        await follower.read_block()
        assert group.asked_urls() == [STANDBY, MASTER, MASTER]

        group.faults[MASTER] = fault
        with pytest.raises(type(fault)):
            await follower.read_block()


async def test_a_standby_that_is_behind_the_reader_is_left_for_the_master() -> None:
    group = Group()
    group.ends[STANDBY] = 50
    async with (
        group.client as client,
        client.log_follower("a", from_offset=200, prefers_replica=True) as follower,
    ):
        assert (await follower.read_block()).next_offset == 200
        assert (await follower.read_block()).next_offset == 300

    assert group.asked_urls() == [STANDBY, MASTER]


@pytest.mark.parametrize(
    ("behind", "urls"),
    [("0.2", [STANDBY, STANDBY]), ("11.0", [STANDBY, MASTER]), ("much", [STANDBY, STANDBY])],
)
async def test_a_standby_without_its_master_for_long_is_left(behind: str, urls: list[str]) -> None:
    group = Group()
    group.headers = {"eruca-behind-seconds": behind}
    async with (
        group.client as client,
        client.log_follower("a", from_offset=0, prefers_replica=True) as follower,
    ):
        for _ in urls:
            await follower.read_block()

    assert group.asked_urls() == urls


async def test_without_a_master_a_standby_is_read() -> None:
    group = Group()
    del group.roles[MASTER]
    async with group.client as client, client.log_follower("a", from_offset=0) as follower:
        await follower.read_block()

    assert group.asked_urls() == [STANDBY]


@pytest.mark.parametrize(
    "fault", [eruca.StaleEpochError("other records"), eruca.RecordNotFoundError("deleted here")]
)
async def test_without_a_master_nobody_says_that_records_are_gone(fault: eruca.ErucaError) -> None:
    """A projection whose records are gone discards its rows, and begins again."""
    group = Group()
    group.faults[STANDBY] = fault
    master = group.roles.pop(MASTER)
    async with group.client as client, client.log_follower("a", from_offset=0) as follower:
        with pytest.raises(eruca.NotMasterForSureError, match=fault.detail):
            await follower.read_block()

        group.roles[MASTER] = master
        assert (await follower.read_block()).next_offset == 100


async def test_records_that_are_damaged_at_a_standby_are_the_masters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Group()
    group.damaged[STANDBY] = "0"
    async with (
        group.client as client,
        client.log_follower("a", from_offset=0, prefers_replica=True) as follower,
    ):
        await follower.read_block()

    assert group.asked_urls() == [STANDBY, MASTER]
    assert "skipped a damaged record" not in caplog.text


@pytest.mark.parametrize("prefers_replica", [True, False])
async def test_the_master_says_where_the_log_begins_whoever_is_read(prefers_replica: bool) -> None:
    group = Group()
    group.begins = {MASTER: 100, STANDBY: 300}
    async with (
        group.client as client,
        client.log_follower("a", prefers_replica=prefers_replica) as follower,
    ):
        assert (await follower.read_block()).from_offset == 100

    assert group.asked_urls() == [STANDBY if prefers_replica else MASTER]


async def test_the_end_of_a_standby_is_the_end_that_it_shows() -> None:
    group = Group()
    group.ends[STANDBY] = 400
    async with (
        group.client as client,
        client.log_follower("a", from_offset="latest", prefers_replica=True) as follower,
    ):
        assert (await follower.read_block()).from_offset == 400


@pytest.mark.parametrize("role", [STANDBY, LEARNER])
async def test_without_a_master_nobody_knows_where_a_log_begins_unless_all_of_it_is_there(
    role: str,
) -> None:
    group = Group()
    group.begins = dict.fromkeys(group.roles, 300)
    group.roles = {role: group.roles[role]}
    async with group.client as client, client.log_follower("a") as follower:
        with pytest.raises(eruca.UnavailableError, match="only the master knows"):
            await follower.read_block()
        assert (follower.next_offset, group.asked) == (None, [])

        group.begins[role] = 0
        assert (await follower.read_block()).from_offset == 0


async def test_a_broker_that_nobody_knows_is_an_error() -> None:
    group = Group()
    async with group.client as client, client.log_follower("b", from_offset=0) as follower:
        with pytest.raises(eruca.BrokerNotFoundError):
            await follower.read_block()
