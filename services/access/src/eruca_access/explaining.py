"""Explain decisions over HTTP, and show which rules are in force, at every service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from fastapi import Body, Request

from eruca.contract.access import AccessExplanation, AccessQuestion, Resource, Right
from eruca.contract.errors import ValidationError
from eruca.contract.policies import AccessStatus
from eruca_access.gate import PolicyGate
from eruca_access.needs import on_cluster, to
from eruca_chassis.admission.gate import CallersAccess, address_of
from eruca_chassis.admission.needs import KNOWN
from eruca_chassis.documents.openapi import answer
from eruca_chassis.routes.router import Router

_QUESTION: Final = {
    "principal": "user:checkout",
    "right": "produce",
    "resource": "topic:orders",
    "address": None,
}
_EXPLAINED: Final = {
    "allowed": True,
    "reason": "the most specific rule that applies grants it",
    "rule": "grant produce on topic:orders to user:checkout",
    "fix": None,
}
_STATUS: Final[dict[str, Any]] = {
    "source": "controller",
    "version": "12-5f0c9a6e1b7d4823",
    "age_seconds": 3.5,
    "fault": None,
    "rule_count": 1,
    "keys": [
        {
            "id": "k7qjx2mzad",
            "principal": "user:ann",
            "expires_at": None,
            "last_used_at": "2026-11-21T08:02:40.118Z",
        }
    ],
    "started_at": "2026-11-21T07:58:12.404Z",
}
_STARTED_AT: Final = datetime.now(UTC)
_OPEN: Final = AccessStatus(
    source="none",
    version=None,
    age_seconds=0,
    fault=None,
    rule_count=0,
    keys=None,
    started_at=_STARTED_AT,
)
"""The status of a service without rules."""


def explaining_router(gate: PolicyGate | None) -> Router:
    """Return the router of a service with *gate*; without one, everything is allowed."""
    router = Router(prefix="/v1", tags=["operations"])

    @router.post(
        "/access:explain",
        operation_id="explainAccess",
        needs=KNOWN,
        summary="Explain who may do what",
        responses=answer(_EXPLAINED),
    )
    async def explain_access(
        question: Annotated[AccessQuestion, Body(examples=[_QUESTION])],
        access: CallersAccess,
        request: Request,
    ) -> AccessExplanation:
        """Return whether a principal has a right on a resource, and the rule that decides.

        Everybody may ask about itself. Asking about others needs the right to administer the
        cluster. A service without rules allows everything.
        """
        try:
            resource = Resource.of(question.resource)
        except ValueError as error:
            raise ValidationError.at("/body/resource", str(error)) from None
        if gate is None:
            return AccessExplanation(
                allowed=True, reason="this service has no rules", rule=None, fix=None
            )
        if question.principal != access.name:
            access.require(on_cluster(Right.ADMINISTER))
        address = address_of(request.scope["client"]) if question.address is None else None
        return gate.explain(
            question.principal,
            question.right,
            resource,
            address or question.address or "",
            caller=access.caller,
        )

    @router.get(
        "/access",
        operation_id="getAccess",
        needs=to(Right.QUERY, cluster=True),
        summary="Show which rules are in force here",
        responses=answer(_STATUS),
    )
    async def get_access() -> AccessStatus:
        """Return where the rules come from, their version, and the API keys that they know.

        Keys are listed by id, with the time of the last request that this service has admitted by
        each since its start. A client that repeats the same request is noted once a minute.
        """
        return _OPEN if gate is None else gate.status()

    return router
