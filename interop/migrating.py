"""Ways in and out: a store of RocketMQ's gets a second copy, and a slave of RocketMQ's copies ours.

On the way in, Eruca takes RocketMQ's store over, a replica copies it, and becomes the master. On
the way out, a RocketMQ broker in the role of a slave follows Eruca's log while it is written, is
killed, and sees a master of Eruca's die. Its log must then be Eruca's, byte for byte, and it must
be a master of its own once it has Eruca's topics, groups and offsets.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from interop import data
from interop.bench import Bench
from interop.delayed import Delayed, check_delayed, leave_delayed
from interop.eruca_group import ErucaGroup
from interop.filling import fill, write_on
from interop.processes import LOOPBACK, Child, free_ports, host_and_port
from interop.rocketmq import BROKER
from interop.side import GROUP, Contents, ends_of
from interop.store_files import log_bytes
from interop.traffic import Traffic

_MORE: Final = 400  # flights that the second side adds
_TRAFFIC_MAX: Final = 60_000  # flights; the traffic ends long before
_CONFIG: Final = (  # what a slave does not copy, and a master needs
    "topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json",
    "timercheck",
)  # fmt: skip


def second_copy(bench: Bench) -> None:
    """RocketMQ writes; Eruca takes that over with a replica; RocketMQ opens the replica's store."""
    place = bench.directory / "second-copy"
    ports = {1: bench.free_port(), 2: bench.free_port()}
    title = bench.title("RocketMQ writes a store for replicas")
    written = place / "written"
    with bench.checks.section(title), bench.rocketmq(written, port=ports[1]) as opened:
        contents = fill(bench.checks, opened.side, bench.message_count, with_delay=True)
        opened.broker.stop()
    stores = {1: Path(shutil.copytree(written, place / "replica-1"))}
    stores[2] = place / "replica-2"
    with bench.checks.section(bench.title("Eruca takes it over with a replica, which takes over")):
        with bench.eruca_group(stores, ports) as group:
            group.switch(2)
            with group.client() as client:
                bench.check_side(client, contents)
                more = data.flights(bench.message_count + _MORE)[bench.message_count :]
                contents = write_on(bench.checks, client, contents, more)
            group.wait_for_equal_ends()
            for number in stores:
                group.stop(number)
        bench.check_files(stores[2], contents)
        taken_over, copied = log_bytes(written), log_bytes(stores[2])
        what = "the copy begins with RocketMQ's bytes"
        bench.checks.record(what, agrees=copied.startswith(taken_over))
    copy = Path(shutil.copytree(stores[2], place / "opened"))
    title = bench.title("RocketMQ opens the replica's store")
    with bench.checks.section(title), bench.rocketmq(copy, port=ports[2]) as opened:
        bench.check_contents(opened, contents, store_host=bench.host_of(ports[2]))


def slave(bench: Bench) -> None:
    """A RocketMQ slave follows Eruca; then it is a master with all that Eruca had."""
    place = bench.directory / "slave"
    stores = {number: place / f"replica-{number}" for number in (1, 2)}
    ports = {number: bench.free_port() for number in stores}
    copy = place / "copy"
    with bench.checks.section(bench.title("A RocketMQ slave follows Eruca")):
        with bench.eruca_group(stores, ports) as group:
            contents, left, end = _followed(bench, group, copy)
            master = group.master()
            group.wait_for_equal_ends()
            group.stop(3 - master)
            group.stop(master)
        copied = log_bytes(copy)
        what = "the slave's log is Eruca's, byte for byte"
        agrees = len(copied) >= end and log_bytes(stores[master]).startswith(copied)
        bench.checks.record(what, agrees=agrees, detail=f"{len(copied)} bytes")
        bench.check_files(copy, contents)
    _take_over(stores[master], copy)
    title = bench.title("The slave becomes a master")
    with bench.checks.section(title), bench.rocketmq(copy, port=ports[master]) as opened:
        bench.check_contents(opened, contents, store_host=bench.host_of(ports[master]))
        more = data.flights(bench.message_count + _TRAFFIC_MAX)[-_MORE:]
        write_on(bench.checks, opened.side, contents, more)
        check_delayed(bench.checks, opened.side, left)


def _take_over(store: Path, copy: Path) -> None:
    """Give a slave's store the files that it has not copied, as RUNNING.md says."""
    (copy / "config").mkdir(exist_ok=True)
    for name in _CONFIG:
        shutil.copy(store / "config" / name, copy / "config" / name)
    shutil.rmtree(copy / "timerlog", ignore_errors=True)
    (copy / "timerwheel").unlink(missing_ok=True)
    if (store / "timerlog").exists():
        shutil.copytree(store / "timerlog", copy / "timerlog")


def _followed(bench: Bench, group: ErucaGroup, copy: Path) -> tuple[Contents, Delayed, int]:
    """Write while a slave follows into *copy*.

    Return the contents, what is delayed, and the log's end when the slave had everything.
    """
    checks, count = bench.checks, bench.message_count
    master = group.master()
    with group.client() as client:
        client.create_topic(data.DECIDED, 1)
        filled = fill(checks, client, count, with_delay=False)
    port = bench.free_port()
    with _feed(bench, group, port) as feed:
        address = f"{LOOPBACK}:{feed.port}"
        with Traffic(group.name_server, data.flights(count + _TRAFFIC_MAX)[count:]) as traffic:
            with bench.rocketmq(copy, port=port, master=address) as opened:
                feed.wait_for("begins", 1)
                traffic.wait_for_more()
                opened.broker.kill()
            with bench.rocketmq(copy, port=port, master=address) as opened:
                feed.wait_for("begins", 2)
                group.kill(master)
                successor = group.master(other_than=master)
                traffic.wait_for_more()
                group.start(master)
                group.wait_in_sync(2)
                traffic.stop()
                with group.client() as client:
                    flights = client.read_topic(data.FLIGHTS)
                    decided = client.read_topic(data.DECIDED)
                    traffic.check_read(checks, client, flights, filled.of_topic(data.FLIGHTS))
                    committed = client.group_offsets(GROUP, data.FLIGHTS)
                    # Last: what Eruca delivers after the slave has stopped is not in its copy.
                    left = leave_delayed(checks, client, recalls_levels=False)
                end = group.end_of(successor)
                feed.wait_for_everything(end)
                opened.broker.stop()
    others = [message for message in filled.messages if message.topic != data.FLIGHTS]
    messages = [*others, *flights, *decided]
    return Contents(messages, ends_of(messages), committed), left, end


class _Feed:
    """``eruca log feed-slaves``, and what it says."""

    def __init__(self, child: Child, port: int) -> None:
        self.port = port
        self._child = child

    def wait_for(self, event: str, count: int) -> None:
        """Wait until it has said so for the *count*-th time."""
        self._child.wait_until(lambda: len(self._offsets(event)) >= count)

    def wait_for_everything(self, end: int) -> None:
        """Wait until a slave holds everything before a log offset."""
        self._child.wait_until(lambda: max(self._offsets("holds everything"), default=0) >= end)

    def _offsets(self, event: str) -> list[int]:
        lines = self._child.log.read_text(errors="replace").splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line["log_offset"] for line in said if line["event"] == event]


@contextmanager
def _feed(bench: Bench, group: ErucaGroup, slave_port: int) -> Iterator[_Feed]:
    port = free_ports(LOOPBACK)
    command = ["log", "feed-slaves", BROKER, "--listen", f"{LOOPBACK}:{port}", "--output", "json"]
    command += ["--slave", host_and_port(bench.variant.host, slave_port)]
    child = Child(
        "eruca log feed-slaves",
        [sys.executable, "-m", "eruca", *command, "--namesrv", group.name_server],
        bench.directory / "logs" / "feed-slaves.log",
    )
    with child.started(lambda: "listening" in child.log.read_text()):
        yield _Feed(child, port)
