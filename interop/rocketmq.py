"""A RocketMQ cluster of one name server, one broker on a given store, and a client session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from interop.driver import Driver
from interop.processes import LOOPBACK, Child, free_ports, host_and_port
from interop.toolchain import SMALL_JVM, Toolchain

BROKER: Final = "broker-a"
CLUSTER: Final = "eruca"
NEIGHBOURS: Final = (-2, 1)  # offsets of a broker's other ports: for queries, for replicas


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a store's files: small, so that a few thousand messages fill several of each."""

    segment: int = 1024 * 1024  # bytes
    queue_file_entries: int = 100
    index_slots: int = 500
    index_entries: int = 3000


SIZES: Final = Sizes()


class RocketMq:
    """RocketMQ on the store in *store*, reachable at *port*; its logs go to *home*.

    With *property_checksums* it ends each record with a checksum of all that precedes it. With
    *master*, the address at which one serves slaves, it is its slave. *settings* of the broker
    replace those made here; *heap* and *jvm* are the servers' memory and options of Java.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        store: Path,
        home: Path,
        *,
        host: str,
        port: int,
        property_checksums: bool = False,
        master: str | None = None,
        settings: Mapping[str, object] | None = None,
        heap: str = "512m",
        jvm: Sequence[str] = SMALL_JVM,
    ) -> None:
        self._host = host
        self._property_checksums = property_checksums
        self._toolchain = toolchain
        self._store = store
        self._home = home
        self._port = port
        self._master = master
        self._settings = settings or {}
        self._heap = heap
        self._jvm = jvm
        self._children = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            name_server_port = free_ports(LOOPBACK)
            self.name_server = f"{LOOPBACK}:{name_server_port}"
            self.name_server_process = starting.enter_context(
                self._start(
                    "namesrv.NamesrvStartup",
                    {"listenPort": name_server_port, "bindAddress": LOOPBACK},
                )
            )
            self.broker = starting.enter_context(
                self._start("broker.BrokerStartup", self._broker_settings())
            )
            self.client = starting.enter_context(
                Driver(
                    self._toolchain,
                    self.name_server,
                    self._home,
                    broker=host_and_port(self._host, self._port),
                )
            )
            self._children = starting.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._children.close()

    def _start(self, program: str, settings: dict[str, object]) -> Child:
        name = program.partition(".")[0]
        self._home.mkdir(parents=True, exist_ok=True)
        configuration = self._home / f"{name}.properties"
        configuration.write_text("".join(f"{key}={settings[key]}\n" for key in settings))
        command = self._toolchain.command(
            f"org.apache.rocketmq.{program}",
            "-c",
            str(configuration),
            home=self._home,
            heap=self._heap,
            options=self._jvm,
        )
        child = Child(f"RocketMQ {name}", command, self._home / f"{name}.log")
        return child.started(lambda: "boot success" in child.log.read_text(errors="replace"))

    def _broker_settings(self) -> dict[str, object]:
        role: dict[str, object] = {"brokerId": 0}
        if self._master is not None:
            role = {"brokerId": 1, "brokerRole": "SLAVE", "haMasterAddress": self._master}
        return {
            **role,
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "brokerIP1": self._host,
            "bindAddress": self._host,
            "listenPort": self._port,
            "haListenPort": self._port + 1,
            "namesrvAddr": self.name_server,
            "storePathRootDir": self._store,
            "storePathCommitLog": self._store / "commitlog",
            "mappedFileSizeCommitLog": SIZES.segment,
            "mappedFileSizeConsumeQueue": SIZES.queue_file_entries * 20,
            "maxHashSlotNum": SIZES.index_slots,
            "maxIndexNum": SIZES.index_entries,
            "messageIndexSafe": "true",  # after a kill, recover the key index as well as the queues
            "autoCreateTopicEnable": "true",
            "enablePropertyFilter": "true",
            "recallMessageEnable": "true",
            "flushDiskType": "ASYNC_FLUSH",
            "enabledAppendPropCRC": str(self._property_checksums).lower(),
            # It then rejects every record of the log that does not match its checksum.
            "forceVerifyPropCRC": str(self._property_checksums).lower(),
            **self._settings,
        }
