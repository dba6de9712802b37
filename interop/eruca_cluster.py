"""An Eruca cluster of one name server and one broker on a given store."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import httpx

from interop.eruca_client import ErucaClient
from interop.processes import Child, free_ports, host_and_port
from interop.rocketmq import BROKER, CLUSTER, SIZES


class Eruca:
    """Eruca on the store in *store*, with its broker at *port*; its logs go to *home*."""

    def __init__(self, store: Path, home: Path, *, host: str, port: int) -> None:
        self.url = f"http://{host_and_port(host, port)}"
        self._store = store
        self._home = home
        self._host = host
        self._port = port
        self._children = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            port = free_ports(self._host)
            self.name_server = f"http://{host_and_port(self._host, port)}"
            settings = {
                "HOST": self._host,
                "PORT": port,
                "KV_FILE": self._home / "kv.json",
                "EXPECTED_BROKERS": BROKER,
            }
            starting.enter_context(start_service(self._home, "namesrv", self.name_server, settings))
            self.broker = starting.enter_context(
                start_service(self._home, "broker", self.url, self._broker_settings())
            )
            self.broker.wait_until(self._is_registered)
            self.client = starting.enter_context(
                ErucaClient(self.name_server, self.url, self.checker)
            )
            self._children = starting.pop_all()
        return self

    def wait_for_config(self) -> None:
        """Wait until every topic is in the file from which RocketMQ reads them.

        The file is written a second after a change. A kill before that loses the change, by design.
        """
        self.broker.wait_until(self._are_topics_saved)

    def wait_for_delays(self) -> None:
        """Wait until RocketMQ's file records the delivery of a message with a delay level.

        The file is written at each checkpoint. A kill before that loses the record, by design.
        """
        self.broker.wait_until(self._are_delays_saved)

    @contextmanager
    def checker(self) -> Iterator[None]:
        """Run a transaction checker that checks without delay."""
        port = free_ports(self._host)
        url = f"http://{host_and_port(self._host, port)}"
        settings = {
            "HOST": self._host,
            "PORT": port,
            "NAMESRV_URLS": self.name_server,
            "POSTGRES_DIR": self._home / "postgres",
            "TIMEOUT_SECONDS": 0,
            "INTERVAL_SECONDS": 1,
        }
        with start_service(self._home, "txn_checker", url, settings) as checker:
            yield
            checker.stop()  # also stops the PostgreSQL that it has started

    def __exit__(self, *failure: object) -> None:
        self._children.close()

    def _is_registered(self) -> bool:
        return bool(httpx.get(f"{self.name_server}/v1/brokers").json().get("brokers"))

    def _are_topics_saved(self) -> bool:
        file = self._store / "config" / "topics.json"
        saved = json.loads(file.read_bytes())["topicConfigTable"] if file.exists() else {}
        listed = httpx.get(f"{self.url}/v1/topics", params={"limit": 1_000}).json()["topics"]
        return all(topic["topic"] in saved for topic in listed)

    def _are_delays_saved(self) -> bool:
        file = self._store / "config" / "delayOffset.json"
        saved = json.loads(file.read_bytes())["offsetTable"] if file.exists() else {}
        return bool(saved.get("1"))

    def _broker_settings(self) -> dict[str, object]:
        return {
            **broker_settings(self._store, self._host, self._port),
            "NAMESRV_URLS": self.name_server,
        }


def broker_settings(store: Path, host: str, port: int) -> dict[str, object]:
    """Return the settings of a broker on *store*, of the bench's name and sizes."""
    return {
        "NAME": BROKER,
        "CLUSTER": CLUSTER,
        "HOST": host,
        "PORT": port,
        "STORE_DIR": store,
        "SEGMENT_BYTES": SIZES.segment,
        "QUEUE_FILE_ENTRIES": SIZES.queue_file_entries,
        "INDEX_SLOTS": SIZES.index_slots,
        "INDEX_ENTRIES": SIZES.index_entries,
    }


def start_service(
    home: Path,
    service: str,
    url: str,
    settings: Mapping[str, object],
    *,
    log: str = "",
    ready: Callable[[str], bool] | None = None,
) -> Child:
    """Start a service, and return once it is ready.

    Args:
        home: Directory of its log, which is named *log*, or else as the service.
        service: Its name.
        url: Its URL.
        settings: Its settings.
        log: Name of its log.
        ready: Tells from its URL that it is ready; default: by ``/readyz``.
    """
    prefix = f"ERUCA_{service.upper()}_"
    child = Child(
        f"Eruca {log or service}",
        [sys.executable, "-m", f"eruca_{service}"],
        home / f"{log or service}.log",
        environment={prefix + name: str(value) for name, value in settings.items()},
    )
    return child.started(lambda: (ready or is_ready)(url))


def is_ready(url: str) -> bool:
    """Return whether a service is ready."""
    return is_answered(f"{url}/readyz")


def is_answered(url: str) -> bool:
    """Return whether a GET of *url* succeeds."""
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False
