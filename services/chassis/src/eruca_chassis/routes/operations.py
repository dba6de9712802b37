"""The operator's routes of every service: liveness, readiness, metrics, problems."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final

from fastapi import Path
from fastapi.responses import Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from eruca.contract.errors import (
    ClientError,
    ErucaError,
    NotFoundError,
    NotReadyError,
    ValidationError,
    every_error,
)
from eruca.contract.operations import Health, ProblemKind
from eruca_chassis.admission.needs import PUBLIC, Needs, On
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.readiness import Readiness
from eruca_chassis.routes.router import Router

TAG: Final = "operations"
_METRICS_NEED: Final = Needs((On(("query",), "cluster"),))
_KINDS: Final = {kind.code: kind for kind in every_error() if not issubclass(kind, ClientError)}
_METRICS: Final = {
    "schema": {"type": "string"},
    "example": "# HELP process_open_fds Number of open file descriptors.\n"
    "# TYPE process_open_fds gauge\nprocess_open_fds 12.0\n",
}


def operations_router(
    readiness: Readiness,
    registry: CollectorRegistry,
    metrics_hooks: Sequence[Callable[[], Awaitable[None]]] = (),
) -> Router:
    """Return the routes for one application's state."""
    router = Router(tags=[TAG])

    @router.get(
        "/healthz",
        operation_id="health",
        needs=PUBLIC,
        summary="Is the process alive?",
        responses=answer({"status": "ok"}),
    )
    async def health() -> Health:
        """Answer 200 as long as the process can answer at all."""
        return Health(status="ok")

    @router.get(
        "/readyz",
        operation_id="readiness",
        needs=PUBLIC,
        summary="Can it do its work?",
        responses=answer({"status": "ready"}) | problems(NotReadyError),
    )
    async def ready() -> Health:
        """Answer 200 while the service can do its work; 503 with the reason while it cannot."""
        if not readiness.is_ready:
            raise readiness.error()
        if (incapacity := readiness.incapacity()) is not None:
            raise incapacity
        return Health(status="ready")

    @router.get(
        "/metrics",
        operation_id="metrics",
        needs=_METRICS_NEED,
        summary="Metrics for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": _METRICS}}},
    )
    async def metrics() -> Response:
        """Return every metric in Prometheus's text format."""
        for measure in tuple(metrics_hooks):
            await measure()
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @router.get(
        "/problems/{code}",
        operation_id="describeProblem",
        needs=PUBLIC,
        summary="Describe a problem code",
        responses=answer(_described(ValidationError).model_dump()) | problems(NotFoundError),
    )
    async def problem(
        code: Annotated[str, Path(max_length=64, examples=["validation-failed"])],
    ) -> ProblemKind:
        """Describe the kind of problem to which a problem document's `type` points."""
        kind = _KINDS.get(code)
        if kind is None:
            raise NotFoundError(f"unknown problem code {code}")
        return _described(kind)

    return router


def _described(kind: type[ErucaError]) -> ProblemKind:
    return ProblemKind(
        code=kind.code,
        title=kind.title,
        status=kind.status,
        retryable=kind.retryable,
        description=(kind.__doc__ or kind.title).strip(),
        fix=kind.default_fix,
    )
