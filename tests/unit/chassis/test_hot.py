"""Hot routes: found by method and shape, and never in place of another route."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_chassis.asgi import Receive, Scope, Send
from eruca_chassis.hot import HotRoute, HotRoutes


async def handler(scope: Scope, receive: Receive, send: Send) -> int:
    return 200


PARTS = HotRoute("POST", "/v1/things/{thing}/parts", handler)
PART = HotRoute("GET", "/v1/things/{thing}/parts/{part}", handler)
LIST = HotRoute("POST", "/v1/list", handler)
ROUTES = HotRoutes(PARTS, PART, LIST)


def found(method: str, path: str) -> tuple[HotRoute | None, object]:
    scope: Scope = {"method": method, "path": path}
    return ROUTES.find(scope), scope.get("path_params")


@pytest.mark.parametrize(
    ("method", "path", "route", "parameters"),
    [
        ("POST", "/v1/things/a%b c/parts", PARTS, {"thing": "a%b c"}),
        ("GET", "/v1/things/a/parts/7", PART, {"thing": "a", "part": "7"}),
        ("HEAD", "/v1/things/a/parts/7", PART, {"thing": "a", "part": "7"}),
        ("POST", "/v1/list", LIST, {}),
    ],
)
def test_a_request_finds_its_route_and_named_segments(
    method: str, path: str, route: HotRoute, parameters: dict[str, str]
) -> None:
    assert found(method, path) == (route, parameters)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/things/a/parts"),
        ("POST", "/v1/things//parts"),
        ("POST", "/v1/things/a/parts/"),
        ("POST", "/v2/things/a/parts"),
        ("POST", "/v1/things/a/other"),
        ("POST", "v1/things/a/parts"),
        ("POST", "/"),
        ("POST", ""),
    ],
)
def test_any_other_request_is_left_to_fastapi(method: str, path: str) -> None:
    assert found(method, path) == (None, None)


@given(path=st.text(alphabet="/avt1{}%", max_size=40), method=st.sampled_from(["GET", "POST"]))
def test_a_found_path_is_its_template_filled_in(path: str, method: str) -> None:
    scope: Scope = {"method": method, "path": path}
    route = ROUTES.find(scope)
    if route is not None:
        filled = route.template.format(**scope["path_params"])
        assert (filled, route.method) == (path, method)


def test_a_path_knows_all_methods_it_takes() -> None:
    assert ROUTES.methods("/v1/list") == {"POST"}
    assert ROUTES.methods("/v1/nothing") == set()
