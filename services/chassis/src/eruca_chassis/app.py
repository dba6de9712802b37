"""The application on which every service builds: FastAPI, with one kind of error and of metrics.

A client always gets an answer of the service's contract. Every refusal is a problem document, no
matter who refused: a handler, FastAPI, the router or this class. An unexpected exception is logged
under the request's id and answered with 500 and that id, and nothing else.

A request takes one of two paths. *Hot* routes are exchanges (:mod:`.connections.exchange`), which
connections answer without coming here if they can. For them nothing is prepared in advance: the
request id is computed only for a problem. All other requests go through FastAPI, with their id in
the answer and in every log line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeAlias

import structlog
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import iter_route_contexts
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException

from eruca.contract.errors import (
    ErucaError,
    InternalError,
    MalformedBodyError,
    MethodNotAllowedError,
    NotFoundError,
    OverloadedError,
    error_of_problem,
)
from eruca_chassis.asgi import (
    BODILESS,
    REQUEST_ID_HEADER,
    ClientGoneError,
    Handler,
    Message,
    Receive,
    Scope,
    Send,
    body_too_large,
    declared_size,
    header,
    joined_headers,
    log_names,
    problem_body,
    problem_headers,
    request_id,
    request_id_header,
    send_problem,
    target_said,
)
from eruca_chassis.budget import Budget, client_max_of, client_of
from eruca_chassis.connections.asgi_exchange import run_exchange
from eruca_chassis.connections.exchange import defect
from eruca_chassis.connections.hot import HotRoute, HotRoutes, unopened
from eruca_chassis.cross_origin import is_preflight, send_preflight, sender_with_grant
from eruca_chassis.documents.openapi import finish
from eruca_chassis.explorer.routes import ListServices, explorer_router
from eruca_chassis.guard import Guard
from eruca_chassis.hot_router import HotRouter
from eruca_chassis.listening import Address
from eruca_chassis.metrics import CLIENT_GONE_STATUS, UNKNOWN_ROUTE, RequestMetrics, RouteMetrics
from eruca_chassis.operations import TAG, operations_router
from eruca_chassis.parts import Parts, declared_parts
from eruca_chassis.readiness import GATED_PREFIX, Readiness
from eruca_chassis.requests.json_members import check_members
from eruca_chassis.requests.negotiation import check_not_encoded
from eruca_chassis.requests.parameters import check_parameters
from eruca_chassis.requests.targets import escaped_slash, has_escaped_slash
from eruca_chassis.requests.validation import error_of_faults, unreadable_body

Lifespan: TypeAlias = Callable[["ServiceApp"], AbstractAsyncContextManager[None]]

BODY_SIZE_MAX: Final = 1024 * 1024  # bytes of a body read by FastAPI, by default
BODY_SIZE_LIMIT_NAME: Final = "body_bytes_max"
FILES_NEEDED: Final = 128  # descriptors that a service may need for its own files and connections
BODIES_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of all such bodies in progress

_PIECE_COST: Final = 64  # bytes of memory for each piece of a body, beside its content

_log = structlog.get_logger()
_OF_BODIES: Final = (REQUEST_ID_HEADER, b"content-type", b"content-length")
_ANSWERED: Final = "eruca.answered"  # key in the scope, set once an answer has begun


class ServiceApp(FastAPI):
    """One service's application; it refuses requests until ``app.readiness.ready()``.

    Its lifespan adds all ``parts`` that endpoints declare, then calls ``open_routes``. It may set
    ``files_needed``, which returns how many descriptors connections must leave to the service. It
    may add to ``farewells``, which are awaited once a stop is requested, while requests are still
    answered. It may add to ``stop_hooks``, which are called when shutdown begins after them, and to
    ``metrics_hooks``, which are awaited before metrics are collected, for values that take a while.

    Args:
        title: The service's name, for people.
        summary: The service in one line.
        description: An introduction for readers of its API; Markdown.
        version: The service's version.
        routers: Its own routes, under ``/v1``; those with hot routes are ``HotRouter``.
        tags: OpenAPI tag objects, in the explorer's order.
        lifespan: Starts and stops the service's parts.
        body_bytes_max: Bytes of a request's body; hot routes have limits of their own.
        bodies_bytes_max: Bytes of all bodies held at once by these routes.
        client_share: Share of it that one client may hold; see ``ServiceSettings``.
        ungated: Path prefixes that work although the service is not ready: they are refused only
            while it starts or stops.
        guard: Decides which requests may be made here; None: one that knows no names and no sites.
        explored: Lists the services that ``/docs`` shows; None: only this one.
    """

    def __init__(
        self,
        *,
        title: str,
        summary: str,
        description: str,
        version: str,
        routers: Sequence[APIRouter] = (),
        tags: Sequence[dict[str, Any]] = (),
        lifespan: Lifespan | None = None,
        body_bytes_max: int = BODY_SIZE_MAX,
        bodies_bytes_max: int = BODIES_SIZE_MAX,
        client_share: float = 1,
        ungated: Sequence[str] = (),
        guard: Guard | None = None,
        explored: ListServices | None = None,
    ) -> None:
        super().__init__(
            title=title,
            summary=summary,
            description=description,
            version=version,
            lifespan=lifespan,
            openapi_tags=[*tags, {"name": TAG, "description": "For operators of the service"}],
            servers=[{"url": "/", "description": "this service"}],
            license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,  # a redirect would be an answer without a problem document
            strict_content_type=False,  # a body without a content type counts as JSON
            dependencies=[Depends(check_parameters), Depends(check_members)],
            generate_unique_id_function=lambda route: route.name,
            exception_handlers={
                ErucaError: _on_error,
                HTTPException: _on_http_exception,
                RequestValidationError: _on_invalid_request,
                ClientGoneError: _on_client_gone,
                Exception: _on_defect,
            },
        )
        assert bodies_bytes_max >= body_bytes_max
        self._ungated = tuple(ungated)
        self._body_bytes_max = body_bytes_max
        self._bodies = Budget(
            "bodies_bytes_max",
            bodies_bytes_max,
            client_max=client_max_of(bodies_bytes_max, client_share, body_bytes_max),
        )
        self.guard = guard or Guard()
        self.parts = Parts()
        self._declared_parts = frozenset(declared_parts(routers))
        self.readiness = Readiness()
        self.readiness.incapacities.append(self._bodies.exhaustion)
        self.registry = CollectorRegistry()
        self.metrics = RequestMetrics()
        self.files_needed: Callable[[], int] = lambda: FILES_NEEDED
        self.farewells: list[Callable[[], Awaitable[None]]] = []
        self.stop_hooks: list[Callable[[], None]] = []
        self.metrics_hooks: list[Callable[[], Awaitable[None]]] = []
        self.addresses: list[Address] = []  # where it listens; set before the lifespan starts
        self._hot_operations = [
            operation
            for router in routers
            if isinstance(router, HotRouter)
            for operation in router.hot_operations
        ]
        self.hot = HotRoutes(
            *(
                HotRoute(
                    operation.method,
                    operation.template,
                    unopened,
                    admit=unopened,
                    operation=operation.id,
                )
                for operation in self._hot_operations
            )
        )
        for route in self.hot.routes:
            self.metrics.adopt(route.method, route.template, route.metrics)
        self._templates: dict[object, str] = {}
        self.registry.register(self.metrics)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.include_router(operations_router(self.readiness, self.registry, self.metrics_hooks))
        self.include_router(explorer_router(title, explored))
        for router in routers:
            self.include_router(router)

    def open_routes(self) -> None:
        """Make the hot endpoints of the parts that they declare; all declared parts must exist."""
        self.parts.require(self._declared_parts)
        for operation, route in zip(self._hot_operations, self.hot.routes, strict=True):
            admit, handle = operation.open(self.parts)
            route.open(admit=admit, handle=handle)

    @contextmanager
    def telling(self, metrics: Collector) -> Iterator[None]:
        """Export *metrics* to Prometheus, too, while the block runs."""
        self.registry.register(metrics)
        try:
            yield
        finally:
            self.registry.unregister(metrics)

    def begin_stop(self) -> None:
        """Become not ready, and release held requests; called once, when shutdown begins."""
        self.readiness.stop()
        for hook in self.stop_hooks:
            hook()

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document."""
        if self.openapi_schema is None:
            finish(super().openapi(), gated_prefix=GATED_PREFIX)
        return super().openapi()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        started = perf_counter()
        if self.guard.cross_origin.allows(scope):
            send = sender_with_grant(scope, send)
        found = self.hot.find(scope["method"], scope["path"])
        if found is not None:
            handle = partial(run_exchange, found, self.readiness.door)
            status = await self._answer(handle, scope, receive, send, found.route.operation)
            metrics = found.route.metrics
        else:
            status = await self._answer(self._through_fastapi, scope, receive, send)
            metrics = self._metrics_of(scope)
        metrics.add(status, perf_counter() - started)

    async def _answer(
        self, handle: Handler, scope: Scope, receive: Receive, send: Send, operation: str = ""
    ) -> int:
        """Run *handle*, answer an error that it raises as a problem, and return the status.

        Args:
            handle: Answers the request.
            scope: Its head, as ASGI has it.
            receive: Its body.
            send: The way to its client.
            operation: The id of its hot operation; empty: it is none.
        """
        try:
            headers = joined_headers(scope["headers"])
            self.guard.check(
                scope["method"],
                scope.get("raw_path") or b"",
                scope["query_string"],
                scope["http_version"],
                headers,
            )
            self._check_slashes(scope)
            if self.guard.cross_origin.allows(scope) and is_preflight(scope):
                methods = self.allowed_methods(scope["path"])
                return await send_preflight(send, methods, request_id(scope))
            if not self.readiness.is_open and self._is_gated(scope["path"]):
                refusal = self.readiness.refusal(operation or self._operation_of(scope))
                if refusal is not None:
                    raise refusal
            return await handle(scope, receive, send)
        except ErucaError as error:
            return await send_problem(send, error, scope)
        except ClientGoneError:
            return CLIENT_GONE_STATUS
        except Exception:  # the outermost frame of a request
            _log.exception(
                "request failed",
                **log_names(scope),
                method=scope["method"],
                path=scope["path"],
            )
            if _ANSWERED not in scope:
                await send_problem(send, defect(), scope)
            return InternalError.status

    def _check_slashes(self, scope: Scope) -> None:
        """Refuse an escaped slash if no route takes one: decoded, it would split the segment."""
        raw_path = scope.get("raw_path") or b""
        if not has_escaped_slash(raw_path):
            return
        taking = (c for c in iter_route_contexts(self.routes) if c.path and ":path}" in c.path)
        if not any(context.path_regex.match(scope["path"]) for context in taking):
            raise escaped_slash(raw_path)

    def _operation_of(self, scope: Scope) -> str:
        """Return the id of the requested operation; empty: no route takes the request."""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        for context in iter_route_contexts(self.routes):
            if method in (context.methods or ()) and context.path_regex.match(scope["path"]):
                return context.operation_id or ""
        return ""

    def _is_gated(self, path: str) -> bool:
        """Return whether a request is refused until the service is ready."""
        is_open = not (self.readiness.is_starting or self.readiness.is_stopping)
        is_exempt = is_open and path.startswith(self._ungated)
        return path.startswith(GATED_PREFIX) and not is_exempt

    async def _through_fastapi(self, scope: Scope, receive: Receive, send: Send) -> int:
        identity = request_id(scope)
        if (declared_size(scope) or 0) > self._body_bytes_max:
            raise body_too_large(self._body_bytes_max, BODY_SIZE_LIMIT_NAME)
        encoding = header(scope, b"content-encoding")
        if encoding is not None:
            check_not_encoded(encoding)
        status = CLIENT_GONE_STATUS
        size = taken = 0
        client, door = client_of(scope["client"]), self.readiness.door

        async def receive_within_limits() -> Message:
            nonlocal size, taken
            message = await receive()
            piece_size = len(message.get("body", b""))
            size += piece_size
            if size > self._body_bytes_max:
                raise _Refusal(body_too_large(self._body_bytes_max, BODY_SIZE_LIMIT_NAME))
            if piece_size:
                try:
                    self._bodies.take(piece_size + _PIECE_COST, client)
                except OverloadedError as error:
                    raise _Refusal(error) from None
                taken += piece_size + _PIECE_COST
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                scope[_ANSWERED] = True
                left_out = _OF_BODIES if status in BODILESS else (REQUEST_ID_HEADER,)
                headers = [h for h in message.get("headers", ()) if h[0] not in left_out]
                headers.append(request_id_header(identity))
                if door is not None:
                    headers += door.headers(getattr(routed.get("route"), "operation_id", "") or "")
                message = {**message, "headers": headers}
            await send(message)

        # HEAD is routed as GET; the server drops the body, by its own copy of the scope.
        routed = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        with structlog.contextvars.bound_contextvars(**log_names(scope)):
            try:
                await super().__call__(routed, receive_within_limits, send_with_id)
            finally:
                if taken:
                    self._bodies.give(taken, client)
                scope["endpoint"] = routed.get("endpoint")
        return status

    def _metrics_of(self, scope: Scope) -> RouteMetrics:
        if not self._templates:
            named = {
                (context.endpoint, context.path or UNKNOWN_ROUTE)
                for context in iter_route_contexts(self.routes)
            }
            self._templates = dict(named)
            assert len(self._templates) == len(named)  # each endpoint identifies one route
        template = self._templates.get(scope.get("endpoint"), UNKNOWN_ROUTE)
        return self.metrics.route(scope["method"], template)

    def allowed_methods(self, path: str) -> list[str]:
        """Return every method that some route takes at *path*, sorted."""
        methods: set[str] = set()
        for context in iter_route_contexts(self.routes):
            if context.methods and context.path_regex.match(path):
                methods |= context.methods
        return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


class _Refusal(HTTPException):
    """An error of the contract, as the one exception type that FastAPI lets through from a body."""

    def __init__(self, error: ErucaError) -> None:
        super().__init__(error.status)
        self.error = error


def _problem(request: Request, error: ErucaError, **headers: str) -> Response:
    identity = request_id(request.scope)
    response = Response(problem_body(error, identity), status_code=error.status)
    sent = (*problem_headers(error, target_said(request.scope)), request_id_header(identity))
    for name, value in sent:
        response.headers[name.decode()] = value.decode()
    response.headers.update(headers)
    return response


async def _on_error(request: Request, error: ErucaError) -> Response:
    return _problem(request, error)


async def _on_invalid_request(request: Request, error: RequestValidationError) -> Response:
    refusal = error_of_faults(
        error.errors(),
        request.headers.get("content-type"),
        _example_of_body(request),
        body=error.body,
    )
    return _problem(request, refusal)


def _example_of_body(request: Request) -> object:
    """Return the documented body of the requested operation; None if there is none."""
    dependant = getattr(request.scope.get("route"), "dependant", None)
    bodies = () if dependant is None else dependant.body_params
    examples = [example for body in bodies for example in body.field_info.examples or ()]
    return examples[0] if examples else None


async def _on_client_gone(_request: Request, _error: ClientGoneError) -> Response:
    return Response(status_code=CLIENT_GONE_STATUS)  # for the metrics; nobody reads it


async def _on_defect(request: Request, _error: Exception) -> Response:
    return _problem(request, defect())  # Starlette raises it again, and __call__ logs it


async def _on_http_exception(request: Request, error: HTTPException) -> Response:
    """Answer errors that FastAPI and the router raise by themselves."""
    app, method, path = request.app, request.scope["method"], request.scope["path"]
    if isinstance(error, _Refusal):
        return _problem(request, error.error)
    if error.status_code == NotFoundError.status:
        return _problem(request, NotFoundError(f"no route at {path}", fix="see /docs"))
    if error.status_code == MethodNotAllowedError.status:
        allowed = ", ".join(app.allowed_methods(path))
        refusal = MethodNotAllowedError(
            f"{path} does not take {method}", fix=f"use one of: {allowed}"
        )
        return _problem(request, refusal, allow=allowed)
    if error.status_code == MalformedBodyError.status:
        return _problem(request, unreadable_body())
    return _problem(request, error_of_problem({"detail": error.detail}, error.status_code))
