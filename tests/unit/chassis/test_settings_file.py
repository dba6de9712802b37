"""A file of settings: it sets what the environment lacks, and a misspelt key is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import Field
from pydantic_settings import SettingsConfigDict

from eruca_chassis.running.settings import ServiceSettings, SettingsError
from eruca_chassis.running.settings_file import set_from_file


class ThingSettings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_THING_")

    colour: str = Field(default="red", description="how it looks")
    width: float = Field(default=1, description="metres")
    is_big: bool = Field(default=False, description="whether it is")
    place: str = Field(
        default="here", validation_alias="ERUCA_PLACE", repr=False, description="where it is"
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "thing.toml"


def refusals(file: Path) -> list[str]:
    """Return why the file is refused, without its path; it sets nothing."""
    environment: dict[str, str] = {}
    with pytest.raises(SettingsError) as refused:
        set_from_file(file, ThingSettings, environment)
    assert environment == {}
    return [fault.removeprefix(f"{file}: ") for fault in refused.value.faults]


def test_a_file_sets_the_service_s_variables_and_shared_ones(file: Path) -> None:
    file.write_text("""
        port = 1234
        colour = "blue"
        width = 2.5
        is_big = true
        allowed_hosts = ["thing.example", "*.lan"]
        [shared]
        place = "there"
        auth_file = "/etc/rules.toml"
        api_key_file = "/etc/key"
        tls_ca_file = "/etc/ca.pem"
    """)
    environment: dict[str, str] = {}

    sources = set_from_file(file, ThingSettings, environment)

    assert environment == {
        "TEST_THING_PORT": "1234",
        "TEST_THING_COLOUR": "blue",
        "TEST_THING_WIDTH": "2.5",
        "TEST_THING_IS_BIG": "true",
        "TEST_THING_ALLOWED_HOSTS": "thing.example;*.lan",
        "ERUCA_PLACE": "there",
        "ERUCA_AUTH_FILE": "/etc/rules.toml",
        "ERUCA_API_KEY_FILE": "/etc/key",
        "ERUCA_TLS_CA_FILE": "/etc/ca.pem",
    }
    assert sources.keys() == environment.keys()
    assert sources["TEST_THING_PORT"] == f"{file}: port"
    assert sources["ERUCA_AUTH_FILE"] == f"{file}: shared.auth_file"


def test_a_byte_order_mark_is_no_mistake(file: Path) -> None:
    file.write_text('colour = "blue"', encoding="utf-8-sig")
    environment: dict[str, str] = {}

    set_from_file(file, ThingSettings, environment)

    assert environment == {"TEST_THING_COLOUR": "blue"}


def test_the_environment_wins(file: Path) -> None:
    file.write_text('port = 1\ncolour = "blue"\n[shared]\nplace = "there"\nauth = "open"\n')
    environment = {"TEST_THING_PORT": "2", "ERUCA_PLACE_FILE": "/place", "ERUCA_AUTH": ""}

    sources = set_from_file(file, ThingSettings, environment)

    assert environment == {
        "TEST_THING_PORT": "2",
        "ERUCA_PLACE_FILE": "/place",  # the other spelling of the same setting
        "ERUCA_AUTH": "",
        "TEST_THING_COLOUR": "blue",
    }
    assert [*sources] == ["TEST_THING_COLOUR"]


def test_the_settings_are_loaded_with_the_file_s_name_in_their_faults(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {})
    file.write_text('port = 99999\nis_big = "perhaps"\n')
    sources = set_from_file(file, ThingSettings, os.environ)

    with pytest.raises(SettingsError) as refused:
        ThingSettings.load(sources)

    is_big, port = sorted(refused.value.faults)
    assert is_big.startswith(f"{file}: is_big=perhaps: ")
    assert port.startswith(f"{file}: port=99999: ")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("prot = 1", "prot: unknown setting; did you mean port?"),
        ('auth_file = "r"', "auth_file: unknown setting; did you mean shared.auth_file?"),
        ("[shared]\nport = 1", "shared.port: unknown setting; did you mean port?"),
        ("[shared]\nplac = 1", "shared.plac: unknown setting; did you mean shared.place?"),
        ("TEST_THING_PORT = 1", "TEST_THING_PORT: unknown setting; did you mean port?"),
        (
            "[shared]\nERUCA_AUTH = 1",
            "shared.ERUCA_AUTH: unknown setting; did you mean shared.auth?",
        ),
        ("[thing]\nport = 1", "thing: unknown setting; valid settings: allowed_hosts, "),
        ("port = 2020-01-01", "port: expected a text, a number, true, false, or an array of "),
        ('allowed_hosts = ["a;b"]', "allowed_hosts: expected a text, "),
        ("allowed_hosts = [1]", "allowed_hosts: expected a text, "),
        ('colour = "\\u0000"', "colour: expected a text, "),
        ("port = {a = 1}", "port: expected a text, "),
        ("port = ", "invalid TOML: "),
        ("port = " + "9" * 5000, "invalid TOML: a number has too many digits"),
        ("port = 0x" + "f" * 5000, "port: expected a text, "),
        ("port = " + "[" * 5000 + "]" * 5000, "invalid TOML: arrays or tables are nested too "),
    ],
)
def test_a_mistake_is_named_with_its_fix(file: Path, text: str, fault: str) -> None:
    file.write_text(text)

    [found] = refusals(file)

    assert found.startswith(fault)


def test_every_mistake_is_named_at_once(file: Path) -> None:
    file.write_text("prot = 1\ncolour = 2020-01-01\nwidth = 2")

    assert len(refusals(file)) == 2


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    assert refusals(file) == ["cannot be read: No such file or directory"]
    file.write_bytes(b"colour = '\xff'")
    assert refusals(file) == ["expected TOML, which is UTF-8"]
