"""Settings: arguments before the environment before defaults, and errors that say which."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.contract.errors import ValidationError
from eruca.core.client_settings import ClientSettings

ENVIRONMENT = {
    "ERUCA_NAMESRV_URLS": "http://a:1;https://b:2/",
    "ERUCA_NETWORK": "internal",
    "ERUCA_TIMEOUT_SECONDS": "7.5",
    "ERUCA_STANDBY_FROM_BYTES": "0",
}


def test_without_anything_there_are_defaults() -> None:
    assert ClientSettings.resolve({}) == ClientSettings(
        ("http://127.0.0.1:9876",), "default", 3.0, standby_from_bytes=1024**3
    )


def test_the_environment_comes_before_defaults() -> None:
    assert ClientSettings.resolve(ENVIRONMENT) == ClientSettings(
        ("http://a:1", "https://b:2"), "internal", 7.5, standby_from_bytes=0
    )


def test_arguments_come_before_the_environment() -> None:
    settings = ClientSettings.resolve(
        ENVIRONMENT,
        namesrv_urls="http://c:3",
        network="public",
        timeout_seconds=1,
        standby_from_bytes=5,
    )

    assert settings == ClientSettings(("http://c:3",), "public", 1, standby_from_bytes=5)


@pytest.mark.parametrize(
    "urls", ["http://a:1;http://b:2", " http://a:1/ ; ;http://b:2", ["http://a:1", "http://b:2"]]
)
def test_several_name_servers_come_as_one_text_or_as_a_list(urls: str | list[str]) -> None:
    assert ClientSettings.resolve({}, namesrv_urls=urls).namesrv_urls == (
        "http://a:1",
        "http://b:2",
    )


def test_a_name_server_that_is_given_twice_is_asked_once() -> None:
    assert len(ClientSettings.resolve({}, namesrv_urls="http://a:1;http://a:1/").namesrv_urls) == 1


def test_who_parts_name_servers_by_commas_is_told_how_to() -> None:
    with pytest.raises(ValidationError, match="http://a:1,http://b:2") as caught:
        ClientSettings.resolve({}, namesrv_urls="http://a:1,http://b:2")
    assert "';'" in (caught.value.fix or "")


def test_empty_variables_count_as_not_set() -> None:
    empty = dict.fromkeys(ENVIRONMENT, "")

    assert ClientSettings.resolve(empty) == ClientSettings.resolve({})


@pytest.mark.parametrize(
    ("environment", "arguments", "source"),
    [
        ({}, {"namesrv_urls": "127.0.0.1:9876"}, "namesrv_urls"),
        ({}, {"namesrv_urls": "http://a:1/path"}, "namesrv_urls"),
        ({}, {"namesrv_urls": []}, "namesrv_urls"),
        ({"ERUCA_NAMESRV_URLS": "ftp://a"}, {}, "ERUCA_NAMESRV_URLS"),
        ({"ERUCA_TIMEOUT_SECONDS": "soon"}, {}, "ERUCA_TIMEOUT_SECONDS"),
        ({"ERUCA_TIMEOUT_SECONDS": "0"}, {}, "ERUCA_TIMEOUT_SECONDS"),
        ({"ERUCA_TIMEOUT_SECONDS": "inf"}, {}, "ERUCA_TIMEOUT_SECONDS"),
        ({}, {"timeout_seconds": -1}, "timeout_seconds"),
        ({"ERUCA_STANDBY_FROM_BYTES": "1 GiB"}, {}, "ERUCA_STANDBY_FROM_BYTES"),
        ({}, {"standby_from_bytes": -1}, "standby_from_bytes"),
        ({}, {"timeout_seconds": float("nan")}, "timeout_seconds"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(
    environment: dict[str, str], arguments: dict[str, Any], source: str
) -> None:
    with pytest.raises(ValidationError, match=f"^{source}: "):
        ClientSettings.resolve(environment, **arguments)
