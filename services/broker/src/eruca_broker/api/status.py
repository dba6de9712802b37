"""The broker's own report on its identity and its state."""

from __future__ import annotations

from fastapi import APIRouter

from eruca.contract.status import BrokerStatus
from eruca_broker.api.dependencies import TheBroker
from eruca_broker.api.examples import messages as examples
from eruca_broker.processors.status import broker_status
from eruca_chassis.documents.openapi import answer

router = APIRouter(prefix="/v1", tags=["status"])


@router.get(
    "/status",
    operation_id="getStatus",
    summary="Get the broker's status",
    responses=answer(examples.STATUS),
)
async def get_status(broker: TheBroker) -> BrokerStatus:
    """Return identity, the log's range, its flushed offset, its projections, and limits in use.

    `is_writable` false means that sends are refused now; `refusal` says why.
    """
    return broker_status(
        broker.identity,
        broker.store,
        broker.held,
        broker.in_flight,
        broker.consume_in_flight,
        now_ms=broker.clock.now_ms(),
    )
