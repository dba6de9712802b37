"""Status: who this service is, how far it has read; reading logs anew, and forgetting one."""

from __future__ import annotations

from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Body, Path

from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    DatabaseUnavailableError,
    UnavailableError,
)
from eruca.contract.fields import BrokerName
from eruca.contract.queries import QueryStatus, RebuildBegun, RebuildRequest
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_postgres.forgetting import forget
from eruca_query.api import examples
from eruca_query.api.dependencies import TheService
from eruca_query.projection.following import followed_logs
from eruca_query.projection.forgotten import drop_broker, known_brokers
from eruca_query.projection.rebuilding import request_rebuild

router = APIRouter(prefix="/v1", tags=["status"])


@router.get(
    "/status",
    operation_id="getStatus",
    summary="Who the service is and how far it has read",
    responses=answer(examples.STATUS) | problems(DatabaseUnavailableError),
)
async def get_status(service: TheService) -> QueryStatus:
    """Return this instance's own state, and how far all brokers' logs have been read."""
    async with service.instance.database.transaction() as connection:
        followed = await followed_logs(connection)
    return QueryStatus(
        version=version("eruca-query"),
        name=service.instance.name,
        started_at=service.instance.started_at,
        brokers=sorted(service.shares.work),
        faults=service.shares.faults(),
        followed=followed,
    )


@router.post(
    "/projection:rebuild",
    operation_id="rebuildProjection",
    summary="Make the read model anew",
    status_code=HTTPStatus.ACCEPTED,
    responses=answer(examples.REBUILD_BEGUN, HTTPStatus.ACCEPTED)
    | problems(BrokerNotFoundError, DatabaseUnavailableError),
)
async def rebuild_projection(
    service: TheService,
    request: Annotated[RebuildRequest | None, Body(examples=[{"brokers": None}])] = None,
) -> RebuildBegun:
    """Read the logs anew from where they begin; what is there answers until that has come as far.

    The status tells how far it is. What the logs do not hold any more stays as it is.
    """
    wanted = None if request is None else request.brokers
    return RebuildBegun(brokers=await request_rebuild(service.instance.database, wanted))


@router.delete(
    "/brokers/{broker_name}",
    operation_id="forgetBroker",
    summary="Forget a broker that was taken away for good",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(
        BrokerNotFoundError, ConflictError, UnavailableError, DatabaseUnavailableError
    ),
)
async def forget_broker(
    broker_name: Annotated[BrokerName, Path(examples=["broker-b"])], service: TheService
) -> None:
    """Drop all that was read of its log: no answer lacks anything of it from then on.

    Stop it first: as long as a name server knows it, that is 409. One that comes back under this
    name is followed anew, from the beginning of its log.
    """
    await forget(
        service.instance.database,
        service.instance.client,
        broker_name,
        known=known_brokers,
        drop=drop_broker,
    )
