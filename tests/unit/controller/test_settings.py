"""Settings of the stores, and faults that say how to fix them."""

from __future__ import annotations

import pytest

from eruca_chassis.running.settings import SettingsError
from eruca_controller.settings import ControllerSettings


def faults_of(monkeypatch: pytest.MonkeyPatch, **variables: str) -> list[str]:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as refused:
        ControllerSettings.load()
    return refused.value.faults


def test_postgres_is_the_default() -> None:
    settings = ControllerSettings.load()

    assert (settings.store, settings.port, settings.database_url) == ("postgres", 9878, None)


def test_etcd_needs_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    [fault] = faults_of(monkeypatch, ERUCA_CONTROLLER_STORE="etcd")

    assert fault.startswith("ERUCA_CONTROLLER_ETCD_URLS=")
    assert "expected one such as http://127.0.0.1:2379" in fault


def test_kubernetes_keeps_no_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    [fault] = faults_of(monkeypatch, ERUCA_CONTROLLER_STORE="kubernetes", ERUCA_AUTH="controller")

    assert fault.startswith("ERUCA_AUTH=controller: rules are kept in postgres, etcd or file")


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ERUCA_CONTROLLER_STORE", "zookeeper", "postgres"),
        ("ERUCA_CONTROLLER_ETCD_URLS", "127.0.0.1:2379", "expected http"),
        ("ERUCA_CONTROLLER_ETCD_PREFIX", "eruca", "ends with a slash"),
        ("DATABASE_URL", "mysql://localhost", "not a postgresql:// URL"),
        ("ERUCA_CONTROLLER_HISTORY_COUNT_MAX", "1", "changes kept"),
        ("ERUCA_CONTROLLER_STORES", "file", "did you mean ERUCA_CONTROLLER_STORE"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str
) -> None:
    [fault] = faults_of(monkeypatch, **{name: value})

    assert fault.startswith(name)
    assert text in fault
