"""The console's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca_chassis.running.settings import SettingsError
from eruca_console.settings import ConsoleSettings
from support.rules import write_rules


@pytest.mark.parametrize(
    "name",
    ["ERUCA_API_KEY", "ERUCA_API_KEY_FILE", "ERUCA_TOKEN_PROVIDER", "ERUCA_TLS_CERT_FILE"],
)
def test_without_rules_it_has_no_credentials_of_its_own(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Callers without a session would have them."""
    monkeypatch.setenv(name, "x")
    with pytest.raises(SettingsError, match=f"{name}: not without rules"):
        ConsoleSettings.load()

    monkeypatch.setenv("ERUCA_AUTH_FILE", str(write_rules(tmp_path / "rules.toml")))
    assert ConsoleSettings.load().has_rules


@pytest.mark.parametrize(
    ("advertised", "is_secure"),
    [(None, False), ("http://127.0.0.1:10941", False), ("https://console.example/", True)],
)
def test_a_proxys_https_makes_its_cookies_secure(
    advertised: str | None, *, is_secure: bool
) -> None:
    assert ConsoleSettings(advertised_url=advertised).is_secure is is_secure


@pytest.mark.parametrize(
    ("variables", "fault"),
    [
        ({"ISSUER": "https://id.example"}, "set both"),
        ({"CLIENT_ID": "console"}, "set both"),
        ({"ISSUER": "https://id.example", "CLIENT_ID": "console"}, "without rules"),
        ({"SCOPES": "profile"}, "OIDC_SCOPES"),
    ],
)
def test_a_log_in_at_an_issuer_is_set_as_a_whole(
    variables: dict[str, str], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"ERUCA_CONSOLE_OIDC_{name}", value)

    with pytest.raises(SettingsError, match=fault):
        ConsoleSettings.load()
