"""The brokers whose logs are followed: forgetting one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path

from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    DatabaseUnavailableError,
    UnavailableError,
)
from eruca.contract.models import BrokerName
from eruca_chassis.documents.problems import problems
from eruca_postgres.forgetting import forget
from eruca_txn_checker.api.dependencies import TheChecker

router = APIRouter(prefix="/v1/brokers", tags=["status"])


@router.delete(
    "/{broker_name}",
    operation_id="forgetBroker",
    summary="Forget a broker that was taken away for good",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        BrokerNotFoundError, ConflictError, UnavailableError, DatabaseUnavailableError
    ),
)
async def forget_broker(
    broker_name: Annotated[BrokerName, Path(examples=["broker-b"])], checker: TheChecker
) -> None:
    """Drop its transactions, also those that nobody has decided, and their checks.

    Stop it first: as long as a name server knows it, that is 409. One that comes back under this
    name is followed anew, from the beginning of its log.
    """
    await forget(checker.instance.database, checker.instance.client, broker_name)
