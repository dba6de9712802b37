"""``eruca auth`` at a controller: from nothing to an administrator, then each command."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from eruca_deploy.ports import free_ports
from support.command_line import Eruca
from support.forked import started_by_fork
from support.patience import PATIENCE_SECONDS
from support.waiting import wait_until

ANN: Final = "user:ann"
RULES: Final = """\
rules = [{ allow = ["produce"], on = ["topic:orders*"], to = ["user:shop"] }]

[roles]
administrator = ["user:ann"]
name-server = ["service:name-server"]
"""


@pytest.fixture
def eruca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Eruca]:
    """The command of ann, with a controller that started with what ``init`` made."""
    monkeypatch.delenv("ERUCA_AUTH_FILE", raising=False)
    command = Eruca("http://127.0.0.1:1")
    command("auth", "init", str(tmp_path / "auth"), f"--administrator={ANN}")
    [port] = free_ports("127.0.0.1", 1)
    settings = {
        "ERUCA_AUTH": "controller",
        "ERUCA_AUTH_FILE": str(tmp_path / "auth" / "rules.toml"),
        "ERUCA_CONTROLLER_STORE": "file",
        "ERUCA_CONTROLLER_FILE": str(tmp_path / "controller" / "groups.json"),
        "ERUCA_CONTROLLER_POLICY_FILE": str(tmp_path / "controller" / "policy.json"),
        "ERUCA_CONTROLLER_PORT": str(port),
    }
    command.environment |= {
        "ERUCA_CONTROLLER_URLS": f"http://127.0.0.1:{port}",
        "ERUCA_API_KEY_FILE": str(tmp_path / "auth" / "administrator.key"),
    }
    with started_by_fork("eruca_controller", settings) as process:
        process.wait_until_listening()
        wait_until(lambda: httpx.get(f"{process.url}/readyz").status_code == 200)
        yield command


def test_init_makes_private_files_and_overwrites_nothing(tmp_path: Path) -> None:
    command = Eruca("http://127.0.0.1:1")
    shown = command.json("auth", "init", str(tmp_path / "auth"), f"--administrator={ANN}")
    files = [Path(shown["rules"]), *map(Path, shown["keys"].values())]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert (tmp_path / "auth").stat().st_mode & 0o777 == 0o700
    text = files[0].read_text()
    assert not any(Path(key).read_text().strip() in text for key in shown["keys"].values())
    assert "exists already" in command("auth", "init", str(tmp_path / "auth"), code=1).output
    assert files[0].read_text() == text


def test_rules_are_tried_applied_and_shown(eruca: Eruca, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    tried = eruca("auth", "apply", str(file), "--dry-run").output
    assert "user:shop gains produce on topic:orders*" in tried
    assert "service:broker loses query on cluster" in tried
    assert "nothing has been changed" in tried
    assert "user:shop" not in eruca("auth", "show").stdout
    applied = eruca("auth", "apply", str(file), "--reason=the shop", "--yes").output
    assert "is in force" in applied
    assert "grant produce on topic:orders* to user:shop" in eruca("auth", "show").stdout
    assert "nothing changes" in eruca("auth", "apply", str(file)).output
    assert eruca("auth", "explain", "user:shop", "produce", "topic:orders-eu").exit_code == 0
    newest, first = eruca.json("auth", "history")
    assert (newest["by"], newest["reason"]) == (ANN, "the shop")
    assert first["number"] == 1
    assert "user:shop has rules, but no key" in eruca("auth", "check").output


def test_it_asks_before_it_takes_rights_away(eruca: Eruca, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    more = 'rules = [{ allow = ["query"], on = ["topic:a"], to = ["user:shop"] }]\n'
    first = (tmp_path / "auth" / "rules.toml").read_text()
    file.write_text(more + first)
    eruca("auth", "apply", str(file))  # nobody loses anything
    file.write_text(first)
    refused = eruca("auth", "apply", str(file), code=2).output
    assert "user:shop loses query on topic:a" in refused
    assert "give --yes" in refused.replace("\n", " ")
    assert answered(eruca, file, "n") == 1
    assert "query on topic:a" in eruca("auth", "show").stdout
    assert answered(eruca, file, "y") == 0
    assert "query on topic:a" not in eruca("auth", "show").stdout
    file.write_text(more + first)
    eruca("auth", "apply", str(file))
    file.write_text(first)
    assert eruca.json("auth", "apply", str(file), "--yes")["number"] == 5


def answered(eruca: Eruca, file: Path, answer: str) -> int:
    """Apply *file* at a terminal, answer the question, and return the exit code."""
    ours, its = pty.openpty()
    with (
        eruca.start("auth", "apply", str(file), stdin=its) as process,
        os.fdopen(ours, "w") as terminal,
        os.fdopen(its),
    ):
        assert process.stderr is not None
        question = "Take something away from user:shop? [y/N]:"
        assert process.stderr.read(len(question)) == question
        terminal.write(f"{answer}\n")
        terminal.flush()
        return process.wait(PATIENCE_SECONDS)


def test_keys_are_made_rotated_and_revoked(eruca: Eruca, tmp_path: Path) -> None:
    old = eruca.json("auth", "key", "new", "user:shop")
    new = eruca.json("auth", "key", "rotate", old["id"], "--overlap=2")
    listed = {key["id"]: key for key in eruca.json("auth", "key", "list")}
    assert listed[old["id"]]["expires_at"] is not None
    assert listed[new["id"]]["expires_at"] is None
    eruca("auth", "key", "revoke", old["id"])
    assert old["id"] not in {key["id"] for key in eruca.json("auth", "key", "list")}
    assert "there is no key" in eruca("auth", "key", "revoke", old["id"], code=1).output
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    eruca("auth", "apply", str(file), "--yes")
    assert new["id"] in {key["id"] for key in eruca.json("auth", "key", "list")}


def test_an_administrator_does_not_lock_himself_out(eruca: Eruca, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES.replace("user:ann", "user:bob"))
    assert "could not change" in eruca("auth", "apply", str(file), "--dry-run", code=1).output
    assert "could not change" in eruca("auth", "apply", str(file), code=1).output
    assert "bob" not in eruca("auth", "show").stdout


def test_the_copy_of_a_service_brings_rules_and_keys_back(eruca: Eruca, tmp_path: Path) -> None:
    kept = tmp_path / "controller" / "policy.json"
    made = eruca.json("auth", "key", "new", "user:shop")
    copy = tmp_path / "copy.json"
    wait_until(lambda: made["id"] in kept.read_text())
    copy.write_text(kept.read_text())
    eruca("auth", "key", "revoke", made["id"])
    assert "valid: " in eruca("auth", "check", str(copy)).output
    shown = eruca("auth", "apply", str(copy), "--keys", "--above=41", "--yes").output
    assert f"key {made['id']} of user:shop is added" in shown
    assert eruca.json("auth", "history")[0]["number"] == 42
    assert made["id"] in {key["id"] for key in eruca.json("auth", "key", "list")}


def test_the_schema_is_that_of_the_file(eruca: Eruca) -> None:
    assert "properties" in eruca("auth", "schema").stdout


def test_two_versions_are_compared_and_one_is_brought_back(eruca: Eruca, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    eruca("auth", "apply", str(file), "--yes")
    made = eruca.json("auth", "key", "new", "user:shop")

    compared = eruca("auth", "diff", "1", "2", code=1).stdout
    assert compared.startswith("--- version 1-")
    assert "+ grant produce on topic:orders* to user:shop" in compared
    assert "  user:shop gains produce on topic:orders*" in compared
    assert eruca("auth", "diff", "2", "2").exit_code == 0
    assert eruca.json("auth", "diff", "3")["lines"] == []
    assert "no version 99" in eruca("auth", "diff", "1", "99", code=1).output

    tried = eruca("auth", "restore", "1", "--dry-run").output
    assert "user:shop loses produce on topic:orders*" in tried
    assert "give --yes" in eruca("auth", "restore", "1", code=2).output.replace("\n", " ")
    assert eruca.json("auth", "restore", "1", "--yes")["number"] == 4
    assert "topic:orders*" not in eruca("auth", "show").stdout
    assert made["id"] in {key["id"] for key in eruca.json("auth", "key", "list")}
    assert eruca.json("auth", "history")[0]["reason"] == "the rules of version 1 again"
