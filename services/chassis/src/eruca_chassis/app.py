"""The application on which every service builds: FastAPI, with one kind of error and of metrics.

A client always gets an answer of the service's contract. Every refusal is a problem document, no
matter who refused: a handler, FastAPI, the router or this class. An unexpected exception is logged
under the request's id and answered with 500 and that id, and nothing else.

A request takes one of two paths. *Hot* routes are exchanges (:mod:`.connections.exchange`), which
connections answer without coming here if they can. For them nothing is prepared in advance. Most
ordinary GET routes take the same path (:mod:`eruca_chassis.routes.direct_reads`). All other
requests go through FastAPI, with their id in the answer and in every log line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

import structlog
from fastapi import APIRouter, FastAPI, Request
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
from eruca_chassis.admission.budget import (
    Budget,
    client_max_of,
    client_of,
    give_shared,
    take_shared,
)
from eruca_chassis.admission.cross_origin import is_preflight, send_preflight, sender_with_grant
from eruca_chassis.admission.gate import (
    ACCESS_KEY,
    CERTIFICATE_KEY,
    CONNECTION_KEY,
    OPEN,
    Access,
    AccessMetrics,
    Asked,
    Gate,
    address_of,
    admit,
)
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.admission.renaming import Renaming
from eruca_chassis.admission.under_way import UnderWay
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
from eruca_chassis.connections.asgi_exchange import run_exchange
from eruca_chassis.connections.exchange import defect
from eruca_chassis.connections.hot import HotRoute, HotRoutes, unopened
from eruca_chassis.documents.openapi import finish
from eruca_chassis.explorer.routes import FRONT, ListServices, explorer_router
from eruca_chassis.guard import Guard
from eruca_chassis.metrics import CLIENT_GONE_STATUS, UNKNOWN_ROUTE, RequestMetrics
from eruca_chassis.readiness import GATED_PREFIX, Readiness
from eruca_chassis.requests.negotiation import check_not_encoded
from eruca_chassis.requests.targets import (
    check_path,
    check_query,
    escaped_slash,
    has_escaped_slash,
)
from eruca_chassis.requests.validation import error_of_faults, unreadable_body
from eruca_chassis.routes.direct_reads import BodyRule, direct_reads
from eruca_chassis.routes.hot_router import HotRouter
from eruca_chassis.routes.operations import TAG, operations_router
from eruca_chassis.routes.parts import Parts, declared_parts
from eruca_chassis.routes.router import OPERATION, id_of, needs_of
from eruca_chassis.sockets.listening import Address
from eruca_chassis.spans.tracing import Tracing

Lifespan: TypeAlias = Callable[["ServiceApp"], AbstractAsyncContextManager[None]]

BODY_SIZE_MAX: Final = 1024 * 1024  # bytes of a body read by FastAPI, by default
BODY_SIZE_LIMIT_NAME: Final = "body_bytes_max"
FILES_NEEDED: Final = 128  # descriptors that a service may need for its own files and connections
BODIES_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes of all such bodies in progress

_PIECE_COST: Final = 64  # bytes of memory for each piece of a body, beside its content

_log = structlog.get_logger()
_OF_BODIES: Final = (REQUEST_ID_HEADER, b"content-type", b"content-length")
_ANSWERED: Final = "eruca.answered"  # key in the scope, set once an answer has begun
_DOCUMENT: Final = "openapi"  # name of FastAPI's own route for the document


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
        gate: Decides who may do what; None: everybody may do everything.
        explored: Lists the services that ``/docs`` shows; None: only this one.
        front: The path, without a slash before it, to which ``/`` leads a browser.
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
        gate: Gate | None = None,
        explored: ListServices | None = None,
        front: str = FRONT,
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
        self.gate = gate
        self._under_way: set[UnderWay] = set()
        self.parts = Parts()
        self._declared_parts = frozenset(declared_parts(routers))
        self.readiness = Readiness()
        self.readiness.incapacities.append(self._bodies.exhaustion)
        if gate is not None:
            self.readiness.incapacities.append(gate.incapacity)
        self.registry = CollectorRegistry()
        self.metrics = RequestMetrics()
        self.files_needed: Callable[[], int] = lambda: FILES_NEEDED
        self.farewells: list[Callable[[], Awaitable[None]]] = []
        self.stop_hooks: list[Callable[[], None]] = []
        self.metrics_hooks: list[Callable[[], Awaitable[None]]] = []
        self.tracing: Tracing | None = None  # makes spans; set before the lifespan starts
        self.addresses: list[Address] = []  # where it listens; set before the lifespan starts
        self.is_listening = False  # on an address or a Unix socket; set with them
        operations = operations_router(self.readiness, self.registry, self.metrics_hooks)
        explorer = explorer_router(title, explored, front)
        self.needs = {_DOCUMENT: PUBLIC} | needs_of((operations, explorer, *routers))
        self._hot_operations = [
            operation
            for router in routers
            if isinstance(router, HotRouter)
            for operation in router.hot_operations
        ]
        hot = [
            HotRoute(
                operation.method,
                operation.template,
                unopened,
                admit=unopened,
                operation=operation.id,
                needs=self.needs[operation.id],
            )
            for operation in self._hot_operations
        ]
        reads = direct_reads(
            [route for router in (operations, explorer, *routers) for route in router.routes],
            self.needs,
            lambda: self.parts,
            BodyRule(body_bytes_max, BODY_SIZE_LIMIT_NAME),
            without=self._ungated,
        )
        self.hot = HotRoutes(*hot, *reads)
        self._hot_ids = frozenset(operation.id for operation in self._hot_operations)
        for route in self.hot.routes:
            self.metrics.adopt(route.method, route.template, route.metrics)
        self._templates: dict[object, str] = {}
        self.registry.register(self.metrics)
        self.registry.register(AccessMetrics(gate))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        # FastAPI would include a router by working all of its routes out again.
        self.router.routes += (
            route for router in (operations, explorer, *routers) for route in router.routes
        )

    def add_middleware(self, middleware_class: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Let a middleware see every ordinary request: none is answered directly any more.

        Call it before a server is made of this application.
        """
        super().add_middleware(middleware_class, *args, **kwargs)
        self.hot = HotRoutes(*self.hot.routes[: len(self._hot_operations)])

    def open_routes(self) -> None:
        """Make the hot endpoints of the parts that they declare; all declared parts must exist."""
        self.parts.require(self._declared_parts)
        for operation, route in zip(self._hot_operations, self.hot.routes, strict=False):
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
            finish(
                super().openapi(),
                gated_prefix=GATED_PREFIX,
                needs=self.needs,
                is_closed=self.gate is not None,
            )
        return super().openapi()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        started = perf_counter()
        if self.guard.cross_origin.allows(scope):
            send = sender_with_grant(scope, send)
        renaming = self._renaming(scope)
        if renaming is not None:
            scope, send = renaming.scope, renaming.sending(send)
        found = self.hot.find(scope["method"], scope["path"])
        if found is not None:
            handle = _renamed(partial(run_exchange, found, self.readiness.door), renaming)
            route = _Requested(found.route.operation, found.parameters)
            status = await self._answer(handle, scope, receive, send, route)
            metrics = found.route.metrics
        else:
            handle = _renamed(self._through_fastapi, renaming)
            status = await self._answer(handle, scope, receive, send)
            metrics = self.metrics.route(scope["method"], self._template_of(scope))
        metrics.add(status, perf_counter() - started)

    async def _answer(
        self,
        handle: Handler,
        scope: Scope,
        receive: Receive,
        send: Send,
        requested: _Requested | None = None,
    ) -> int:
        """Run *handle*, answer an error that it raises as a problem, and return the status.

        Args:
            handle: Answers the request.
            scope: Its head, as ASGI has it.
            receive: Its body.
            send: The way to its client.
            requested: Its hot operation; None: it is none.
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
            if self.gate is not None:
                requested = requested or self._requested(scope)
                under_way = self._admitted(self.gate, requested, scope, headers)
                if under_way is not None:
                    handle = partial(self._answer_admitted, under_way, handle)
            if not self.readiness.is_open and self._is_gated(scope["path"]):
                requested = requested or self._requested(scope)
                refusal = self.readiness.refusal(requested.operation)
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

    def _renaming(self, scope: Scope) -> Renaming | None:
        """Return how to rename a request; None: its names are the service's, or it is refused."""
        gate = self.gate
        if gate is None or not gate.has_namings:
            return None
        headers = joined_headers(scope["headers"])
        naming = gate.naming_of(headers, scope.get(CERTIFICATE_KEY))
        if naming is None:
            return None
        operation, template = self._templated(scope)
        if not operation or self.needs[operation].is_public:
            return None
        try:  # a malformed path must not become another one
            check_path(scope.get("raw_path") or b"")
            check_query(scope["query_string"])
        except ErucaError:
            return None  # the guard refuses it
        return Renaming(naming, operation, template, scope, self._bodies)

    def _templated(self, scope: Scope) -> tuple[str, str]:
        """Return the requested operation and its path's template; without an id: there is none."""
        found = self.hot.find(scope["method"], scope["path"])
        if found is not None:
            return found.route.operation, found.route.template
        operation, _ = self._requested(scope)
        for context in iter_route_contexts(self.routes):
            if operation and id_of(context) == operation:
                return operation, context.path or ""
        return "", ""

    def _check_slashes(self, scope: Scope) -> None:
        """Refuse an escaped slash if no route takes one: decoded, it would split the segment."""
        raw_path = scope.get("raw_path") or b""
        if not has_escaped_slash(raw_path):
            return
        taking = (c for c in iter_route_contexts(self.routes) if c.path and ":path}" in c.path)
        if not any(context.path_regex.match(scope["path"]) for context in taking):
            raise escaped_slash(raw_path)

    def _requested(self, scope: Scope) -> _Requested:
        """Return the requested ordinary operation; one without an id: no route takes the request.

        It looks for the route as FastAPI's router will.
        """
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        for context in iter_route_contexts(self.routes):
            operation = id_of(context)
            if method in (context.methods or ()) and operation not in self._hot_ids:
                match = context.path_regex.match(scope["path"])
                if match is not None:
                    return _Requested(operation, match.groupdict())
        return _Requested("", {})

    def _admitted(
        self, gate: Gate, requested: _Requested, scope: Scope, headers: dict[bytes, bytes]
    ) -> UnderWay | None:
        """Ask the gate about a request; None: it needs no admission.

        Raises:
            UnauthenticatedError: It has no valid credentials.
            ForbiddenError: Its caller lacks a right.
        """
        operation, parameters = requested
        if not operation:
            return None  # it is answered with 404 or 405, which say nothing
        scope[OPERATION] = operation
        address = address_of(scope["client"])
        asked = Asked(
            self.needs[operation],
            parameters,
            scope["query_string"],
            headers,
            address,
            operation,
            request_id(scope),
            scope.get(CERTIFICATE_KEY),
        )
        admission = admit(gate, asked)
        if admission is None:
            return None
        access = scope[ACCESS_KEY] = Access(admission, address, lambda: asked)
        return UnderWay(access, asked)

    async def _answer_admitted(
        self, under_way: UnderWay, handle: Handler, scope: Scope, receive: Receive, send: Send
    ) -> int:
        under_way.begin(scope.get(CONNECTION_KEY))
        self._under_way.add(under_way)
        status = InternalError.status  # unless it is known below
        try:
            status = await handle(scope, under_way.receiving(receive), under_way.sending(send))
        except ErucaError as error:
            status = error.status
            raise
        except ClientGoneError:
            status = CLIENT_GONE_STATUS
            if under_way.error is not None:
                raise under_way.error from None
            raise
        finally:
            self._under_way.discard(under_way)
            under_way.end(status)
        if under_way.error is not None:
            raise under_way.error
        return status

    def recheck(self, now: float) -> None:
        """End ordinary requests that wait, and whose admission no longer holds."""
        for under_way in tuple(self._under_way):
            under_way.recheck(now)

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
        is_stream_left_out = is_over = False
        client, door = client_of(scope["client"]), self.readiness.door
        quota = scope.get(ACCESS_KEY, OPEN).quota

        async def receive_within_limits() -> Message:
            nonlocal size, taken
            message = await receive()
            piece_size = len(message.get("body", b""))
            size += piece_size
            if size > self._body_bytes_max:
                raise _Refusal(body_too_large(self._body_bytes_max, BODY_SIZE_LIMIT_NAME))
            if piece_size:
                try:
                    take_shared(self._bodies, piece_size + _PIECE_COST, client, quota)
                except OverloadedError as error:
                    raise _Refusal(error) from None
                taken += piece_size + _PIECE_COST
            return message

        async def send_with_id(message: Message) -> None:
            nonlocal status, is_over, is_stream_left_out
            if is_over:
                return
            if is_stream_left_out and message["type"] == "http.response.body":
                is_over = True
                message = {"type": "http.response.body", "body": b""}
            if message["type"] == "http.response.start":
                status = message["status"]
                scope[_ANSWERED] = True
                left_out = _OF_BODIES if status in BODILESS else (REQUEST_ID_HEADER,)
                headers = [h for h in message.get("headers", ()) if h[0] not in left_out]
                # A stream may be endless. An answer to HEAD ends before it, as if the client had
                # left; otherwise it would hold the connection up.
                is_stream_left_out = scope["method"] == "HEAD" and not any(
                    name == b"content-length" for name, _ in headers
                )
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
                    give_shared(self._bodies, taken, client, quota)
                scope["endpoint"] = routed.get("endpoint")
        return status

    def template_of(self, scope: Scope) -> str:
        """Return the template of an answered request's path: of an own one, never of a client's."""
        found = self.hot.find(scope["method"], scope["path"])
        return self._template_of(scope) if found is None else found.route.template

    def _template_of(self, scope: Scope) -> str:
        if not self._templates:
            named = {
                (context.endpoint, context.path or UNKNOWN_ROUTE)
                for context in iter_route_contexts(self.routes)
            }
            self._templates = dict(named)
            assert len(self._templates) == len(named)  # each endpoint identifies one route
        return self._templates.get(scope.get("endpoint"), UNKNOWN_ROUTE)

    def allowed_methods(self, path: str) -> list[str]:
        """Return every method that some route takes at *path*, sorted."""
        methods: set[str] = set()
        for context in iter_route_contexts(self.routes):
            if context.methods and context.path_regex.match(path):
                methods |= context.methods
        return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


def _renamed(handle: Handler, renaming: Renaming | None) -> Handler:
    """Return *handle* behind a renaming, if there is one."""
    return handle if renaming is None else partial(renaming.handle, handle)


class _Requested(NamedTuple):
    """An operation that is requested, and the named segments of its path, decoded."""

    operation: str
    parameters: Mapping[str, str]


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
    door = request.app.readiness.door
    if door is not None and (route := request.scope.get("route")) is not None:
        error = door.failure(id_of(route), error)
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
