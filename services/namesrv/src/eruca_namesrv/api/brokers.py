"""Brokers: register, unregister, list the live ones."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Path, Query

from eruca.contract.access import Right
from eruca.contract.errors import (
    BrokerNotFoundError,
    ConflictError,
    NameServerSettlingError,
    OverloadedError,
    StaleEpochError,
)
from eruca.contract.fields import BrokerId, BrokerName
from eruca.contract.routes import BrokerList, BrokerRegistration, ClusterList, RegistrationResult
from eruca_access.needs import to
from eruca_chassis.admission.needs import KNOWN, in_path
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_namesrv.api import examples
from eruca_namesrv.name_server import NameServer
from eruca_namesrv.topic_lists import check_topics

router = Router(prefix="/v1", tags=["brokers"])
Id = Annotated[BrokerId, Path(examples=[0])]


@router.put(
    "/brokers/{broker_name}/{broker_id}",
    operation_id="registerBroker",
    needs=to(Right.ADMINISTER, broker=in_path("broker_name"), is_routine=True),
    summary="Register a broker, or send its heartbeat",
    responses=answer(examples.REGISTERED)
    | problems(ConflictError, StaleEpochError, OverloadedError),
)
async def register_broker(
    broker_name: BrokerName,
    broker_id: Id,
    registration: Annotated[BrokerRegistration, Body(examples=[examples.REGISTRATION])],
    names: Part[NameServer],
) -> RegistrationResult:
    """Store a broker's registration for `expiry_seconds`.

    A master's `topics` replace all topics of the broker name: a topic that is not listed leaves
    the routes. A registration whose `topics` is null is a heartbeat. If the answer says
    `needs_topics`, register again with all topics. Held route requests are woken before the answer
    is sent.

    If the id is registered at another address, the answer is 409 until that registration ends: by
    `DELETE`, or when it expires.

    Of a broker group's replicas, the master registers with id 0 and its `epoch`. A master of a
    larger epoch takes the place of the one before at once. One of a smaller epoch than any replica
    has registered is refused with 409 `stale-epoch`.
    """
    check_topics(registration.topics)
    return await names.register(broker_name, broker_id, registration)


@router.delete(
    "/brokers/{broker_name}/{broker_id}",
    operation_id="unregisterBroker",
    needs=to(Right.ADMINISTER, broker=in_path("broker_name")),
    summary="Unregister a broker that is shutting down",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(BrokerNotFoundError, ConflictError),
)
async def unregister_broker(
    broker_name: BrokerName,
    broker_id: Id,
    names: Part[NameServer],
    *,
    store_host: Annotated[
        str | None,
        Query(max_length=64, description="unregister the broker only at this address, else 409"),
    ] = None,
) -> None:
    """Remove a broker at once instead of when its registration expires.

    When the last broker of a name is removed, the name's queues leave every route.
    """
    names.unregister(broker_name, broker_id, store_host)


@router.get(
    "/brokers",
    operation_id="listBrokers",
    needs=KNOWN,
    summary="List the live brokers",
    responses=answer(examples.BROKERS) | problems(NameServerSettlingError),
)
async def list_brokers(names: Part[NameServer]) -> BrokerList:
    """Return the live brokers by name and id, each with the time of its last heartbeat."""
    return names.broker_list()


@router.get(
    "/clusters",
    operation_id="listClusters",
    needs=KNOWN,
    summary="List broker names by cluster",
    responses=answer(examples.CLUSTERS) | problems(NameServerSettlingError),
)
async def list_clusters(names: Part[NameServer]) -> ClusterList:
    """Return the live broker names of each cluster."""
    return names.cluster_list()
