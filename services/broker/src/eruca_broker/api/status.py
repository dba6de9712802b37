"""The broker's own report on its identity and its state."""

from __future__ import annotations

from eruca.contract.access import Right
from eruca.contract.status import BrokerStatus
from eruca_access.needs import to
from eruca_broker.api.examples import messages as examples
from eruca_broker.processors.status import Status
from eruca_chassis.documents.openapi import answer
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1", tags=["status"])


@router.get(
    "/status",
    operation_id="getStatus",
    needs=to(Right.QUERY, cluster=True),
    summary="Get the broker's status",
    responses=answer(examples.STATUS),
)
async def get_status(status: Part[Status]) -> BrokerStatus:
    """Return identity, the log's range, its flushed offset, its projections, and limits in use.

    `is_writable` false means that sends are refused now; `refusal` says why.
    """
    return status.now()
