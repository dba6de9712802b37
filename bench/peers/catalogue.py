"""The systems that Eruca is compared with: where each comes from, and which rows it has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.peers.servers import Start, kafka, nats, postgresql, rabbitmq, redis, rocketmq
from interop.toolchain import CannotRunError, Toolchain, cache_directory, fetched_libraries, prepare

SENDS: Final = ("one", "many", "bulk")
READS: Final = ("handler", "handlers32", "pulls")
TRANSACTIONS: Final = (
    "transactions",
    "transactions-many",
    "transactions-unawaited",
    "transactions-unawaited-many",
)
ROWS: Final = {
    "one": "one awaited send in flight",
    "many": "64 sends in flight",
    "bulk": "batches of 1 000",
    "handler": "a handler a message",
    "handlers32": "handlers of 32",
    "pulls": "a backlog by polls",
    "transactions": "transactions, one in flight",
    "transactions-many": "transactions, 64 in flight",
    "transactions-unawaited": "the same, one in flight, decisions not awaited",
    "transactions-unawaited-many": "the same, 64 in flight, decisions not awaited",
    "key": "look-ups by key",
    "delayed": "64 delayed sends in flight",
}
FLUSHED: Final = (*SENDS, *TRANSACTIONS)
"""Rows that are also measured with a flush to the disk before each acknowledgement."""

_ROCKETMQ_VERSION: Final = "5.5.0"
_NATS_VERSION: Final = "v2.12.1"
_BUILD_SECONDS_MAX: Final = 600
_RABBITMQ: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # that in PATH changes the user


@dataclass(frozen=True, slots=True)
class Peer:
    """A system with one of its clients.

    Attributes:
        what: Names both.
        provide: Fetches what is missing, and returns how to start its servers.
        rows: The workloads that it has.
        warm_up_seconds: For all rows together, before anything is measured.
    """

    what: str
    provide: Callable[[], Start]
    rows: tuple[str, ...] = (*SENDS, *READS)
    warm_up_seconds: float = 2.0


def _rocketmq() -> Start:
    return partial(rocketmq, prepare(_ROCKETMQ_VERSION))


def _kafka(client: str) -> Start:
    libraries = fetched_libraries(Path(__file__).with_name("kafka.xml"), "Apache Kafka")
    return partial(
        kafka, Toolchain(_program("java", "default-jdk-headless"), f"{libraries}/*"), client
    )


def _redis() -> Start:
    return partial(redis, _program("redis-server", "redis-server"))


def _nats() -> Start:
    go = _program("go", "golang")
    target = cache_directory().parent / "peers" / f"nats-{_NATS_VERSION}"
    program = target / "nats-server"
    if not program.exists():
        print(f"building NATS {_NATS_VERSION} with Go (once)", flush=True)
        module = f"github.com/nats-io/nats-server/v2@{_NATS_VERSION}"
        target.mkdir(parents=True, exist_ok=True)
        built = subprocess.run(
            [go, "install", module],
            env={**os.environ, "GOBIN": str(target)},
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS_MAX,
            check=False,
        )
        if built.returncode:
            raise CannotRunError(f"Go could not build NATS: {built.stderr[-500:]}")
    return partial(nats, program)


def _rabbitmq() -> Start:
    epmd = _program("epmd", "rabbitmq-server")
    if not _RABBITMQ.exists():
        raise CannotRunError(f"{_RABBITMQ} does not exist: `apt-get install rabbitmq-server`")
    return partial(rabbitmq, _RABBITMQ, epmd)


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CannotRunError(f"`{name}` is not installed: `apt-get install {package}`")
    return found


PEERS: Final[dict[str, Peer]] = {
    "rocketmq": Peer(
        f"RocketMQ {_ROCKETMQ_VERSION}, its Java client",
        _rocketmq,
        (*SENDS, *READS, *TRANSACTIONS, "key", "delayed"),
        warm_up_seconds=16.0,  # its JIT compiles for that long
    ),
    "kafka": Peer("Kafka, confluent-kafka", lambda: _kafka("kafka_client"), warm_up_seconds=6.0),
    "aiokafka": Peer("Kafka, aiokafka", lambda: _kafka("aiokafka_client"), warm_up_seconds=6.0),
    "redis": Peer("Redis streams, redis-py", _redis),
    "nats": Peer(f"NATS JetStream {_NATS_VERSION}, nats-py", _nats),
    "rabbitmq": Peer("RabbitMQ, aio-pika", _rabbitmq, (*SENDS, "handler", "handlers32")),
    "postgresql": Peer("PostgreSQL as a table, psycopg", lambda: postgresql),
}
