"""The servers of each system: on loopback only, in a given directory, with their defaults.

What differs from the defaults is here: ports and directories, the flush before an acknowledgement,
and what a single node needs.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from bench.peers.client_process import ROOT
from eruca_postgres.embedded import EmbeddedServer
from interop.eruca_cluster import is_answered, is_ready, start_service
from interop.processes import LOOPBACK, Child, ChildError, free_ports
from interop.rocketmq import NEIGHBOURS, RocketMq
from interop.toolchain import Toolchain

_CLIENTS_PYTHON: Final = ROOT / ".venv" / "peers" / "bin" / "python"
_TOPICS: Final = ("sends", "backlog")
_QUEUES: Final = 4
_GIB: Final = 1024**3
# As kafka-server-start.sh sets them.
_KAFKA_HEAP: Final = "1g"
_KAFKA_JVM: Final = (
    "-Xms1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
)
# As runserver.sh and runbroker.sh set them, with a heap for this size of machine.
_ROCKETMQ_HEAP: Final = "2g"
_ROCKETMQ_JVM: Final = ("-Xms2g", "-XX:+UseG1GC")


class Servers(NamedTuple):
    """The running servers of a system."""

    client: list[str]  # the command of its client
    process_ids: list[int]


Mode: TypeAlias = Literal["async", "fsync"]
"""The moment of an acknowledgement: before, or only after the disk has the message."""

Start: TypeAlias = Callable[[Path, Mode], AbstractContextManager[Servers]]
"""Starts the servers with their data in a directory."""


@contextmanager
def eruca(home: Path, mode: Mode) -> Iterator[Servers]:
    """Run a name server and a broker."""
    name_server, broker = (free_ports(LOOPBACK) for _ in range(2))
    url = f"http://{LOOPBACK}:{name_server}"
    settings = {"HOST": LOOPBACK, "PORT": name_server, "EXPECTED_BROKERS": "broker-a"}
    with start_service(
        home, "namesrv", url, {**settings, "KV_FILE": home / "kv.json"}
    ) as its_name_server:
        settings = {
            "NAME": "broker-a",
            "HOST": LOOPBACK,
            "PORT": broker,
            "STORE_DIR": home / "store",
            "NAMESRV_URLS": url,
            "FLUSH_MODE": "sync" if mode == "fsync" else "async",
            "WARM_SEGMENTS": "true",
        }
        with start_service(
            home,
            "broker",
            f"http://{LOOPBACK}:{broker}",
            settings,
            # A broker is ready although its registration failed.
            ready=lambda its_url: is_ready(its_url) and is_answered(f"{url}/v1/brokers"),
        ) as its_broker:
            yield Servers(
                [sys.executable, "-m", "bench.peers.clients.eruca_client", url],
                [its_name_server.process_id, its_broker.process_id],
            )


@contextmanager
def rocketmq(toolchain: Toolchain, home: Path, mode: Mode) -> Iterator[Servers]:
    """Run RocketMQ's name server and broker, without the port for replicas."""
    service = home / "class-path" / "META-INF" / "service"
    service.mkdir(parents=True)
    (service / "org.apache.rocketmq.store.ha.HAService").write_text("eruca.interop.NoReplicas\n")
    toolchain = replace(
        toolchain, class_path=f"{home / 'class-path'}{os.pathsep}{toolchain.class_path}"
    )
    with RocketMq(
        toolchain,
        home / "store",
        home,
        host=LOOPBACK,
        port=free_ports(LOOPBACK, *NEIGHBOURS),
        settings={
            "flushDiskType": "SYNC_FLUSH" if mode == "fsync" else "ASYNC_FLUSH",
            "mappedFileSizeCommitLog": _GIB,
            "mappedFileSizeConsumeQueue": 300_000 * 20,
            "maxHashSlotNum": 5_000_000,
            "maxIndexNum": 20_000_000,
            "messageIndexSafe": "false",
        },
        heap=_ROCKETMQ_HEAP,
        jvm=_ROCKETMQ_JVM,
    ) as cluster:
        for topic in _TOPICS:
            cluster.client.create_topic(topic, _QUEUES)
        yield Servers(
            toolchain.command(
                "eruca.interop.Workload",
                cluster.name_server,
                home=home,
                heap=_ROCKETMQ_HEAP,
                options=_ROCKETMQ_JVM,
            ),
            [cluster.name_server_process.process_id, cluster.broker.process_id],
        )


@contextmanager
def kafka(toolchain: Toolchain, client: str, home: Path, mode: Mode) -> Iterator[Servers]:
    """Run one Kafka node, which is broker and controller; its topics say whether they flush."""
    port, controller = (free_ports(LOOPBACK) for _ in range(2))
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": home / "logs",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    file = home / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    format_it = ["format", "--cluster-id", cluster_id, "--config", str(file)]
    formatting = Child(
        "Kafka's storage tool",
        toolchain.command("kafka.tools.StorageTool", *format_it, home=home),
        home / "format.log",
    )
    with formatting:
        if formatting.wait():
            raise ChildError(f"Kafka's storage tool failed: {formatting.tail}")
    command = toolchain.command(
        "kafka.Kafka", str(file), home=home, heap=_KAFKA_HEAP, options=_KAFKA_JVM
    )
    child = Child("Kafka", command, home / "kafka.log")
    with child.started(lambda: accepts(port)):
        yield _python_client(client, f"{LOOPBACK}:{port}", [child], mode)


@contextmanager
def redis(program: str, home: Path, mode: Mode) -> Iterator[Servers]:
    """Run Redis with an append-only file."""
    port = free_ports(LOOPBACK)
    settings = {
        "port": port,
        "bind": LOOPBACK,
        "dir": home,
        "appendonly": "yes",
        "appendfsync": "always" if mode == "fsync" else "everysec",
        "save": '""',
        "auto-aof-rewrite-percentage": 0,
    }
    file = home / "redis.conf"
    file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    child = Child("Redis", [program, str(file)], home / "redis.log")
    with child.started(lambda: accepts(port)):
        yield _python_client("redis_client", str(port), [child], mode)


@contextmanager
def nats(program: Path, home: Path, mode: Mode) -> Iterator[Servers]:
    """Run NATS with JetStream."""
    port = free_ports(LOOPBACK)
    settings = {
        "listen": f"{LOOPBACK}:{port}",
        "jetstream": {
            "store_dir": str(home / "jetstream"),
            "sync_interval": "always" if mode == "fsync" else "2m",
        },
    }
    file = home / "nats.conf"
    file.write_text(json.dumps(settings))
    child = Child("NATS", [str(program), "--config", str(file)], home / "nats.log")
    with child.started(lambda: "Server is ready" in child.log.read_text(errors="replace")):
        url = f"nats://{LOOPBACK}:{port}"
        yield _python_client("nats_client", url, [child], mode)


@contextmanager
def rabbitmq(program: Path, epmd: str, home: Path, mode: Mode) -> Iterator[Servers]:
    """Run RabbitMQ, and the port mapper of Erlang, which it would start as a daemon."""
    port, distribution, mapper = (free_ports(LOOPBACK) for _ in range(3))
    configuration, plugins = home / "rabbitmq.conf", home / "enabled_plugins"
    configuration.write_text(
        f"listeners.tcp.1 = {LOOPBACK}:{port}\n"
        "vm_memory_high_watermark.absolute = 4GB\n"
        "disk_free_limit.absolute = 50MB\n"
    )
    plugins.write_text("[].\n")
    environment = {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "RABBITMQ_NODENAME": "peers@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(configuration),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
        "RABBITMQ_LOG_BASE": str(home),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    mapping = Child("epmd", [epmd, "-port", str(mapper), "-address", LOOPBACK], home / "epmd.log")
    with mapping.started(lambda: accepts(mapper)):
        child = Child("RabbitMQ", [str(program)], home / "rabbitmq.log", environment=environment)
        with child.started(lambda: "Server startup complete" in child.log.read_text()):
            url = f"amqp://guest:guest@{LOOPBACK}:{port}/"
            yield _python_client("rabbitmq_client", url, [child], mode)


@contextmanager
def postgresql(home: Path, mode: Mode) -> Iterator[Servers]:
    """Run the PostgreSQL of a wheel, on a Unix socket; the client chooses the kind of commit."""
    server = EmbeddedServer(home / "data")
    server.start()
    try:
        process_id = int((home / "data" / "postmaster.pid").read_text().split()[0])
        client = "postgresql_client"
        command = _client_command(client, server.url, mode)
        yield Servers(command, [process_id])
    finally:
        server.stop()


def accepts(port: int) -> bool:
    """Return whether something listens at *port*."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


def _python_client(module: str, address: str, children: list[Child], mode: Mode) -> Servers:
    return Servers(
        _client_command(module, address, mode),
        [child.process_id for child in children],
    )


def _client_command(module: str, address: str, mode: Mode) -> list[str]:
    return [str(_CLIENTS_PYTHON), "-m", f"bench.peers.clients.{module}", address, mode]
