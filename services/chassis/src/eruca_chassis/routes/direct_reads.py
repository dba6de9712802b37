"""Direct reads: ordinary GET routes that connections answer without FastAPI.

FastAPI's way to an endpoint costs more than most endpoints do: a task, a dozen layers, a search
through all routes. A route that only reads needs none of that. So a service answers it as an
exchange (:mod:`eruca_chassis.connections.exchange`), made of the route as it was declared::

    the route's declaration            the exchange
    ---------------------------------  ------------------------------------------------------------
    path, query and headers            read by the same types, refused by the same documents
                                       (:mod:`eruca_chassis.requests.model_heads`)
    ``Part[…]``, ``CallersAccess``,    given by the service, and by the exchange
    ``Leaving``
    the function                       called; in a task only if it awaits anything
    the model that it returns          encoded as FastAPI encodes it
    a ``Response`` that it returns     its status, headers and body

Nothing of that is declared twice, and FastAPI can still answer each such route: it does so if a
request's path is in an unusual form. A route that declares anything else, as a body, stays
FastAPI's alone.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple

import structlog
from fastapi import Depends, Request, Response
from fastapi.params import Body, Cookie
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from eruca_chassis.admission.gate import access_of
from eruca_chassis.admission.needs import Needs
from eruca_chassis.asgi import (
    BODILESS,
    REQUEST_ID_HEADER,
    TRACEPARENT_HEADER,
    ClientGoneError,
    Receive,
    body_too_large,
    names_in_log,
)
from eruca_chassis.connections.exchange import JSON_OK, Answer, AnswerHead, Exchange
from eruca_chassis.connections.hot import HotRoute
from eruca_chassis.metrics import CLIENT_GONE_STATUS
from eruca_chassis.readiness import GATED_PREFIX
from eruca_chassis.requests.model_heads import ModelHeads
from eruca_chassis.requests.negotiation import check_not_encoded
from eruca_chassis.routes.parts import Parts, part_of

_LEFT_OUT: Final = frozenset({b"content-length", REQUEST_ID_HEADER})  # the exchange's own
_OF_BODIES: Final = _LEFT_OUT | {b"content-type"}
_GONE: Final = AnswerHead(CLIENT_GONE_STATUS)  # for the metrics; nobody reads it


async def _leaving_of(request: Request) -> Receive:
    return request.receive


Leaving = Annotated[Receive, Depends(_leaving_of)]
"""An ordinary endpoint's annotation: a function that returns once the client has disconnected."""


class BodyRule(NamedTuple):
    """The maximum size of a body that nobody reads, and its name for error texts."""

    size_max: int  # bytes
    name: str


def direct_reads(
    routes: Sequence[Any],
    needs: Mapping[str, Needs],
    parts: Callable[[], Parts],
    body: BodyRule,
    *,
    without: tuple[str, ...] = (),
) -> list[HotRoute]:
    """Return the hot routes of those ordinary *routes* that can be answered directly.

    Args:
        routes: A service's, in the order in which they are searched.
        needs: What each operation needs of its caller, by its id.
        parts: Returns the service's present ones.
        body: Limits bodies, although none is read.
        without: Prefixes of paths that stay FastAPI's.
    """
    found: list[HotRoute] = []
    others: list[str] = []  # paths of GET routes that come first and stay FastAPI's
    for route in routes:
        if not isinstance(route, APIRoute) or route.methods != {"GET"}:
            continue
        operation = route.operation_id or ""
        is_left = (
            operation not in needs
            or needs[operation].is_act
            or route.path.startswith(without or ("\0",))
            or any(_overlap(route.path, other) for other in others)
        )
        call = None if is_left else _call_of(route, parts)
        if call is None:
            others.append(route.path)
            continue
        read = _DirectRead(route, call, body)
        found.append(
            HotRoute(
                "GET",
                route.path,
                read.handle,
                admit=read.admit,
                operation=operation,
                needs=needs[operation],
            )
        )
    return found


class _DirectRead:
    """Answers one operation."""

    def __init__(self, route: APIRoute, call: _Call, body: BodyRule) -> None:
        self._route = route
        self._call = call
        self._body = body

    # FastAPI works a route out once it is needed, which is at its first request.

    @cached_property
    def _heads(self) -> ModelHeads:
        is_strict = self._route.path.startswith(GATED_PREFIX)
        return ModelHeads(self._route.dependant, refuses_others=is_strict)

    @cached_property
    def _waits(self) -> bool:
        return _awaits(self._call.endpoint)

    @cached_property
    def _answer(self) -> Callable[[Any], Answer]:
        return _encoder_of(self._route)

    def admit(self, exchange: Exchange) -> None:
        """Refuse what FastAPI's way would refuse by the head."""
        request = exchange.request
        if (request.body_size or 0) > self._body.size_max:
            raise body_too_large(*self._body)
        if (encoding := request.headers.get(b"content-encoding")) is not None:
            check_not_encoded(encoding)
        request.meaning = self._heads.read(request.parameters, request.query, request.headers)

    def handle(self, exchange: Exchange) -> None:
        """Call the endpoint; answer with what it returns."""
        if self._waits:
            exchange.go_on(self._awaited(exchange))
            return
        try:
            with structlog.contextvars.bound_contextvars(**_log_names(exchange)):
                answer = self._answer(_result_of(self._call(exchange)))
        except ClientGoneError:
            answer = (_GONE,)
        exchange.answer(*answer)

    async def _awaited(self, exchange: Exchange) -> Answer:
        try:
            with structlog.contextvars.bound_contextvars(**_log_names(exchange)):
                return self._answer(await self._call(exchange))
        except ClientGoneError:
            return (_GONE,)


class _Call(NamedTuple):
    """An endpoint, and what its declaration asks of the service and of the exchange."""

    endpoint: Callable[..., Coroutine[Any, Any, Any]]
    parts: Callable[[], Parts]
    kinds: tuple[tuple[str, type[Any]], ...]  # of parts, by the names of its parameters
    access: str | None  # the parameter that gets the caller's access
    leaving: str | None  # the parameter that gets the function which waits for the client to leave

    def __call__(self, exchange: Exchange) -> Coroutine[Any, Any, Any]:
        arguments = exchange.request.meaning.copy()
        if self.kinds:
            parts = self.parts()
            for name, kind in self.kinds:
                arguments[name] = parts[kind]
        if self.access is not None:
            arguments[self.access] = exchange.access
        if self.leaving is not None:
            arguments[self.leaving] = exchange.leaving
        return self.endpoint(**arguments)


def _call_of(route: APIRoute, parts: Callable[[], Parts]) -> _Call | None:
    """Return how to call the endpoint of *route*; None: it declares what only FastAPI has.

    FastAPI would know more of its parameters, but by working the whole route out.
    """
    endpoint = route.endpoint
    if not inspect.iscoroutinefunction(endpoint) or ":" in route.path:
        return None
    kinds: list[tuple[str, type[Any]]] = []
    names: dict[Any, str] = {}
    for name, annotation in inspect.get_annotations(endpoint, eval_str=True).items():
        is_type = name != "return" and isinstance(annotation, type)
        if is_type and issubclass(annotation, (HTTPConnection, Response)):
            return None
        for declared in getattr(annotation, "__metadata__", ()):
            call = getattr(declared, "dependency", None)
            kind = part_of(call)
            if kind is not None:
                kinds.append((name, kind))
            elif call in (access_of, _leaving_of):
                names[call] = name
            elif call is not None or isinstance(declared, (Body, Cookie)):
                return None
    return _Call(endpoint, parts, tuple(kinds), names.get(access_of), names.get(_leaving_of))


def _awaits(endpoint: Callable[..., Any]) -> bool:
    """Return whether a coroutine function awaits anything, so that it needs a task."""
    return any(
        instruction.opname in ("GET_AWAITABLE", "GET_AITER", "BEFORE_ASYNC_WITH")
        for instruction in dis.get_instructions(inspect.unwrap(endpoint))
    )


def _result_of(steps: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401 - of an endpoint
    """Run a coroutine that awaits nothing."""
    try:
        steps.send(None)
    except StopIteration as end:
        return end.value
    steps.close()
    raise AssertionError("an endpoint without an await has waited")


def _encoder_of(route: APIRoute) -> Callable[[Any], Answer]:
    """Return the function that encodes the results of a route's endpoint, as FastAPI does."""
    field = route.response_field
    options: dict[str, Any] = {
        "include": route.response_model_include,
        "exclude": route.response_model_exclude,
        "by_alias": route.response_model_by_alias,
        "exclude_unset": route.response_model_exclude_unset,
        "exclude_defaults": route.response_model_exclude_defaults,
        "exclude_none": route.response_model_exclude_none,
    }
    assert route.status_code is None, f"{route.path}: a direct read answers 200"

    def encode(result: Any) -> Answer:  # noqa: ANN401
        if isinstance(result, Response):
            return _answer_of(result)
        assert field is not None, f"{route.path} returned {type(result)}, and declares no model"
        value, faults = field.validate(result, {}, loc=("response",))
        assert not faults, f"{route.path} returned what its model refuses: {faults}"
        return JSON_OK, field.serialize_json(value, **options)

    return encode


def _answer_of(response: Response) -> Answer:
    assert type(response).__call__ is Response.__call__, f"{type(response)} sends itself"
    left_out = _OF_BODIES if response.status_code in BODILESS else _LEFT_OUT
    headers = [header for header in response.raw_headers if header[0] not in left_out]
    return AnswerHead(response.status_code, *headers), bytes(response.body)


def _log_names(exchange: Exchange) -> dict[str, str]:
    return names_in_log(exchange.request_id, exchange.request.headers.get(TRACEPARENT_HEADER))


def _overlap(one: str, other: str) -> bool:
    """Return whether a path may match both templates."""
    segments, others = one.split("/"), other.split("/")
    for mine, its in zip(segments, others, strict=False):
        if ":path}" in its:
            return True
        if not (mine == its or mine.startswith("{") or its.startswith("{")):
            return False
    return len(segments) == len(others)
