"""``eruca auth``: keys are shown once, and the file stays its author's."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eruca.core.access.policy_text import parse_policy
from support.command_line import Eruca

RULES = """\
# Ours.
rules = [{ allow = ["produce"], on = ["topic:orders*"], to = ["user:shop"] }]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rules.toml"


@pytest.fixture
def eruca(file: Path) -> Eruca:
    command = Eruca("http://127.0.0.1:1")
    command.environment["ERUCA_AUTH_FILE"] = str(file)
    return command


def test_a_new_key_is_printed_once_and_stored_as_its_digest(eruca: Eruca, file: Path) -> None:
    key = eruca("auth", "key", "new", "user:shop", "--days=1").stdout.strip()
    [stored] = parse_policy(file.read_text()).keys
    assert stored.sha256 == hashlib.sha256(key.encode()).hexdigest()
    assert stored.expires_at is not None
    assert stored.created_at is not None
    assert stored.expires_at - stored.created_at == timedelta(days=1)
    assert file.stat().st_mode & 0o777 == 0o600
    assert key not in file.read_text()
    assert key[-43:] not in eruca("auth", "key", "list").output


def test_a_rotation_lets_the_old_key_live_for_a_while(eruca: Eruca, file: Path) -> None:
    file.write_text(RULES)
    file.chmod(0o640)
    old = eruca.json("auth", "key", "new", "user:shop")
    new = eruca.json("auth", "key", "rotate", old["id"], "--overlap=2")
    stored = {key.id: key for key in parse_policy(file.read_text()).keys}
    assert stored.keys() == {old["id"], new["id"]}
    ends = stored[old["id"]].expires_at
    assert ends is not None
    assert timedelta(hours=1) < ends - datetime.now(UTC) <= timedelta(hours=2)
    assert stored[new["id"]].expires_at is None
    eruca("auth", "key", "revoke", old["id"])
    assert [key.id for key in parse_policy(file.read_text()).keys] == [new["id"]]
    assert file.read_text().startswith(RULES)
    assert file.stat().st_mode & 0o777 == 0o640


def test_what_a_file_says_is_explained(eruca: Eruca, file: Path) -> None:
    file.write_text(RULES)
    rule = "grant produce on topic:orders* to user:shop"
    assert rule in eruca("auth", "show").stdout
    assert rule in eruca("auth", "explain", "user:shop", "produce", "topic:orders-eu").stdout
    refused = eruca("auth", "explain", "user:shop", "consume", "topic:orders", code=1)
    assert "to allow it: grant consume on topic:orders to user:shop" in refused.output
    assert "user:shop has rules, but no key" in eruca("auth", "check").output


@pytest.mark.parametrize("text", ["rules = 1", "[", "[[rules]]\nallow = ['fly']"])
def test_a_file_with_a_mistake_is_refused(eruca: Eruca, file: Path, text: str) -> None:
    file.write_text(text)
    assert "error: " in eruca("auth", "check", code=1).output
    eruca("auth", "key", "new", "user:shop", code=1)
    assert file.read_text() == text


@pytest.mark.parametrize(
    "arguments",
    [
        ("key", "new", "shop"),
        ("explain", "shop", "produce", "topic:a"),
        ("explain", "user:shop", "fly", "topic:a"),
        ("explain", "user:shop", "produce", "queue:a"),
    ],
)
def test_wrong_words_are_wrong_usage(eruca: Eruca, file: Path, arguments: tuple[str, ...]) -> None:
    file.write_text(RULES)
    assert "input_value" not in eruca("auth", *arguments, code=2).output


def test_without_a_file_the_command_says_how_to_name_one(
    eruca: Eruca, monkeypatch: pytest.MonkeyPatch
) -> None:
    del eruca.environment["ERUCA_AUTH_FILE"]
    monkeypatch.delenv("ERUCA_AUTH_FILE", raising=False)
    assert "ERUCA_AUTH_FILE" in eruca("auth", "check", code=2).output
