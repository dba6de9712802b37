"""A follower does not trust the master's answers, and promises only what it has proved."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import msgspec
import pytest

from eruca.contract.errors import TransportError
from eruca.contract.records import Buffer
from eruca.contract.replication import (
    ANSWER_HEADER,
    NOW_HEADER,
)
from eruca.contract.wire import CONFIRMED_HEADER, EPOCH_HEADER, MAX_OFFSET_HEADER
from eruca.services.http import HttpTransport
from eruca_broker.core.replication.following import FollowState
from eruca_broker.core.replication.master_lease import PROMISE_SECONDS
from eruca_broker.processors.replication.followed_master import FollowedMaster
from eruca_broker.processors.replication.follower import FRESH_SECONDS
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.store.log.segment import Segment
from support.clocks import ManualClock, WrongClock
from support.replication_pairs import (
    BOTH,
    SECOND,
    client_of,
    equal,
    following,
    leading,
    log_of,
    send,
    standing_by,
)
from support.waiting import until

pytestmark = pytest.mark.anyio


class Answer(msgspec.Struct):
    """An answer that a test may change."""

    status: int
    headers: dict[str, str]
    body: bytes


Change = Callable[[Answer], None]


class Tampering:
    """A transport whose answers with a run are changed, while there is a change."""

    def __init__(self, transport: HttpTransport) -> None:
        self.transport = transport
        self.change: Change | None = None
        self.count = 0  # of changed answers

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> object:
        real = await self.transport.request(
            method, url, target, headers=headers, body=body, timeout=timeout
        )
        if self.change is None or not real.body or not target.startswith("/v1/replication/log"):
            return real
        answer = Answer(real.status, dict(real.headers), real.body)
        self.change(answer)
        self.count += 1
        return answer

    async def close(self) -> None:
        await self.transport.close()


def cut_short(answer: Answer) -> None:
    answer.body = answer.body[:-1]


def cut_at_a_head(answer: Answer) -> None:
    answer.body = answer.body[:60]


def shifted(answer: Answer) -> None:
    answer.body = answer.body[int.from_bytes(answer.body[:4]) :] or b"\0"


def doubled(answer: Answer) -> None:
    answer.body += answer.body


def bit_flipped(answer: Answer) -> None:
    changed = bytearray(answer.body)
    changed[len(changed) // 2] ^= 1
    answer.body = bytes(changed)


def noise(answer: Answer) -> None:
    answer.body = os.urandom(500)


def of_another_epoch(answer: Answer) -> None:
    answer.headers[EPOCH_HEADER] = "2"


def without_number(answer: Answer) -> None:
    del answer.headers[ANSWER_HEADER]


def with_impossible_numbers(answer: Answer) -> None:
    answer.headers[CONFIRMED_HEADER] = "9" * 30


def confirmed_beyond_its_end(answer: Answer) -> None:
    answer.headers[CONFIRMED_HEADER] = str(int(answer.headers[MAX_OFFSET_HEADER]) + 1)


def of_another_type(answer: Answer) -> None:
    answer.headers["content-type"] = "text/html"


@pytest.mark.parametrize(
    "change",
    [
        cut_short,
        cut_at_a_head,
        shifted,
        doubled,
        bit_flipped,
        noise,
        of_another_epoch,
        without_number,
        with_impossible_numbers,
        confirmed_beyond_its_end,
        of_another_type,
    ],
    ids=lambda change: change.__name__,
)
async def test_a_changed_answer_changes_nothing(tmp_path: Path, change: Change) -> None:
    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        transport = Tampering(replica.transport)
        replica.transport = transport  # type: ignore[assignment]  # its answers may be changed
        replica.follow(master.url)
        await send(client)
        await equal(master, replica)
        before, confirmed = log_of(replica.store), master.store.confirmed_offset

        transport.change = change
        sending = asyncio.create_task(send(client))
        await until(lambda: transport.count >= 2)

        assert log_of(replica.store) == before
        assert replica.store.confirmed_offset == master.store.confirmed_offset == confirmed
        assert replica.follower.reason is not None
        transport.change = None
        await sending
        await equal(master, replica)


async def test_a_replica_whose_disk_is_full_stops_fetching_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        replica.follow(master.url)
        await send(client)
        await equal(master, replica)
        with monkeypatch.context() as disk:
            write = Segment.write

            def write_unless_full(segment: Segment, *args: object) -> None:
                if segment.path.is_relative_to(replica.directory):
                    full()
                write(segment, *args)  # type: ignore[arg-type]  # passed on

            disk.setattr(Segment, "write", write_unless_full)
            sending = asyncio.create_task(send(client))
            await until(lambda: replica.follower.state is FollowState.HALTED)
            fetched_at = master.feed.silent_since(SECOND)
            status = replica.follower.status()
            await asyncio.to_thread(lambda: None)  # other work of both loops
            assert (status.state, "disk" in (status.reason or "")) == ("halted", True), status
            assert master.feed.silent_since(SECOND) == fetched_at
            assert not sending.done()
        await replica.store.upkeep.probe_disk()

        await sending
        await equal(master, replica)


async def test_the_clocks_of_both_are_compared(tmp_path: Path) -> None:
    async with (
        leading(tmp_path / "master") as master,
        standing_by(tmp_path / "replica") as replica,
    ):
        replica.clock = WrongClock(ahead_seconds=90)
        replica.follow(master.url)
        await until(lambda: replica.follower.skew_seconds is not None)

        assert replica.follower.skew_seconds == pytest.approx(90, abs=10)


class Silent:
    """A transport that never gets an answer."""

    def __init__(self) -> None:
        self.count = 0

    async def request(self, *_args: object, **_options: object) -> object:
        self.count += 1
        raise TransportError("no answer")

    async def close(self) -> None:
        pass


async def test_a_promise_is_renewed_by_each_answer_once(tmp_path: Path) -> None:
    """Rule 10: fetches that reach no master must not put off the election for ever."""
    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        clock = replica.clock = ManualClock()
        replica.promise._until = clock.boottime()
        replica.follow(master.url)
        await following(replica)
        await send(client)
        await equal(master, replica)
        assert replica.promise.until == clock.boottime() + PROMISE_SECONDS

        silent = Silent()
        replica.follower._fetcher._transport = silent  # type: ignore[assignment]
        clock.advance(1)
        await until(lambda: silent.count >= 1)
        promised = replica.promise.until
        assert promised <= clock.boottime() + PROMISE_SECONDS
        clock.advance(1)
        await until(lambda: silent.count >= 4)

        assert replica.promise.until == promised, "the answer was quoted before"


async def test_an_answer_is_quoted_by_the_next_fetch(tmp_path: Path) -> None:
    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        assert master.feed.lease_until < 0, "the member has not quoted an answer yet"
        replica.follow(master.url)
        await send(client)
        await equal(master, replica)

        assert master.feed.lease_until > replica.clock.boottime()


async def test_the_headers_have_the_masters_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    async with leading(tmp_path / "master", in_sync=BOTH, clock=clock) as master:
        async with httpx.AsyncClient(base_url=f"{master.url}/v1") as client:
            body = {
                "replica_id": 2, "uid": "second", "epoch": 1, "epochs": [],
                "min_offset": 0, "end": 0, "segment_bytes": master.store.segment_bytes,
            }  # fmt: skip
            assert (await client.post("/replication/lineage", json=body)).json()["proved"]
            target = "/replication/log?epoch=1&replica_id=2&uid=second"
            answer = await client.post(target, json={"acknowledged": 0})

        assert answer.headers[NOW_HEADER] == str(clock.now_ms())


class Hanging:
    """A transport whose requests are never answered, as over a network that drops packets."""

    def __init__(self) -> None:
        self.count = 0

    async def request(self, *_args: object, **_options: object) -> object:
        self.count += 1
        return await asyncio.Event().wait()

    async def close(self) -> None:
        pass


async def test_a_replica_that_hears_nothing_does_not_say_that_it_has_everything(
    tmp_path: Path,
) -> None:
    """Its request is held, or lost; after a second and a half nobody can tell."""
    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        clock = replica.clock = ManualClock()
        replica.follow(master.url)
        await send(client)
        await equal(master, replica)
        replica.follower._fetcher._transport = hanging = Hanging()  # type: ignore[assignment]
        await until(lambda: hanging.count == 1)
        assert replica.follower.reason is None

        clock.advance(FRESH_SECONDS)
        assert replica.follower.behind_seconds == 0
        clock.advance(60)  # this process was stopped, too

        assert replica.follower.behind_seconds == FRESH_SECONDS + 60


async def test_what_the_last_master_confirmed_behind_the_end_is_not_the_next_ones(
    tmp_path: Path,
) -> None:
    """Rule 7: after an unclean election other records may be there, which nobody has confirmed."""
    async with (
        leading(tmp_path / "master") as master,
        standing_by(tmp_path / "replica") as replica,
    ):
        told = master.store.log_max_offset
        followed = FollowedMaster(
            replica.store,
            member=SECOND,
            replication=Replication(replica.store, replica.clock),
            transport=replica.transport,
            promise=replica.promise,
            clock=replica.clock,
            shown_offset=0,
            on_end=lambda: None,
        )
        followed.confirmed = told  # it has copied nothing yet

        await followed.stop()

        assert followed.confirmed == replica.store.log_max_offset < told
