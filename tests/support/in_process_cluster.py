"""A whole cluster in this process: real applications on real ports of the loopback."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.files.directory_lock import StoreLockedError, lock_directory
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.running.serving import Server
from eruca_namesrv.app import create_app as create_namesrv_app
from eruca_namesrv.name_server import NameServer
from eruca_namesrv.settings import NamesrvSettings
from support.services import serving
from support.waiting import until


@dataclass(slots=True)
class InProcessCluster:
    """The running services."""

    namesrv_urls: list[str]
    brokers: dict[str, ServiceApp]
    broker_urls: dict[str, str]
    servers: dict[str, Server]  # by URL
    name_servers: list[NameServer]
    store_dirs: dict[str, Path]  # of the brokers, by name

    async def stop_broker(self, name: str) -> None:
        """Stop a broker for good."""
        await self._stop(self.broker_urls[name])

    async def take_broker_away(self, name: str) -> None:
        """Stop a broker, until no name server knows it and its store is free."""
        await self.stop_broker(name)
        await until(lambda: not any(name in names(server) for server in self.name_servers))
        await until(lambda: is_free(self.store_dirs[name]))

    async def stop_name_servers(self) -> None:
        """Stop all name servers for good."""
        for url in self.namesrv_urls:
            await self._stop(url)

    async def _stop(self, url: str) -> None:
        self.servers[url].stop()
        await until(lambda: not self.servers[url].started or not self._listens(url))

    def _listens(self, url: str) -> bool:
        host, _, port = url.removeprefix("http://").rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0


def names(name_server: NameServer) -> set[str]:
    """Return the brokers that a name server knows."""
    return {group.broker_name for group in name_server.broker_list().brokers}


def is_free(store_dir: Path) -> bool:
    """Tell whether no broker has a store open."""
    try:
        lock_directory(store_dir).release()
    except StoreLockedError:
        return False
    return True


def small_broker(
    name: str,
    namesrv_urls: list[str],
    store_dir: Path,
    **settings: Any,  # noqa: ANN401  (BrokerSettings' fields, of their types)
) -> BrokerSettings:
    """Return the settings of a broker that takes little room, at a free port."""
    chosen: dict[str, Any] = {
        "name": name,
        "namesrv_urls": ";".join(namesrv_urls),
        "segment_bytes": 16 * 1024**2,
        "queue_file_entries": 4_096,
        "index_slots": 1_024,
        "index_entries": 4_096,
        "store_dir": store_dir,
        "port": 0,
    }
    return BrokerSettings(**{**chosen, **settings})


@asynccontextmanager
async def in_process_cluster(
    directory: Path,
    *,
    brokers: int = 2,
    namesrvs: int = 1,
    broker_clock: Clock | None = None,
    **settings: Any,  # noqa: ANN401  (BrokerSettings' fields, of their types)
) -> AsyncIterator[InProcessCluster]:
    """Yield a cluster whose name servers know all of its brokers."""
    letters = "abcdefgh"[:brokers]
    async with AsyncExitStack() as stack:
        urls: list[str] = []
        servers: dict[str, Server] = {}
        name_servers: list[NameServer] = []
        for number in range(namesrvs):
            its_settings = NamesrvSettings(
                kv_file=directory / f"kv-{number}.json",
                port=0,
                expected_brokers=";".join(f"broker-{letter}" for letter in letters),
                expected_services="",
            )
            app = create_namesrv_app(its_settings)
            server, (host, port) = await stack.enter_async_context(serving(app, its_settings))
            urls.append(f"http://{host}:{port}")
            servers[urls[-1]] = server
            name_servers.append(app.parts[NameServer])
        apps: dict[str, ServiceApp] = {}
        broker_urls: dict[str, str] = {}
        store_dirs: dict[str, Path] = {}
        for letter in letters:
            name = f"broker-{letter}"
            broker_settings = small_broker(name, urls, directory / name, **settings)
            broker = create_app(broker_settings, broker_clock)
            server, (host, port) = await stack.enter_async_context(serving(broker, broker_settings))
            apps[broker_settings.name] = broker
            store_dirs[broker_settings.name] = broker_settings.store_dir
            url = broker_urls[broker_settings.name] = f"http://{host}:{port}"
            servers[url] = server
        await until(lambda: all(len(list(n.table.brokers())) == brokers for n in name_servers))
        try:
            yield InProcessCluster(urls, apps, broker_urls, servers, name_servers, store_dirs)
        finally:
            for url in broker_urls.values():
                servers[url].stop()  # each takes a moment, and now the same one
