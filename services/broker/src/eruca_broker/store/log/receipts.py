"""Receipts: the result of an append for its caller, and the futures that wait for it."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, TypeVar

from eruca.contract.errors import ErucaError
from eruca_broker.store.log.appended import Appended, Done, GroupDone

_Told = TypeVar("_Told")


class Receipt(NamedTuple):
    """The place of a batch, issued once it is as durable as promised."""

    queue_offset: int  # of the first message
    log_offset: int  # of the first record
    store_timestamp: int  # ms since the epoch
    durability: str  # "flushed" or "written"


def receipt_to(future: asyncio.Future[Receipt], durability: str) -> Done:
    """Return a callback that resolves *future* once a batch is settled."""

    def done(outcome: Appended | ErucaError) -> None:
        if isinstance(outcome, ErucaError):
            _refuse(future, outcome)
        else:
            _resolve(future, _receipt_of(outcome, durability))

    return done


def receipts_to(future: asyncio.Future[list[Receipt]], durability: str) -> GroupDone:
    """Return a callback that resolves *future* once a group of batches is settled."""

    def done(outcome: list[Appended] | ErucaError) -> None:
        if isinstance(outcome, ErucaError):
            _refuse(future, outcome)
        else:
            _resolve(future, [_receipt_of(appended, durability) for appended in outcome])

    return done


def _receipt_of(appended: Appended, durability: str) -> Receipt:
    return Receipt(appended.queue_offset, appended.log_offset, appended.store_timestamp, durability)


def _resolve(future: asyncio.Future[_Told], told: _Told) -> None:
    if not future.done():  # else its waiter was cancelled
        future.set_result(told)


def _refuse(future: asyncio.Future[_Told], error: ErucaError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # mark it as retrieved: there may be no waiter
