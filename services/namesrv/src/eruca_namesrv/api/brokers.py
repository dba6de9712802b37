"""Brokers: registering, stopping, and who is alive."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Body, Path, Query

from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    NameServerSettlingError,
    OverloadedError,
)
from eruca.contract.models import (
    BrokerId,
    BrokerList,
    BrokerName,
    BrokerRegistration,
    ClusterList,
    RegistrationResult,
)
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_namesrv.api import examples
from eruca_namesrv.api.dependencies import Names
from eruca_namesrv.topic_lists import check_topics

router = APIRouter(prefix="/v1", tags=["brokers"])
Id = Annotated[BrokerId, Path(examples=[0])]


@router.put(
    "/brokers/{broker_name}/{broker_id}",
    operation_id="registerBroker",
    summary="Register a broker, or say that it is still alive",
    responses=answer(examples.REGISTERED) | problems(ConflictError, OverloadedError),
)
async def register_broker(
    broker_name: BrokerName,
    broker_id: Id,
    registration: Annotated[BrokerRegistration, Body(examples=[examples.REGISTRATION])],
    names: Names,
) -> RegistrationResult:
    """Take in what a broker says of itself; it holds for `expiry_seconds`.

    `topics` of a master replaces all topics of the broker name: what is not listed is gone from
    its routes. With `topics` null it is a light heartbeat; where the answer says `needs_topics`,
    register again with them. Held route requests are woken before this is answered.

    An id that lives at another address is refused with 409 until that registration is over: by
    `DELETE`, or when it expires.
    """
    check_topics(registration.topics)
    return await names.register(broker_name, broker_id, registration)


@router.delete(
    "/brokers/{broker_name}/{broker_id}",
    operation_id="unregisterBroker",
    summary="Unregister a broker that stops",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(BrokerNotFoundError, ConflictError),
)
async def unregister_broker(
    broker_name: BrokerName,
    broker_id: Id,
    names: Names,
    *,
    store_host: Annotated[
        str | None,
        Query(max_length=64, description="unregister only a broker of this address, else 409"),
    ] = None,
) -> None:
    """Drop a broker at once instead of when its registration expires.

    With the last broker of its name, the name's queues leave every route.
    """
    names.unregister(broker_name, broker_id, store_host)


@router.get(
    "/brokers",
    operation_id="listBrokers",
    summary="Every live broker",
    responses=answer(examples.BROKERS) | problems(NameServerSettlingError),
)
async def list_brokers(names: Names) -> BrokerList:
    """Return the live brokers by name and id, each with its last sign of life."""
    return names.broker_list()


@router.get(
    "/clusters",
    operation_id="listClusters",
    summary="Broker names by cluster",
    responses=answer(examples.CLUSTERS) | problems(NameServerSettlingError),
)
async def list_clusters(names: Names) -> ClusterList:
    """Return the live broker names of each cluster."""
    return names.cluster_list()
