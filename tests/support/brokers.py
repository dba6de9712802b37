"""Brokers for tests: the real application over a real store, in process and without sockets."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from eruca.contract.records import (
    Host,
    Record,
    RecordLayout,
    SysFlag,
    body_crc,
    decode_record,
    encode_unstamped,
    layout_of,
)
from eruca.contract.wire import BATCH_MAGIC, BATCH_PREAMBLE, RECORDS_MEDIA_TYPE
from eruca_broker.app import create_app
from eruca_broker.processors.budgets import ConsumeBudget, SendBudget
from eruca_broker.processors.dead_letters import DeadLetters
from eruca_broker.processors.deliveries.deliveries import Deliveries
from eruca_broker.processors.groups.members import Members
from eruca_broker.processors.groups.work import GroupWork
from eruca_broker.processors.held_requests import HeldRequests
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.timers import Timers
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.processors.transactions.views import TransactionViews
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.routes.parts import Parts

JSON = {"content-type": "application/json"}
RECORDS = {"content-type": RECORDS_MEDIA_TYPE}


@asynccontextmanager
async def open_broker(
    directory: Path,
    clock: Clock | None = None,
    **settings: Any,  # noqa: ANN401  (BrokerSettings' fields, of their types)
) -> AsyncIterator[ServiceApp]:
    """Open a broker over the store in *directory*; it tells no name server unless told to."""
    chosen: dict[str, Any] = {
        "namesrv_urls": "",
        "segment_bytes": 16 * 1024**2,
        "store_dir": directory,
        "port": 0,
    }
    app = create_app(BrokerSettings(**{**chosen, **settings}), clock)
    async with app.router.lifespan_context(app):
        yield app


def client_of(app: ServiceApp) -> httpx.AsyncClient:
    """Return a client that speaks to *app* directly; paths are below ``/v1``."""
    transport = httpx.ASGITransport(app, client=("10.1.2.3", 4567))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost/v1")


class BrokerParts:
    """The parts of a running broker that tests look at."""

    def __init__(self, parts: Parts) -> None:
        self.store = parts[MessageStore]
        self.held = parts[HeldRequests]
        self.timers = parts[Timers]
        self.members = parts[Members]
        self.group_work = parts[GroupWork]
        self.deliveries = parts[Deliveries]
        self.dead_letters = parts[DeadLetters]
        self.scheduled = parts[Scheduled]
        self.transaction_views = parts[TransactionViews]
        self.transaction_carrier = parts[TransactionCarrier]
        self.in_flight = parts[SendBudget]
        self.consume_in_flight = parts[ConsumeBudget]


def broker_of(app: ServiceApp) -> BrokerParts:
    """Return the parts of the broker that *app* is."""
    return BrokerParts(app.parts)


def rot(app: ServiceApp, body: bytes) -> None:
    """Change one bit of *body* where it lies in the log for the last time, as a disk may."""
    _overwrite(app, body, 0, bytes((body[0] ^ 1,)))


def rot_beyond_reading(app: ServiceApp, body: bytes) -> None:
    """Like :func:`rot`, so that the record's parts cannot be distinguished any more."""
    _overwrite(app, body, -4, b"\x55")  # the highest byte of the body's size


def rot_head(app: ServiceApp, body: bytes) -> None:
    """Like :func:`rot`, so that nothing tells any more that there is a record."""
    _overwrite(app, body, RecordLayout.LOG_OFFSET - layout_of(0).body, b"\x55")


def rot_queue_offset(app: ServiceApp, body: bytes, place: int) -> None:
    """Like :func:`rot`, so that the record tells another place in its queue."""
    _overwrite(app, body, RecordLayout.QUEUE_OFFSET - layout_of(0).body, place.to_bytes(8))


def _overwrite(app: ServiceApp, body: bytes, distance: int, data: bytes) -> None:
    for path in sorted((broker_of(app).store.directory / "commitlog").iterdir(), reverse=True):
        if (position := path.read_bytes().rfind(body)) >= 0:
            with path.open("r+b") as file:
                file.seek(position + distance)
                file.write(data)
            return
    raise AssertionError(f"{body!r} is not in the log")


def rotten_count(app: ServiceApp) -> int:
    """Return how many records of the log have a body that does not match its CRC."""
    store = broker_of(app).store
    offset, count = store.log_min_offset, 0
    while offset < store.log_max_offset:
        read = store.log.read(offset, 1)
        if read.records:
            found = decode_record(read.records, check_crc=False)
            count += body_crc(found.body) != int.from_bytes(read.records[8:12])
        offset = read.next_offset
    return count


def record(topic: str, body: bytes = b"body", **fields: Any) -> bytes:  # noqa: ANN401
    """Return a record as a producer lays it out for a broker with an IPv4 store host.

    *fields* are those of ``Record``, whose types they have.
    """
    return encode_unstamped(Record(topic=topic, body=body, **fields))


def batch(
    records: Sequence[bytes],
    *,
    magic: bytes = BATCH_MAGIC,
    count: int | None = None,
    size: int | None = None,
    reserved: int = 0,
    sizes: Sequence[int] | None = None,
    tail: bytes = b"",
) -> bytes:
    """Return a batch's body, each part of its preamble true unless given."""
    column = list(map(len, records)) if sizes is None else sizes
    head = BATCH_PREAMBLE.pack(
        magic,
        len(records) if count is None else count,
        sum(map(len, records)) if size is None else size,
        reserved,
    )
    return b"".join((head, struct.pack(f">{len(column)}I", *column), *records, tail))


def with_field(encoded: bytes, offset: int, value: bytes) -> bytes:
    """Return *encoded* with the bytes at *offset* replaced."""
    return encoded[:offset] + value + encoded[offset + len(value) :]


IPV6_STORE_HOST = Host(bytes(15) + b"\1", 10_911)
IPV6_BORN_FLAG = int(SysFlag.BORN_HOST_V6)
