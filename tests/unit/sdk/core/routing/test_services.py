"""URLs of services: from the program, else the environment, else the name servers."""

from __future__ import annotations

import pytest

from eruca.contract.errors import ValidationError
from eruca.core.routing.services import QUERY_SERVICE


def test_a_program_is_heard_before_the_environment_and_both_may_say_nothing() -> None:
    environment = {"ERUCA_QUERY_URLS": "http://e:1;http://e:2"}

    assert QUERY_SERVICE.given(environment, "http://p:1/") == ("http://p:1",)
    assert QUERY_SERVICE.given(environment) == ("http://e:1", "http://e:2")
    assert QUERY_SERVICE.given({"ERUCA_QUERY_URLS": ""}) == ()


def test_an_error_says_who_named_what_is_no_url() -> None:
    with pytest.raises(ValidationError, match="ERUCA_QUERY_URLS: 'here' is not the URL of a query"):
        QUERY_SERVICE.given({"ERUCA_QUERY_URLS": "here"})
    with pytest.raises(ValidationError, match="expected a port from 1 to 65535, found 99999"):
        QUERY_SERVICE.given({"ERUCA_QUERY_URLS": "http://h:99999"})
    with pytest.raises(
        ValidationError, match="--query: no URL of a query service is given"
    ) as none:
        QUERY_SERVICE.given({}, "", "--query")
    assert none.value.fix == "give one, such as http://127.0.0.1:10931"


def test_entries_that_are_no_urls_are_passed_over() -> None:
    entries = {"b": "http://b:1", "a": "http://a:1/", "c": "call me", "d": "", "e": "http://[::1"}

    assert QUERY_SERVICE.told(entries) == ["http://a:1", "http://b:1"]
