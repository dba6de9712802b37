"""Audit records of other services, which have no log of their own."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import Body, Request

from eruca.contract.access import Right
from eruca.contract.audit import AuditReport
from eruca_access.audit.trail import REPORT_OPERATION
from eruca_access.needs import to
from eruca_broker.api.examples import audit as examples
from eruca_broker.api.peers import born_host
from eruca_broker.api.refusals import WRITE_REFUSALS
from eruca_broker.processors.audit import AuditLog
from eruca_chassis.admission.gate import CallersAccess
from eruca_chassis.documents.problems import problems
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router

router = Router(prefix="/v1/audit", tags=["audit"])


@router.post(
    "/records",
    operation_id=REPORT_OPERATION,
    needs=to(Right.PRODUCE, audit=True),
    summary="Report audit records",
    status_code=HTTPStatus.NO_CONTENT,
    responses=problems(*WRITE_REFUSALS),
)
async def report_audit(
    report: Annotated[AuditReport, Body(openapi_examples=examples.REPORT)],
    audit: Part[AuditLog],
    access: CallersAccess,
    request: Request,
) -> None:
    """Write records of what callers of another service did into this broker's log.

    `reported_by` becomes the principal of the service that reports; what it says itself there is
    ignored. The records are in the topic `ERUCA_SYS_AUDIT` once the answer is sent. A report that
    is repeated is written again.
    """
    await audit.write(
        report.records,
        reported_by=access.name,
        born_host=born_host(request.scope["client"]),
    )
