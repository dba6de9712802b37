"""The scenarios: one side writes a store, the other opens a copy, reads it and writes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from interop import data
from interop.agreement import check_contents
from interop.checks import Checks, SectionFailedError
from interop.eruca_cluster import Eruca
from interop.filling import fill, write_on
from interop.processes import Child, free_ports
from interop.rocketmq import NEIGHBOURS, RocketMq
from interop.side import Contents, Side
from interop.store_checks import check_files
from interop.store_files import delete_first_segment
from interop.toolchain import Toolchain

_MORE: Final = 400  # flights that the other side adds


@dataclass(frozen=True, slots=True)
class Opened:
    """A broker that has opened a store: what to say to it, and its process."""

    side: Side
    broker: Child
    killed: bool

    def end(self) -> None:
        """Stop the broker, or kill it where it stands."""
        if self.killed:
            self.broker.kill()
        else:
            self.broker.stop()


@dataclass(slots=True)
class Bench:
    """Where the scenarios run. Both sides' brokers have one port: offset ids name it."""

    checks: Checks
    toolchain: Toolchain
    directory: Path
    message_count: int
    killed: bool
    openings: int = 0
    port: int = field(default_factory=lambda: free_ports(*NEIGHBOURS))

    @contextmanager
    def rocketmq(self, store: Path) -> Iterator[Opened]:
        """Open *store* with RocketMQ."""
        with RocketMq(self.toolchain, store, self._home(store), port=self.port) as cluster:
            yield Opened(cluster.client, cluster.broker, self.killed)

    @contextmanager
    def eruca(self, store: Path) -> Iterator[Opened]:
        """Open *store* with Eruca."""
        with Eruca(store, self._home(store), port=self.port) as cluster:
            yield Opened(cluster, cluster.broker, self.killed)

    def _home(self, store: Path) -> Path:
        self.openings += 1
        return self.directory / "logs" / f"{self.openings}-{store.parent.name}-{store.name}"


def rocketmq_writes(bench: Bench) -> None:
    """RocketMQ writes; Eruca opens a copy and writes on; RocketMQ opens that."""
    with suppress(SectionFailedError):
        _run(bench, ("RocketMQ", bench.rocketmq), ("Eruca", bench.eruca))


def eruca_writes(bench: Bench) -> None:
    """Eruca writes; RocketMQ opens a copy and writes on; Eruca opens that."""
    with suppress(SectionFailedError):
        _run(bench, ("Eruca", bench.eruca), ("RocketMQ", bench.rocketmq))


_Open = Callable[[Path], AbstractContextManager[Opened]]


def _run(bench: Bench, writer: tuple[str, _Open], reader: tuple[str, _Open]) -> None:
    (writer_name, writer_open), (reader_name, reader_open) = writer, reader
    checks = bench.checks
    ended = "is killed" if bench.killed else "stops"
    exact = not bench.killed
    place = bench.directory / f"{writer_name}-{ended.replace(' ', '-')}".lower()
    with checks.section(f"{writer_name} writes and {ended}"):
        with writer_open(place / "written") as opened:
            contents = fill(checks, opened.side, bench.message_count, with_delay=exact)
            opened.end()
        check_files(checks, place / "written", contents.messages, stopped_cleanly=exact)
        with_more = place / "written-on"
        shutil.copytree(place / "written", with_more)
    with checks.section(f"{reader_name} opens a copy, writes on and {ended}"):
        with reader_open(with_more) as opened:
            check_contents(checks, opened.side, contents, are_commits_exact=exact)
            before = contents
            more = data.flights(bench.message_count + _MORE)[bench.message_count :]
            contents = write_on(checks, opened.side, contents, more)
            opened.end()
        check_files(checks, with_more, contents.messages, stopped_cleanly=exact)
    if not bench.killed:
        _after_retention(bench, reader_name, reader_open, place / "written", before)
    reopened = Path(shutil.copytree(with_more, place / "reopened"))
    with checks.section(f"{writer_name} opens that again"), writer_open(reopened) as opened:
        check_contents(checks, opened.side, contents, are_commits_exact=exact)


def _after_retention(
    bench: Bench, reader_name: str, reader_open: _Open, store: Path, contents: Contents
) -> None:
    """Delete a copy's first segment, as retention does, and open it."""
    with bench.checks.section(f"{reader_name} opens a copy whose first segment is gone"):
        shortened = Path(shutil.copytree(store, store.with_name("shortened")))
        left = contents.from_log_offset(delete_first_segment(shortened))
        with reader_open(shortened) as opened:
            check_contents(bench.checks, opened.side, left, are_commits_exact=True)
