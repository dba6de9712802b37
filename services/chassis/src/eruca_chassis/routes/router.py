"""A router whose operations declare what they need of their caller.

It takes ``needs=`` beside FastAPI's arguments, and refuses an operation without it. So no operation
can be forgotten.

Its routes are complete as they are declared: every application that takes the router answers by the
same routes. FastAPI works a route out (its parameters, models and validators) when it is first
requested or described. A service starts without that, and needs few of its routes soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.routing import APIRoute
from starlette.routing import compile_path

from eruca_chassis.admission.needs import Needs
from eruca_chassis.requests.json_members import check_members
from eruca_chassis.requests.parameters import check_parameters

OPERATION: Final = "eruca.operation"  # key in the scope: the operation that the gate has admitted

_EndpointT = TypeVar("_EndpointT", bound=Callable[..., Any])


class DeclaredRoute(APIRoute):
    """A route of FastAPI that knows its path and methods, and works the rest out once needed."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        **declared: Any,  # noqa: ANN401 - as FastAPI's route takes them
    ) -> None:
        self._declared: dict[str, Any] | None = declared
        self.path = path
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.endpoint = endpoint
        self.methods = {*(declared["methods"] or ("GET",))}
        self.name = declared["name"] or endpoint.__name__
        self.operation_id = declared["operation_id"]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        """Return an attribute that is not known yet."""
        declared, self._declared = self._declared, None
        if declared is None:
            raise AttributeError(name, name=name, obj=self)
        super().__init__(self.path, self.endpoint, **declared)
        return getattr(self, name)


class Router(APIRouter):
    """The ordinary routes of one resource; ``needs`` of each operation, by its id."""

    def __init__(
        self, *, prefix: str = "", tags: Sequence[str] = (), include_in_schema: bool = True
    ) -> None:
        super().__init__(
            prefix=prefix,
            tags=[*tags],
            include_in_schema=include_in_schema,
            route_class=DeclaredRoute,
            dependencies=[
                Depends(_check_operation),
                Depends(check_parameters),
                Depends(check_members),
            ],
            generate_unique_id_function=lambda route: route.name,
            strict_content_type=False,  # a body without a content type counts as JSON
        )
        self.needs: dict[str, Needs] = {}

    def get(  # type: ignore[override]  # FastAPI's arguments, and one more
        self,
        path: str,
        *,
        needs: Needs,
        **documentation: Any,  # noqa: ANN401 - as FastAPI's decorators take them
    ) -> Callable[[_EndpointT], _EndpointT]:
        """Declare a GET route."""
        return self._operation("GET", path, needs, documentation)

    def put(  # type: ignore[override]
        self,
        path: str,
        *,
        needs: Needs,
        **documentation: Any,  # noqa: ANN401
    ) -> Callable[[_EndpointT], _EndpointT]:
        """Declare a PUT route."""
        return self._operation("PUT", path, needs, documentation)

    def post(  # type: ignore[override]
        self,
        path: str,
        *,
        needs: Needs,
        **documentation: Any,  # noqa: ANN401
    ) -> Callable[[_EndpointT], _EndpointT]:
        """Declare a POST route."""
        return self._operation("POST", path, needs, documentation)

    def delete(  # type: ignore[override]
        self,
        path: str,
        *,
        needs: Needs,
        **documentation: Any,  # noqa: ANN401
    ) -> Callable[[_EndpointT], _EndpointT]:
        """Declare a DELETE route."""
        return self._operation("DELETE", path, needs, documentation)

    def declare(self, operation_id: str, needs: Needs) -> None:
        """Record what the operation *operation_id* needs."""
        assert operation_id not in self.needs, f"two operations are called {operation_id}"
        self.needs[operation_id] = needs

    def _operation(
        self, method: str, path: str, needs: Needs, documentation: dict[str, Any]
    ) -> Callable[[_EndpointT], _EndpointT]:
        def declare(endpoint: _EndpointT) -> _EndpointT:
            operation_id = documentation.get("operation_id") or endpoint.__name__
            self.declare(operation_id, needs)
            self.add_api_route(path, endpoint, methods=[method], **documentation)
            return endpoint

        return declare


def needs_of(routers: Iterable[APIRouter]) -> dict[str, Needs]:
    """Return what each operation of *routers* needs, by its id."""
    found: dict[str, Needs] = {}
    for router in routers:
        assert isinstance(router, Router), "every router is an eruca_chassis.routes.router.Router"
        assert found.keys().isdisjoint(router.needs), "an operation's id is unique in its service"
        found.update(router.needs)
    return found


def id_of(route: Any) -> str:  # noqa: ANN401 - as FastAPI has several kinds
    """Return the id of an operation in the document; the name of one that is not in it."""
    return getattr(route, "operation_id", None) or route.name or ""


async def _check_operation(request: Request) -> None:
    """Ensure that the router has found the operation about which the gate was asked."""
    if (asked := request.scope.get(OPERATION)) is not None:
        assert asked == id_of(request.scope["route"])
