"""A step seen from the service: whom it tells what, whatever the worker's fate."""

from __future__ import annotations

import socket

import pytest

from eruca.contract.errors import UnavailableError
from eruca.contract.wire import PullStatus
from eruca_query.exports.workers.pool import RowsUnderWay
from eruca_query.exports.workers.steps import Forget, Order, Taken

pytestmark = pytest.mark.anyio


class Told:
    """A worker that only listens."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    def tell(self, order: Order, _lent: socket.socket | None) -> None:
        self.orders.append(order)


def made_rows(worker: Told) -> RowsUnderWay:
    rows = RowsUnderWay(7, worker.tell)
    rows.take(Taken(7, PullStatus.FOUND, 3, 0, 3))
    rows.make()
    return rows


async def test_rows_whose_worker_died_are_asked_of_no_other() -> None:
    worker = Told()
    rows = made_rows(worker)
    rows.fail(UnavailableError("it died"))
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(UnavailableError, match="it died"):
        await rows.send(ours)
    rows.forget()

    assert worker.orders == []


async def test_rows_that_were_sent_are_not_forgotten() -> None:
    worker = Told()
    rows = made_rows(worker)
    rows.end(100)
    rows.forget()

    assert worker.orders == []


async def test_rows_that_nobody_wants_are_forgotten_once() -> None:
    worker = Told()
    rows = made_rows(worker)
    rows.forget()
    rows.forget()

    assert worker.orders == [Forget(7)]
