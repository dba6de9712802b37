"""Hot routes: found by method and shape, and never in place of another route."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_chassis.connections.exchange import Exchange, Found
from eruca_chassis.connections.hot import KNOWN_PATHS_MAX, HotRoute, HotRoutes


def handler(exchange: Exchange) -> None:
    raise AssertionError


PARTS = HotRoute("POST", "/v1/things/{thing}/parts", handler)
PART = HotRoute("GET", "/v1/things/{thing}/parts/{part}", handler)
LIST = HotRoute("POST", "/v1/list", handler)
REPAIR = HotRoute("POST", "/v1/things/{thing}:repair", handler)
BREAK = HotRoute("POST", "/v1/things/{thing}:break", handler)
ROUTES = HotRoutes(PARTS, PART, LIST, REPAIR, BREAK)


@pytest.mark.parametrize(
    ("method", "path", "route", "parameters"),
    [
        ("POST", "/v1/things/a%b c/parts", PARTS, {"thing": "a%b c"}),
        ("GET", "/v1/things/a/parts/7", PART, {"thing": "a", "part": "7"}),
        ("HEAD", "/v1/things/a/parts/7", PART, {"thing": "a", "part": "7"}),
        ("POST", "/v1/list", LIST, {}),
        ("POST", "/v1/things/a:repair", REPAIR, {"thing": "a"}),
        ("POST", "/v1/things/a:repair:break", BREAK, {"thing": "a:repair"}),
    ],
)
def test_a_request_finds_its_route_and_named_segments(
    method: str, path: str, route: HotRoute, parameters: dict[str, str]
) -> None:
    assert ROUTES.find(method, path) == Found(route, parameters)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/things/a/parts"),
        ("POST", "/v1/things//parts"),
        ("POST", "/v1/things/a/parts/"),
        ("POST", "/v1/things/:repair"),
        ("POST", "/v1/things/a:turn"),
        ("GET", "/v1/things/a:repair"),
        ("POST", "/v2/things/a/parts"),
        ("POST", "/v1/things/a/other"),
        ("POST", "v1/things/a/parts"),
        ("POST", "/"),
        ("POST", ""),
    ],
)
def test_any_other_request_is_left_to_fastapi(method: str, path: str) -> None:
    assert ROUTES.find(method, path) is None
    assert ROUTES.find_raw(method.encode(), path.encode()) is None


@given(path=st.text(alphabet="/avt1{}%", max_size=40), method=st.sampled_from(["GET", "POST"]))
def test_a_found_path_is_its_template_filled_in(path: str, method: str) -> None:
    found = ROUTES.find(method, path)
    if found is not None:
        assert found.route in [route for route in ROUTES.routes if route.method == method]
        assert found.route.template.format(**found.parameters) == path


@pytest.mark.parametrize(
    ("path", "thing"),
    [
        (b"/v1/things/a/parts", "a"),
        (b"/v1/things/a%20b%C3%BC/parts", "a bü"),
        (b"/v1/things/a+b/parts", "a+b"),
    ],
)
def test_a_raw_path_is_decoded_and_found_the_same_the_second_time(path: bytes, thing: str) -> None:
    for _ in range(2):
        assert ROUTES.find_raw(b"POST", path) == Found(PARTS, {"thing": thing})


@pytest.mark.parametrize(
    "path",
    [
        b"http://host/v1/things/a/parts",
        b"/v1/things/a/parts#there",
        b"/v1%2Fthings/a/parts",
        b"/v1/things/a%2fb/parts",
        b"/v1/things/a#/parts",
        b"//v1/things/a/parts",
        b"/v1/things/\xc3\xbc/parts",
        b"/v1/things/" + b"a" * 600 + b"/parts",
        b"*",
    ],
)
def test_a_raw_path_in_an_unusual_form_is_not_found(path: bytes) -> None:
    assert ROUTES.find_raw(b"POST", path) is None


def test_paths_that_are_asked_for_once_do_not_pile_up() -> None:
    routes = HotRoutes(PARTS)
    for number in range(3 * KNOWN_PATHS_MAX):
        assert routes.find_raw(b"POST", b"/v1/things/%d/parts" % number)

    assert len(routes._known) <= KNOWN_PATHS_MAX
