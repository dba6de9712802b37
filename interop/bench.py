"""The place in which scenarios run: brokers of both sides on given stores, in one variant.

There are three variants: with brokers that are shut down; with brokers that are killed, and a
damaged last record; and over IPv6, with RocketMQ's optional checksums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from interop.agreement import check_contents
from interop.checks import Checks
from interop.driver import Driver
from interop.eruca_client import ErucaClient
from interop.eruca_cluster import Eruca
from interop.eruca_group import ErucaGroup
from interop.messages import host_text
from interop.processes import LOOPBACK, LOOPBACK_V6, Child, free_ports
from interop.rocketmq import NEIGHBOURS, RocketMq
from interop.side import Contents
from interop.store_checks import check_files
from interop.toolchain import Toolchain


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
        self._port = self.free_port()
        self._openings = 0

    @contextmanager
    def rocketmq(
        self, store: Path, *, port: int | None = None, master: str | None = None
    ) -> Iterator[Opened]:
        """Open *store* with RocketMQ, at *port* or at the bench's own; as a slave of *master*."""
        with RocketMq(
            self._toolchain,
            store,
            self._home(store),
            host=self.variant.host,
            port=port or self._port,
            # With checksums required, RocketMQ considers records without one damaged.
            property_checksums=self.variant.has_checksums and not store.exists(),
            master=master,
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

    @contextmanager
    def eruca_group(
        self, stores: Mapping[int, Path], ports: Mapping[int, int]
    ) -> Iterator[ErucaGroup]:
        """Run an Eruca broker with a replica on each of the *stores*, at each of the *ports*."""
        home = self._home(next(iter(stores.values())))
        with ErucaGroup(stores, home, host=self.variant.host, ports=ports) as group:
            yield group

    def free_port(self) -> int:
        """Return a port at which RocketMQ can open a store."""
        return free_ports(self.variant.host, *NEIGHBOURS)

    def host_of(self, port: int) -> str:
        """Return the store host of a broker at *port*, in the common form."""
        return host_text(self.variant.host, port)

    def end(self, opened: Opened) -> None:
        """Shut the broker down, or kill it in the variant ``killed``."""
        if self.variant.is_killed:
            opened.settle()
            opened.broker.kill()
        else:
            opened.broker.stop()

    def title(self, what: str) -> str:
        """Return the title of a section in this variant."""
        return f"{what} [{self.variant.name}]"

    def check_contents(
        self, opened: Opened, contents: Contents, *, store_host: str | None = None
    ) -> None:
        """Check everything that the broker's side reads and finds."""
        self.check_side(opened.side, contents, store_host=store_host)

    def check_side(
        self, side: ErucaClient | Driver, contents: Contents, *, store_host: str | None = None
    ) -> None:
        """Check everything that a side reads and finds."""
        # RocketMQ writes committed offsets only every few seconds: a kill loses the latest.
        are_commits_exact = not self.variant.is_killed
        check_contents(
            self.checks,
            side,
            contents,
            are_commits_exact=are_commits_exact,
            store_host=store_host,
        )

    def check_files(self, store: Path, contents: Contents) -> None:
        """Check the files of a closed store."""
        stopped_cleanly = not self.variant.is_killed
        check_files(self.checks, store, contents.messages, stopped_cleanly=stopped_cleanly)

    def _home(self, store: Path) -> Path:
        self._openings += 1
        return self.directory / "logs" / f"{self._openings}-{store.parent.name}-{store.name}"
