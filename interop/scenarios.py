"""The scenarios: one side writes a store, the other opens a copy, reads it and writes on.

Each runs in three variants: with brokers that are shut down; with brokers that are killed, and a
damaged last record; and over IPv6, with RocketMQ's optional checksums.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interop import data
from interop.agreement import check_contents
from interop.checks import Checks
from interop.delayed import check_delayed, leave_delayed
from interop.driver import Driver
from interop.eruca_client import ErucaClient
from interop.eruca_cluster import Eruca
from interop.filling import check_automatic_topic, fill, write_on
from interop.processes import LOOPBACK, LOOPBACK_V6, Child, free_ports
from interop.rocketmq import NEIGHBOURS, RocketMq
from interop.side import Contents
from interop.store_checks import check_files
from interop.store_files import damage_last_record, delete_first_segment
from interop.toolchain import Toolchain
from interop.undecided import decide

_MORE: Final = 400  # flights added by the other side


@dataclass(frozen=True, slots=True)
class Variant:
    """The conditions of a run."""

    name: str
    host: str = LOOPBACK
    is_killed: bool = False
    has_checksums: bool = False  # in the records that RocketMQ writes first


VARIANTS: Final = (
    Variant("stopped"),
    Variant("killed", is_killed=True),
    Variant("ipv6", host=LOOPBACK_V6, has_checksums=True),
)


@dataclass(frozen=True, slots=True)
class Opened:
    """A broker that has opened a store: its client and its process."""

    side: ErucaClient | Driver
    broker: Child
    settle: Callable[[], None] = lambda: None  # waits until the other side can take over
    settle_delays: Callable[[], None] = lambda: None  # … and can tell finished delays


class Bench:
    """The place of one variant. Both sides' brokers share an address: offset ids name it."""

    def __init__(
        self,
        checks: Checks,
        toolchain: Toolchain,
        directory: Path,
        variant: Variant,
        *,
        message_count: int,
    ) -> None:
        self.checks = checks
        self.directory = directory / variant.name
        self.variant = variant
        self.message_count = message_count
        self._toolchain = toolchain
        self._port = free_ports(variant.host, *NEIGHBOURS)
        self._openings = 0

    @contextmanager
    def rocketmq(self, store: Path) -> Iterator[Opened]:
        """Open *store* with RocketMQ."""
        with RocketMq(
            self._toolchain,
            store,
            self._home(store),
            host=self.variant.host,
            port=self._port,
            # With checksums required, RocketMQ considers records without one damaged.
            property_checksums=self.variant.has_checksums and not store.exists(),
        ) as cluster:
            yield Opened(cluster.client, cluster.broker)

    @contextmanager
    def eruca(self, store: Path) -> Iterator[Opened]:
        """Open *store* with Eruca."""
        home = self._home(store)
        with Eruca(store, home, host=self.variant.host, port=self._port) as cluster:
            yield Opened(
                cluster.client, cluster.broker, cluster.wait_for_config, cluster.wait_for_delays
            )

    def end(self, opened: Opened) -> None:
        """Shut the broker down, or kill it in the variant ``killed``."""
        if self.variant.is_killed:
            opened.settle()
            opened.broker.kill()
        else:
            opened.broker.stop()

    def _home(self, store: Path) -> Path:
        self._openings += 1
        return self.directory / "logs" / f"{self._openings}-{store.parent.name}-{store.name}"


_Open = Callable[[Path], AbstractContextManager[Opened]]
_Named = tuple[str, _Open]


def rocketmq_writes(bench: Bench) -> None:
    """RocketMQ writes; Eruca opens a copy and writes on; RocketMQ opens that."""
    _run(bench, ("RocketMQ", bench.rocketmq), ("Eruca", bench.eruca))


def eruca_writes(bench: Bench) -> None:
    """Eruca writes; RocketMQ opens a copy and writes on; Eruca opens that."""
    _run(bench, ("Eruca", bench.eruca), ("RocketMQ", bench.rocketmq))


def delayed_messages(bench: Bench) -> None:
    """Let each side leave delayed messages; the other delivers them, and no finished ones."""
    _hand_over(bench, ("Eruca", bench.eruca), ("RocketMQ", bench.rocketmq))
    if not bench.variant.is_killed:  # RocketMQ repeats some by itself after a kill
        _hand_over(bench, ("RocketMQ", bench.rocketmq), ("Eruca", bench.eruca))


def _hand_over(bench: Bench, writer: _Named, reader: _Named) -> None:
    place = bench.directory / f"{writer[0].lower()}-delays"
    store = place / "written"
    title = _title(bench, f"{writer[0]} delays messages")
    with bench.checks.section(title), writer[1](store) as opened:
        recalls_levels = isinstance(opened.side, ErucaClient)
        left = leave_delayed(bench.checks, opened.side, recalls_levels=recalls_levels)
        opened.settle_delays()
        bench.end(opened)
    if bench.variant.is_killed:
        copy = Path(shutil.copytree(store, place / "killed"))
        title = _title(bench, f"{reader[0]} takes them over from one that was killed")
        with bench.checks.section(title), reader[1](copy) as opened:
            check_delayed(bench.checks, opened.side, left, are_soon_exact=False)
        title = _title(bench, f"{writer[0]} is started again and stopped")
        with bench.checks.section(title), writer[1](store) as opened:
            opened.broker.stop()
    taken_over = Path(shutil.copytree(store, place / "taken-over"))
    title = _title(bench, f"{reader[0]} takes them over")
    with bench.checks.section(title), reader[1](taken_over) as opened:
        check_delayed(bench.checks, opened.side, left)
        opened.broker.stop()
    taken_back = Path(shutil.copytree(taken_over, place / "taken-back"))
    title = _title(bench, f"{writer[0]} takes them back")
    with bench.checks.section(title), writer[1](taken_back) as opened:
        check_delayed(bench.checks, opened.side, left, is_retry_due=False)


def _run(bench: Bench, writer: _Named, reader: _Named) -> None:
    place = bench.directory / f"{writer[0].lower()}-writes"
    contents = _write(bench, writer, place / "written")
    if bench.variant.name == "stopped":
        _open_after_retention(bench, reader, place, contents)
    written_on = Path(shutil.copytree(place / "written", place / "written-on"))
    if bench.variant.is_killed:
        contents = contents.before_log_offset(damage_last_record(written_on))
    contents = _write_on(bench, reader, written_on, contents)
    reopened = Path(shutil.copytree(written_on, place / "reopened"))
    title = _title(bench, f"{writer[0]} opens that again")
    with bench.checks.section(title), writer[1](reopened) as opened:
        _check_contents(bench, opened, contents)
        if isinstance(opened.side, Driver):
            check_automatic_topic(bench.checks, opened.side)


def _write(bench: Bench, writer: _Named, store: Path) -> Contents:
    with bench.checks.section(_title(bench, f"{writer[0]} writes")):
        with writer[1](store) as opened:
            with_delay = not bench.variant.is_killed
            contents = fill(bench.checks, opened.side, bench.message_count, with_delay=with_delay)
            bench.end(opened)
        _check_files(bench, store, contents)
    return contents


def _write_on(bench: Bench, reader: _Named, store: Path, contents: Contents) -> Contents:
    with bench.checks.section(_title(bench, f"{reader[0]} opens a copy and writes on")):
        with reader[1](store) as opened:
            _check_contents(bench, opened, contents)
            if isinstance(opened.side, ErucaClient):
                are_decided = not bench.variant.is_killed
                contents = decide(
                    bench.checks, opened.side, contents, are_others_decided=are_decided
                )
            more = data.flights(bench.message_count + _MORE)[bench.message_count :]
            contents = write_on(bench.checks, opened.side, contents, more)
            bench.end(opened)
        _check_files(bench, store, contents)
    return contents


def _open_after_retention(bench: Bench, reader: _Named, place: Path, contents: Contents) -> None:
    """Delete a copy's first segment, as retention does, and open it."""
    with bench.checks.section(_title(bench, f"{reader[0]} opens a copy without its first segment")):
        shortened = Path(shutil.copytree(place / "written", place / "shortened"))
        left = contents.from_log_offset(delete_first_segment(shortened))
        with reader[1](shortened) as opened:
            _check_contents(bench, opened, left)


def _check_contents(bench: Bench, opened: Opened, contents: Contents) -> None:
    # RocketMQ writes committed offsets only every few seconds: a kill loses the latest.
    are_commits_exact = not bench.variant.is_killed
    check_contents(bench.checks, opened.side, contents, are_commits_exact=are_commits_exact)


def _check_files(bench: Bench, store: Path, contents: Contents) -> None:
    stopped_cleanly = not bench.variant.is_killed
    check_files(bench.checks, store, contents.messages, stopped_cleanly=stopped_cleanly)


def _title(bench: Bench, what: str) -> str:
    return f"{what} [{bench.variant.name}]"
