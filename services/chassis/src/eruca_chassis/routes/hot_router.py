"""Declare a hot route: by one class, beside the ordinary routes of its resource.

A decorator of the resource's router declares a hot endpoint, with the arguments that FastAPI's
decorators take for the document. The endpoint is a class with a method for each state of a
request::

    state            method   task
    ---------------  -------  ---------------------------------------------------------------
    head received    read     Interpret the head, or refuse it. Its signature declares path,
                              query and headers, for the document and for the request alike.
    head read        admit    Refuse by facts that may change, or request the body.
    body received    handle   Answer, at once or later (:mod:`eruca_chassis.connections.exchange`).

``read`` is a function of the head alone. Its result is ``request.meaning``, and holds for every
request with the same head.

Invariants:

- A route is declared once. Method, path, parameters, limits of numbers and media types of the body
  are the same in the document and in the dispatch.
- No request reaches an endpoint before :meth:`eruca_chassis.app.ServiceApp.open_routes`. The
  service is not ready before.
- The constructor's parameters declare the service's parts that an endpoint works with
  (:mod:`.parts`). The endpoint is made once.
- FastAPI's router knows the path, so that another method is 405 and not 404, counted by the path's
  template. It never answers the route itself.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, TypeVar

from fastapi import Response
from starlette.routing import Match
from starlette.types import Scope

from eruca_chassis.admission.needs import Needs
from eruca_chassis.connections.exchange import UNREAD, Exchange, RequestHead
from eruca_chassis.connections.gathered import Gathers
from eruca_chassis.connections.hot import Step
from eruca_chassis.documents.schemas import Content, described
from eruca_chassis.requests.heads import HeadReader
from eruca_chassis.requests.model_heads import ModelHeads
from eruca_chassis.requests.negotiation import body_type
from eruca_chassis.routes.parts import Parts
from eruca_chassis.routes.router import DeclaredRoute, Router

_EndpointT = TypeVar("_EndpointT", bound="type[HotEndpoint]")
_TAKES_ITS_HEAD: Final = "its first parameter is the request's head"


class HotEndpoint(ABC):
    """Answers one operation; its docstring is the operation's description."""

    read: ClassVar[Callable[..., Any]]
    """Return the meaning of a head, given the head and, by name, the parameters in it.

    A static method, which refuses by raising. Numbers and choices are within their declared limits;
    texts are unchecked, unless the route *checks_texts*.
    """

    def admit(self, exchange: Exchange) -> None:  # noqa: B027 - there may be neither
        """Request the body, or refuse the request by raising."""

    def gathers(self, head: RequestHead) -> Gathers | None:
        """Return how the endpoint gathers complete requests with a head that is read.

        None: each is an exchange. It is a function of the head alone, as ``read`` is.
        """
        return None

    @abstractmethod
    def handle(self, exchange: Exchange) -> None:
        """Answer a request whose body is whole."""


@dataclass(frozen=True, slots=True)
class HotOperation:
    """A declared hot route, of every application that includes its router."""

    id: str  # in the document
    method: str
    template: str
    endpoint: type[HotEndpoint]
    route: _KnownRoute
    media_types: tuple[str, ...]  # of the body; empty: there is none

    def open(self, parts: Parts) -> tuple[Step, Step]:
        """Return the functions that admit and handle requests, by an endpoint made of *parts*."""
        endpoint = parts.make(self.endpoint)
        interpret, route, media_types = self.endpoint.read, self.route, self.media_types
        admit_read, gathers = endpoint.admit, endpoint.gathers

        def admit(exchange: Exchange) -> None:
            head = exchange.request
            if head.meaning is UNREAD:
                if media_types:
                    head.media_type = body_type(head.headers, media_types)
                given = route.reader.read(head.parameters, head.query, head.headers)
                head.meaning = interpret(head, **given)
                head.gathers = gathers(head)
            admit_read(exchange)

        return admit, endpoint.handle


class HotRouter(Router):
    """The routes of one resource: FastAPI's ordinary ones, and hot ones."""

    def __init__(self, *, prefix: str = "", tags: Sequence[str] = ()) -> None:
        super().__init__(prefix=prefix, tags=[*tags])
        self.hot_operations: list[HotOperation] = []

    def hot(
        self,
        method: str,
        path: str,
        *,
        needs: Needs,
        takes: Sequence[Content] = (),
        checks_texts: bool = False,
        **documentation: Any,  # noqa: ANN401 - as FastAPI's decorators take them
    ) -> Callable[[_EndpointT], _EndpointT]:
        """Declare a hot route, answered by the decorated :class:`HotEndpoint`.

        Args:
            method: GET, POST ….
            path: Below the router's prefix. It may end in ``{thing}:verb``.
            needs: What it needs of its caller.
            takes: The forms that the body may have; empty: there is none.
            checks_texts: Whether every parameter is checked as FastAPI would
                (:mod:`eruca_chassis.requests.model_heads`), texts included.
            documentation: ``operation_id``, ``summary``, ``status_code``, ``responses`` …
        """
        assert not needs.is_act, "a hot endpoint requires the right of an act itself"

        def declare(endpoint: _EndpointT) -> _EndpointT:
            self.add_api_route(
                path,
                _signature_of(endpoint),
                methods=[method],
                response_class=Response,
                route_class_override=_KnownRoute,
                openapi_extra=_request_body(takes),
                **documentation,
            )
            [*_, route] = self.routes
            assert isinstance(route, _KnownRoute)
            route.checks_texts = checks_texts
            self.declare(route.operation_id or endpoint.__name__, needs)
            self.hot_operations.append(
                HotOperation(
                    route.operation_id or endpoint.__name__,
                    method,
                    route.path,
                    endpoint,
                    route,
                    tuple(content.media_type for content in takes),
                )
            )
            return endpoint

        return declare


class _KnownRoute(DeclaredRoute):
    """A hot route in FastAPI's router: matches other methods alone, which are 405.

    The hot route itself is dispatched before. A path that matches here with the route's own method
    is not the hot route's, such as one that ends in a line break.
    """

    checks_texts = False

    @cached_property
    def reader(self) -> HeadReader | ModelHeads:
        """The reader of heads by the route's signature."""
        return ModelHeads(self.dependant) if self.checks_texts else HeadReader(self.dependant)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child_scope = super().matches(scope)
        return (Match.NONE, {}) if match is Match.FULL else (match, child_scope)


def _signature_of(endpoint: type[HotEndpoint]) -> Callable[..., Any]:
    """Return a function with the parameters and the description of *endpoint*, for FastAPI."""

    async def never() -> None:
        raise AssertionError("FastAPI answers a hot route")

    signature = inspect.signature(endpoint.read, eval_str=True)
    head, *parameters = signature.parameters.values()
    assert head.name == "head", _TAKES_ITS_HEAD
    never.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=inspect.Signature.empty
    )
    never.__name__ = endpoint.__name__
    never.__doc__ = endpoint.__doc__
    return never


def _request_body(takes: Sequence[Content]) -> dict[str, Any] | None:
    return {"requestBody": {"required": True, "content": described(*takes)}} if takes else None
