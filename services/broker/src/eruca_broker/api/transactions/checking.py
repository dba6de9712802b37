"""The requests of transaction checkers: get a check granted, and expire a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, TypeVar

import msgspec
from fastapi import Body, Path, Response

from eruca.contract.access import Right
from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    TransactionNotFoundError,
)
from eruca.contract.transactions import (
    CheckGrant,
    CheckRequest,
    DecisionReceipt,
    ExpireRequest,
    TransactionId,
)
from eruca.contract.wire import JSON_MEDIA_TYPE
from eruca_access.needs import to
from eruca_broker.api.examples import transactions as examples
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/transactions", tags=["transactions"])
Id = Annotated[TransactionId, Path()]
_T = TypeVar("_T")
_ENCODER: Final = msgspec.json.Encoder()


@router.post(
    "/{transaction_id}:check",
    operation_id="checkTransaction",
    needs=to(Right.ADMINISTER, log=True, is_routine=True),
    summary="Request a check",
    responses=answer(examples.CHECK_GRANT)
    | problems(TransactionNotFoundError, AlreadyDecidedError, CheckOutOfTurnError, *WRITE_REFUSALS),
)
async def check_transaction(
    transaction_id: Id,
    request: Annotated[CheckRequest, Body(examples=[examples.CHECK])],
    transactions: Part[Transactions],
) -> CheckGrant:
    """Record that this checker asks the producer group now; for transaction checkers.

    `number` is the number of earlier checks plus one. Of two checkers that request the same number
    only the first gets it. The other gets 409 `check-out-of-turn`, so no check is sent twice. 409
    `already-decided` means that no check is needed any more.
    """
    return await _told(partial(transactions.check, transaction_id, request))


@router.post(
    "/{transaction_id}:expire",
    operation_id="expireTransaction",
    needs=to(Right.ADMINISTER, log=True, is_routine=True),
    summary="Expire a transaction",
    status_code=HTTPStatus.OK,
    response_class=Response,
    responses=answer(
        examples.PARKED,
        model=DecisionReceipt,
        description="Parked; `repeated` if it was parked before.",
    )
    | problems(TransactionNotFoundError, AlreadyDecidedError, CheckOutOfTurnError, *WRITE_REFUSALS),
)
async def expire_transaction(
    transaction_id: Id,
    request: Annotated[ExpireRequest, Body(examples=[examples.EXPIRE])],
    transactions: Part[Transactions],
) -> Response:
    """Roll back a transaction that nobody decided, and park it; for transaction checkers.

    Its half message is stored in `TRANS_CHECK_MAX_TIME_TOPIC`, in one write with the decision. An
    operator lists it with `state=parked`, and commits or discards it with `:commit` and
    `:rollback`, giving a reason. The answer is 409 if the number of its checks is not `checks`.
    """
    receipt = await _told(partial(transactions.expire, transaction_id, request))
    return Response(_ENCODER.encode(receipt), media_type=JSON_MEDIA_TYPE)


async def _told(begin: Callable[[Callable[[_T | Exception], None]], None]) -> _T:
    """Return the result that *begin* passes to its callback; raise it if it is an exception."""
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

    def settle(outcome: _T | Exception) -> None:
        if future.done():  # the waiting client has left
            return
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    begin(settle)
    return await future
