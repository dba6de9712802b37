"""``eruca log feed-slaves``: a slave that speaks RocketMQ's protocol copies a broker's log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eruca.contract.limits import BODY_SIZE_MAX
from support.broker_groups import GROUP, GroupOfProcesses, group_of
from support.command_line import Eruca
from support.rocketmq_slaves import RocketMqSlave

SEGMENT_SIZE = 4 * 1024**2  # the least; of support.broker_groups, too


class Feed:
    """The command as a process, and the events that it tells."""

    def __init__(self, eruca: Eruca) -> None:
        self._process = eruca.start("log", "feed-slaves", GROUP, "--listen=127.0.0.1:0", "-ojson")
        self.port: int = self.next("listening")["port"]

    def next(self, kind: str) -> dict[str, Any]:
        """Return the next event, which must be of a kind."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        event: dict[str, Any] = json.loads(line) if line else {"event": "the end"}
        assert event["event"] == kind, event
        return event

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        _, errors = self._process.communicate()
        assert "Traceback" not in errors
        assert self._process.returncode == 143, errors


@contextmanager
def feeding(eruca: Eruca) -> Iterator[Feed]:
    feed = Feed(eruca)
    try:
        yield feed
    finally:
        feed.stop()


@pytest.fixture
def eruca(name_server: str) -> Eruca:
    return Eruca(name_server)


@pytest.fixture
def group(tmp_path: Path, name_server: str) -> Iterator[GroupOfProcesses]:
    with group_of(tmp_path, 1, 2, namesrv_urls=name_server, heartbeat_seconds="0.5") as running:
        yield running


def visible_end(group: GroupOfProcesses) -> int:
    status = group.status(group.await_master())
    assert status is not None
    end: int = status["confirmed"]
    return end


def log_before(directory: Path, end: int) -> bytes:
    """Return a store's log, which begins at 0, from its files."""
    files = sorted((directory / "commitlog").iterdir())
    return b"".join(path.read_bytes() for path in files)[:end]


def send(group: GroupOfProcesses, *bodies: str) -> None:
    for body in bodies:
        assert group.send(body).status_code == 201


def test_a_slave_has_the_log_byte_for_byte_while_masters_die(
    group: GroupOfProcesses, eruca: Eruca
) -> None:
    send(group, *(f"{number}" * 1000 for number in range(20)))
    slave = RocketMqSlave(SEGMENT_SIZE)
    with feeding(eruca) as feed:
        with slave.connect(feed.port) as connection:
            end = visible_end(group)
            connection.take_until(lambda: slave.end >= end)
            assert feed.next("begins")["log_offset"] == 0

            first = group.await_master()
            group.kill(first)
            send(group, "after")
            end = visible_end(group)
            connection.take_until(lambda: slave.end >= end)
        with slave.connect(feed.port) as connection:  # it goes on where it was
            group.start(first)
            group.await_master(copies=2)
            # A record that leaves no room in a segment, and one that no frame has room for.
            for size in (SEGMENT_SIZE // 2, SEGMENT_SIZE // 2, BODY_SIZE_MAX - 300):
                send(group, "x" * size)
            end = visible_end(group)
            connection.take_until(lambda: slave.end >= end)
            connection.take_until(lambda: slave.heartbeat_count > 0)
    assert slave.begin == 0
    assert bytes(slave.log) == log_before(group.store_of(group.await_master()), slave.end)


def test_a_slave_that_is_ahead_is_refused_and_never_told_that_it_has_everything(
    group: GroupOfProcesses, eruca: Eruca
) -> None:
    send(group, "one")
    end = visible_end(group)
    slave = RocketMqSlave(SEGMENT_SIZE)
    with feeding(eruca) as feed:
        for request in (end + 1_000, end - 7):
            with slave.connect(feed.port, request=request) as connection:
                assert connection.is_closed()
            assert str(request) in feed.next("refused")["reason"]

        slave.begin = end  # as if it had copied everything
        with slave.connect(feed.port) as connection:
            connection.take_until(lambda: slave.heartbeat_count > 0)
            assert feed.next("begins")["log_offset"] == end
            assert feed.next("holds everything")["log_offset"] == end


def test_a_slave_that_reports_what_it_was_not_sent_is_refused(
    group: GroupOfProcesses, eruca: Eruca
) -> None:
    send(group, "one")
    slave = RocketMqSlave(SEGMENT_SIZE)
    with feeding(eruca) as feed, slave.connect(feed.port) as connection:
        end = visible_end(group)
        connection.take_until(lambda: slave.end >= end)
        feed.next("begins")
        connection.report(slave.end + 1)
        while connection.take_one():
            pass
        events = [feed.next("holds everything"), feed.next("refused")]
        assert f"it reports log offset {slave.end + 1}" in events[1]["reason"]


def test_what_is_no_address_is_a_wrong_command_line(eruca: Eruca) -> None:
    for listen in ("10912", "127.0.0.1:99999", "nobody@127.0.0.1:10912"):
        refused = eruca("log", "feed-slaves", GROUP, f"--listen={listen}", code=2)
        assert "expected HOST:PORT" in refused.output
