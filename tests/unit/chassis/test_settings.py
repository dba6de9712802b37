"""Settings: a wrong one names its variable, its value and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import SettingsConfigDict

from eruca_chassis.running.settings import (
    ServiceSettings,
    SettingsError,
    at_least,
    checked_segment,
)


def checked_place(place: str) -> str:
    if place == "nowhere":
        raise ValueError("Is no place")
    return place


class ThingSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_THING_")
    shared_variables: ClassVar[frozenset[str]] = frozenset({"TEST_THING_URLS"})

    colour: str = Field(default="red", min_length=2, description="how it looks")
    width: float = Field(default=1, le=100, description="metres")
    length: Annotated[float, at_least("width", times=2)] = Field(default=3, description="metres")
    place: Annotated[str, AfterValidator(checked_place)] = Field(
        default="here", validation_alias="SHARED_PLACE", repr=False, description="where it is"
    )


def test_an_ipv6_address_to_listen_on_may_stand_in_brackets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_THING_HOST", "[::1]")

    assert ThingSettings.load().host == "::1"


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_THING_PORT", "1234")
    monkeypatch.setenv("TEST_THING_URLS", "not ours")

    settings = ThingSettings.load()

    assert (settings.port, settings.colour, settings.host) == (1234, "red", "127.0.0.1")
    with pytest.raises(ValidationError, match="frozen"):
        settings.port = 1


def test_every_wrong_setting_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_THING_PORT", "99999")
    monkeypatch.setenv("TEST_THING_COLOUR", "x")
    monkeypatch.setenv("TEST_THING_CLOUR", "blue")
    monkeypatch.setenv("TEST_THING_QQQQQQQQ", "1")

    with pytest.raises(SettingsError) as refused:
        ThingSettings.load()

    misspelt, unknown, *wrong = refused.value.faults
    assert misspelt == "TEST_THING_CLOUR: unknown setting; did you mean TEST_THING_COLOUR?"
    assert unknown.startswith("TEST_THING_QQQQQQQQ: unknown setting; valid settings:")
    colour, port = sorted(wrong)
    assert port.startswith("TEST_THING_PORT=99999: input should be less than or equal to 65535")
    assert colour == (
        "TEST_THING_COLOUR=x: string should have at least 2 characters (how it looks)"
    )


def test_settings_that_do_not_fit_together_are_named_with_what_would(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_THING_WIDTH", "1.5")
    assert ThingSettings.load().length == 3

    monkeypatch.setenv("TEST_THING_WIDTH", "1.6")  # and the length is left at its default
    with pytest.raises(SettingsError) as refused:
        ThingSettings.load()
    assert refused.value.faults == [
        "TEST_THING_LENGTH=3: must be at least 2 times width, which is 1.6 (metres)"
    ]

    monkeypatch.setenv("TEST_THING_WIDTH", "101")
    with pytest.raises(SettingsError) as refused:
        ThingSettings.load()
    [fault] = refused.value.faults
    assert fault.startswith("TEST_THING_WIDTH=101: ")


@pytest.mark.parametrize("backlog", ["0", str(2**31)])
def test_a_backlog_that_no_kernel_takes_is_refused(
    monkeypatch: pytest.MonkeyPatch, backlog: str
) -> None:
    monkeypatch.setenv("TEST_THING_BACKLOG", backlog)

    with pytest.raises(SettingsError, match=f"TEST_THING_BACKLOG={backlog}: "):
        ThingSettings.load()


def test_a_misspelt_setting_alone_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_THING_PROT", "1")

    with pytest.raises(SettingsError, match="TEST_THING_PORT"):
        ThingSettings.load()


def test_a_setting_that_is_shared_has_its_own_variable_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHARED_PLACE", "there")
    assert ThingSettings.load().place == "there"
    monkeypatch.setenv("TEST_THING_PLACE", "elsewhere")

    with pytest.raises(SettingsError) as refused:
        ThingSettings.load()

    [fault] = refused.value.faults
    assert fault == "TEST_THING_PLACE: unknown setting; did you mean SHARED_PLACE?"


def test_a_value_that_may_be_secret_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARED_PLACE", "nowhere")

    with pytest.raises(SettingsError) as refused:
        ThingSettings.load()

    assert refused.value.faults == ["SHARED_PLACE: is no place (where it is)"]


@pytest.fixture
def secret_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "place"
    monkeypatch.setenv("SHARED_PLACE_FILE", str(file))
    return file


def test_a_file_may_have_the_value_that_may_be_secret(secret_file: Path) -> None:
    secret_file.write_text("there\n")

    assert ThingSettings.load().place == "there"


def test_a_secret_of_a_file_is_not_repeated_and_its_file_is_named(secret_file: Path) -> None:
    secret_file.write_text("nowhere")

    with pytest.raises(SettingsError) as refused:
        ThingSettings.load()

    assert refused.value.faults == ["SHARED_PLACE_FILE: is no place (where it is)"]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (None, "cannot read {}: No such file or directory"),
        (b"", "{} is empty; write the value of SHARED_PLACE into it"),
        (b"\xff", "{} is not a text in UTF-8"),
    ],
)
def test_a_file_without_a_secret_is_refused(
    secret_file: Path, content: bytes | None, fault: str
) -> None:
    if content is not None:
        secret_file.write_bytes(content)

    with pytest.raises(SettingsError) as refused:
        ThingSettings.load()

    assert refused.value.faults == ["SHARED_PLACE_FILE: " + fault.format(secret_file)]


def test_a_secret_is_set_in_one_way(secret_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret_file.write_text("there")
    monkeypatch.setenv("SHARED_PLACE", "elsewhere")

    with pytest.raises(SettingsError) as refused:
        ThingSettings.load()

    assert refused.value.faults == ["SHARED_PLACE_FILE: not with SHARED_PLACE; unset one of them"]


def test_a_fault_names_the_source_of_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_THING_PORT", "99999")
    monkeypatch.setenv("TEST_THING_COLOUR", "x")

    with pytest.raises(SettingsError) as refused:
        ThingSettings.load({"TEST_THING_PORT": "thing.toml: port"})

    colour, port = sorted(refused.value.faults)
    assert colour.startswith("TEST_THING_COLOUR=x: ")
    assert port.startswith("thing.toml: port=99999: input should be")


def test_a_name_of_dots_alone_is_refused() -> None:
    assert [checked_segment(name) for name in ("a", "..a", "a.")] == ["a", "..a", "a."]
    for name in (".", "..", "..."):
        with pytest.raises(ValueError, match="dots alone"):
            checked_segment(name)


def test_every_setting_is_described() -> None:
    assert all(field.description for field in ThingSettings.model_fields.values())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "mq-a.example"])
def test_without_rules_a_service_listens_on_this_machine_only(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("TEST_THING_HOST", host)
    with pytest.raises(SettingsError) as failed:
        ThingSettings.load()
    [fault] = failed.value.faults
    assert fault.startswith(f"TEST_THING_HOST={host}: ")
    assert "ERUCA_AUTH_FILE" in fault
    assert "ERUCA_AUTH=open" in fault


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_addresses_need_no_rules(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("TEST_THING_HOST", host)
    assert ThingSettings.load().host == host


def test_rules_of_the_controllers_need_their_urls_and_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ERUCA_AUTH", "controller")
    monkeypatch.setenv("ERUCA_AUTH_FILE", "rules.toml")
    with pytest.raises(SettingsError) as failed:
        ThingSettings.load()
    file, urls = failed.value.faults
    assert file.startswith("ERUCA_AUTH_FILE=rules.toml: not with ERUCA_AUTH=controller")
    assert urls.startswith("ERUCA_CONTROLLER_URLS: required")
    monkeypatch.delenv("ERUCA_AUTH_FILE")
    monkeypatch.setenv("ERUCA_CONTROLLER_URLS", "http://m1:9878;http://m2:9878")
    monkeypatch.setenv("TEST_THING_HOST", "0.0.0.0")
    settings = ThingSettings.load()
    assert settings.has_rules
    assert settings.policy_path.name == "policy.json"


@pytest.mark.parametrize("variable", [("ERUCA_AUTH", "open"), ("ERUCA_AUTH_FILE", "rules.toml")])
def test_rules_or_the_word_open_let_others_in(
    monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setenv("TEST_THING_HOST", "0.0.0.0")
    monkeypatch.setenv(*variable)
    assert ThingSettings.load().host == "0.0.0.0"
