"""The brokers whose logs are followed: forget one for good."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Path

from eruca import AsyncClient
from eruca.contract.access import Right
from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    DatabaseUnavailableError,
    UnavailableError,
)
from eruca.contract.fields import BrokerName
from eruca_access.needs import to
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_postgres.database import Database
from eruca_postgres.forgetting import forget

router = Router(prefix="/v1/brokers", tags=["status"])


@router.delete(
    "/{broker_name}",
    operation_id="forgetBroker",
    needs=to(Right.ADMINISTER, cluster=True),
    summary="Forget a broker that was removed for good",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        BrokerNotFoundError, ConflictError, UnavailableError, DatabaseUnavailableError
    ),
)
async def forget_broker(
    broker_name: Annotated[BrokerName, Path(examples=["broker-b"])],
    database: Part[Database],
    client: Part[AsyncClient],
) -> None:
    """Delete the broker's transactions, pending ones too, and their checks.

    Shut the broker down first: while a name server knows it, the answer is 409. If a broker of this
    name returns, its log is followed from its beginning.
    """
    await forget(database, client, broker_name)
