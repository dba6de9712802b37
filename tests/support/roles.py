"""A broker's roles, which the test begins and ends: one store, and the real parts of each role."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from eruca.services.http import ANONYMOUS
from eruca_broker.app import create_app
from eruca_broker.loops.registration import Registrant, Registration
from eruca_broker.opening import open_store
from eruca_broker.processors.budgets import ConsumeBudget, SendBudget
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_broker.wiring import Process, working
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import SystemClock
from support.stores import STORE_HOST

_BYTES_MAX = 256 * 1024**2


class RolesOfStore:
    """A broker without a door: between two roles it answers by the parts of the last one."""

    def __init__(self, process: Process, store: MessageStore) -> None:
        self.store = store
        self._process = process
        self._registration = Registration(
            Registrant("eruca", "broker-a", process.urls, "127.0.0.1:10911", 30, 30, 120),
            [],
            topics=list,
            version=lambda: 1,
            clock=process.clock,
            credentials=ANONYMOUS,
        )

    @property
    def app(self) -> ServiceApp:
        """The application that answers."""
        return self._process.app

    def role(self, *, is_master: bool) -> AbstractAsyncContextManager[None]:
        """Have a role for the block."""
        replication = Replication(self.store, self._process.clock)
        return working(
            self._process, self.store, replication, None, self._registration, is_master=is_master
        )


@asynccontextmanager
async def roles_of_store(
    directory: Path,
    **settings: Any,  # noqa: ANN401  (BrokerSettings' fields, of their types)
) -> AsyncIterator[RolesOfStore]:
    """Open the store in *directory* for roles that follow one another."""
    chosen: dict[str, Any] = {
        "namesrv_urls": "",
        "segment_bytes": 64 * 1024,
        "store_dir": directory,
        "port": 0,
    }
    broker, clock = BrokerSettings(**{**chosen, **settings}), SystemClock()
    store = await open_store(broker, STORE_HOST, clock)
    app = create_app(broker, clock)
    app.readiness.ready()
    budgets = SendBudget("send", _BYTES_MAX), ConsumeBudget("consume", _BYTES_MAX)
    try:
        process = Process(app, broker, clock, STORE_HOST, {"default": "http://host"}, *budgets)
        yield RolesOfStore(process, store)
    finally:
        await store.close()
