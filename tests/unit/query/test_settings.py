"""The query service's settings: where it says it is reached, and where its database is."""

from __future__ import annotations

import pytest

from eruca_chassis.running.settings import SettingsError
from eruca_query.settings import QuerySettings


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://h:99999", "expected a port from 1 to 65535, found 99999"),
        ("here", "expected http"),
        ("http://h/x", "expected http"),
    ],
)
def test_a_url_that_leads_nowhere_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, url: str, fault: str
) -> None:
    monkeypatch.setenv("ERUCA_QUERY_ADVERTISED_URL", url)

    with pytest.raises(SettingsError) as refused:
        QuerySettings.load()

    [line] = refused.value.faults
    assert line.startswith(f"ERUCA_QUERY_ADVERTISED_URL={url}: {fault}")


@pytest.mark.parametrize(
    ("urls", "fault"),
    [
        ("nonsense", "'nonsense': expected http(s)://HOST"),
        (
            "http://h:1;http://h:99999",
            "'http://h:99999': expected a port from 1 to 65535, found 99999",
        ),
        ("http://u:p@h:1", "'http://u:p@h:1': expected http(s)://HOST"),
        ("", "contains no URL; expected one such as http://127.0.0.1:9876"),
        (" ; ", "contains no URL; expected one such as http://127.0.0.1:9876"),
    ],
)
def test_name_servers_that_nobody_can_ask_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, urls: str, fault: str
) -> None:
    monkeypatch.setenv("ERUCA_QUERY_NAMESRV_URLS", urls)

    with pytest.raises(SettingsError) as refused:
        QuerySettings.load()

    [line] = refused.value.faults
    assert line.startswith(f"ERUCA_QUERY_NAMESRV_URLS={urls}: {fault}")


def test_a_slash_behind_the_url_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERUCA_QUERY_ADVERTISED_URL", "https://query.example:9880/")

    assert QuerySettings.load().advertised_url == "https://query.example:9880"


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://user:secret@host/database",
        "postgresql:secret",
        "postgresql://user:secret@host:secret/database",
        "postgresql://user:secret@[::1/database",
    ],
)
def test_what_is_no_database_url_stops_the_start_and_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)

    with pytest.raises(SettingsError) as refused:
        QuerySettings.load()

    [line] = refused.value.faults
    assert line.startswith("DATABASE_URL: not a postgresql:// URL (PostgreSQL, postgresql://USER")
    assert "secret" not in line


def test_an_empty_database_url_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "")

    assert QuerySettings.load().database_url is None
