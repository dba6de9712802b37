"""The broker's settings: what leads nowhere, or is none, stops the start."""

from __future__ import annotations

import pytest

from eruca_broker.settings import BrokerSettings, advertised_urls, split_hours
from eruca_chassis.running.settings import SettingsError


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        (
            "ADVERTISED_URL",
            "http://h:99999",
            "'http://h:99999': expected a port from 1 to 65535, found 99999",
        ),
        ("ADVERTISED_URL", "http://[::1", "'http://[::1': expected http(s)://HOST"),
        ("ADVERTISED_URL", "http://h;inside=http://a..b", "'inside=http://a..b': expected http(s)"),
        ("ADVERTISED_URL", "h:1", "expected [NAME=]http(s)://HOST:PORT, found 'h:1'"),
        (
            "NAMESRV_URLS",
            "http://h:1;http://10.0.0.256",
            "'http://10.0.0.256': expected an IP address or a name, found 10.0.0.256",
        ),
    ],
)
def test_a_url_that_leads_nowhere_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, fault: str
) -> None:
    monkeypatch.setenv(f"ERUCA_BROKER_{variable}", value)

    with pytest.raises(SettingsError) as refused:
        BrokerSettings.load()

    [line] = refused.value.faults
    assert line.startswith(f"ERUCA_BROKER_{variable}={value}: {fault}")


@pytest.mark.parametrize("hours", ["04,05", "24", "-1", "four", "4;005"])
def test_what_is_no_hour_is_refused(monkeypatch: pytest.MonkeyPatch, hours: str) -> None:
    monkeypatch.setenv("ERUCA_BROKER_DELETE_HOURS", hours)

    with pytest.raises(SettingsError) as refused:
        BrokerSettings.load()

    [line] = refused.value.faults
    assert line.startswith(
        f"ERUCA_BROKER_DELETE_HOURS={hours}: '{hours}': expected hours from 00 to 23, sep"
    )


@pytest.mark.parametrize("rate", ["1", "1048575", "-1"])
def test_a_rate_at_which_a_pull_would_take_minutes_is_refused(
    monkeypatch: pytest.MonkeyPatch, rate: str
) -> None:
    for variable in ("COLD_READ_RATE_MAX", "COLD_READ_RATE_OF_ONE"):
        monkeypatch.setenv(f"ERUCA_BROKER_{variable}", rate)

    with pytest.raises(SettingsError) as refused:
        BrokerSettings.load()

    assert len(refused.value.faults) == 2


def test_cold_reads_are_as_fast_as_the_disk_unless_they_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert BrokerSettings.load().cold_read_rate_max == 0
    monkeypatch.setenv("ERUCA_BROKER_COLD_READ_RATE_MAX", "1048576")
    assert BrokerSettings.load().cold_read_rate_max == 1024**2


def test_hours_are_written_with_one_digit_or_two() -> None:
    assert split_hours("4; 05;23;") == {4, 5, 23}
    assert split_hours("") == frozenset()


def test_a_name_that_no_url_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERUCA_BROKER_NAME", "..")

    with pytest.raises(SettingsError, match=r"ERUCA_BROKER_NAME=\.\.: string should match pattern"):
        BrokerSettings.load()


def test_a_broker_may_be_reached_at_several_urls() -> None:
    urls = advertised_urls("http://[::1]:10911/; inside=https://broker_a")

    assert urls == {"default": "http://[::1]:10911", "inside": "https://broker_a"}
