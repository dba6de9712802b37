"""A transaction producer's settings, and its sources of checker URLs."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.contract.errors import ValidationError
from eruca.core.producing.transaction_settings import TransactionSettings


def urls(environment: dict[str, str], given: Any = None) -> tuple[str, ...]:  # noqa: ANN401
    settings = TransactionSettings.resolve(
        environment,
        "group",
        check=None,
        check_concurrency=1,
        checker_urls=given,
        latency_fault=False,
        retries_max=0,
        send_timeout_seconds=1,
        decision_timeout_seconds=1,
    )
    return settings.checker_urls


def test_what_is_given_wins_over_the_environment_and_name_servers_tell_else() -> None:
    environment = {"ERUCA_TXN_CHECKER_URLS": "http://a:1;http://b:2/;"}

    assert urls(environment, "http://c:3") == ("http://c:3",)
    assert urls(environment, ["http://c:3", "http://d:4"]) == ("http://c:3", "http://d:4")
    assert urls(environment) == ("http://a:1", "http://b:2")
    assert urls({"ERUCA_TXN_CHECKER_URLS": ""}) == ()
    assert urls({}) == ()


def test_an_error_says_where_the_value_came_from() -> None:
    with pytest.raises(ValidationError, match=r"ERUCA_TXN_CHECKER_URLS: 'ftp://a' is not the URL"):
        urls({"ERUCA_TXN_CHECKER_URLS": "ftp://a"})
    with pytest.raises(ValidationError, match="checker_urls: no URL of a transaction checker"):
        urls({}, [])
