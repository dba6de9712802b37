"""Status: the service's identity and progress; rebuilding, and forgetting a broker."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Path

from eruca import AsyncClient
from eruca.contract.access import Right
from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    DatabaseUnavailableError,
    UnavailableError,
)
from eruca.contract.fields import BrokerName
from eruca.contract.queries import QueryStatus, RebuildBegun, RebuildRequest
from eruca_access.needs import to
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_chassis.versions import version_of
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.database import Database
from eruca_postgres.forgetting import forget
from eruca_postgres.instance import Instance
from eruca_query.api import examples
from eruca_query.projection.broker_work import FollowedBroker
from eruca_query.projection.following import followed_logs
from eruca_query.projection.forgotten import drop_broker, known_brokers
from eruca_query.projection.rebuilding import request_rebuild

router = Router(prefix="/v1", tags=["status"])


@router.get(
    "/status",
    operation_id="getStatus",
    needs=to(Right.QUERY, cluster=True),
    summary="Get the service's identity and progress",
    responses=answer(examples.STATUS) | problems(DatabaseUnavailableError),
)
async def get_status(
    instance: Part[Instance], shares: Part[BrokerShares[FollowedBroker]]
) -> QueryStatus:
    """Return this instance's own state, and the progress in all brokers' logs."""
    async with instance.database.transaction() as connection:
        followed = await followed_logs(connection)
    return QueryStatus(
        version=version_of("eruca-query"),
        name=instance.name,
        started_at=instance.started_at,
        brokers=sorted(shares.work),
        faults=shares.faults(),
        followed=followed,
    )


@router.post(
    "/projection:rebuild",
    operation_id="rebuildProjection",
    needs=to(Right.ADMINISTER, cluster=True),
    summary="Rebuild the read model",
    status_code=HTTPStatus.ACCEPTED,
    responses=answer(examples.REBUILD_BEGUN, HTTPStatus.ACCEPTED)
    | problems(BrokerNotFoundError, DatabaseUnavailableError),
)
async def rebuild_projection(
    database: Part[Database],
    request: Annotated[RebuildRequest | None, Body(examples=[{"brokers": None}])] = None,
) -> RebuildBegun:
    """Read the logs again from their beginning; the present rows answer until that catches up.

    The status shows the progress. Rows of messages that the logs no longer hold stay.
    """
    wanted = None if request is None else request.brokers
    return RebuildBegun(brokers=await request_rebuild(database, wanted))


@router.delete(
    "/brokers/{broker_name}",
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
    """Drop everything read from its log: from then on no answer counts it as missing.

    Stop the broker first: while a name server knows it, the answer is 409. A broker that returns
    under this name is read again from the beginning of its log.
    """
    await forget(
        database,
        client,
        broker_name,
        known=known_brokers,
        drop=drop_broker,
    )
