"""``make dist``: each distribution installs alone into an empty environment, and starts there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from support.patience import PATIENCE_SECONDS
from support.processes import ServiceProcess, clean_environment

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
WORKSPACE = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = WORKSPACE["project"]["version"]
MEMBERS = [
    tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]["name"]
    for member in WORKSPACE["tool"]["uv"]["workspace"]["members"]
]
NO_DATABASE = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
SERVICES = {
    "eruca-broker": {},
    "eruca-console": {},
    "eruca-controller": {"ERUCA_CONTROLLER_STORE": "file"},
    "eruca-namesrv": {},
    "eruca-query": NO_DATABASE,  # it waits for one, and answers meanwhile
    "eruca-txn-checker": NO_DATABASE,
}
COMMANDS = {
    "eruca-deploy": ("eruca-local", "--version"),
    "eruca-postgres": ("python", "-m", "eruca_postgres", "--version"),
}


def ran(*command: str | Path, **variables: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_SECONDS,
        env={**clean_environment(), **variables},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what ``make dist`` builds, built once."""
    directory = tmp_path_factory.mktemp("dist")
    ran(sys.executable, ROOT / "deploy" / "tools" / "dist.py", directory)
    return directory


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the locked versions of what others publish, which are in uv's cache."""
    file = tmp_path_factory.mktemp("locked") / "constraints.txt"
    command = ["export", "--quiet", "--frozen", "--all-packages", "--all-extras"]
    flags = ["--no-default-groups", "--no-hashes", "--no-emit-workspace", "--no-annotate"]
    file.write_text(ran(UV, *command, *flags, "--project", ROOT))
    return file


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the one place of all environments, which share what Python compiles there."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture
def install(
    dist: Path, locked: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """Return a function that installs a distribution alone, and returns its programs' folder."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(place / "compiled"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)

    def installed(name: str) -> Path:
        environment = place / "venv"
        ran(UV, "venv", "--quiet", "--clear", "--python", sys.executable, environment)
        ran(
            *(UV, "pip", "install", "--quiet", "--no-config", "--find-links", dist),
            *("--constraint", locked, "--python", environment / "bin" / "python"),
            f"{name}=={VERSION}",
        )
        return environment / "bin"

    return installed


def test_all_is_built_in_one_version(dist: Path) -> None:
    names = {name.replace("-", "_") for name in MEMBERS}
    wheels = {file.name.split("-")[0]: file.name.split("-")[1] for file in dist.glob("*.whl")}
    sdists = {file.name.removesuffix(".tar.gz") for file in dist.glob("*.tar.gz")}

    assert wheels == dict.fromkeys(names, VERSION)
    assert sdists == {f"{name}-{VERSION}" for name in names}


def test_the_parts_are_listed_with_their_licences(dist: Path) -> None:
    document = json.loads((dist / "eruca.cdx.json").read_text())

    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    licensed = {part["name"]: part.get("licenses") for part in document["components"]}
    assert all(found for name, found in licensed.items() if name != "eruca-workspace"), licensed
    assert licensed["fastapi"] == [{"expression": "MIT"}]
    assert "| fastapi | " in (dist / "LICENCES.md").read_text()


def test_the_broker_s_wheel_serves_every_python_of_a_platform(dist: Path, tmp_path: Path) -> None:
    [wheel] = dist.glob("eruca_broker-*.whl")
    assert "-py3-none-manylinux" in wheel.name

    with zipfile.ZipFile(wheel) as files:
        library = Path(files.extract("_eruca_broker.so", tmp_path))
    with library.open("rb") as file:
        parsed = ELFFile(file)
        dynamic: Any = parsed.get_section_by_name(".dynamic")
        names: Any = parsed.get_section_by_name(".dynsym")
        needed = [tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
        symbols = [symbol.name for symbol in names.iter_symbols()]
    assert set(needed) <= {"libc.so.6", "libm.so.6"}
    assert not [name for name in symbols if name.startswith(("Py", "_Py"))]


@pytest.mark.parametrize("name", MEMBERS)
def test_a_distribution_installs_alone_and_starts(
    name: str, install: Callable[[str], Path], tmp_path: Path
) -> None:
    programs = install(name)

    if name in SERVICES:
        assert ran(programs / name, "--version") == f"{name} {VERSION}\n"
        starts(programs / name, tmp_path, SERVICES[name])
    elif name in COMMANDS:
        program, *arguments = COMMANDS[name]
        assert ran(programs / program, *arguments).endswith(f" {VERSION}\n")
    elif name == "eruca-spark":
        done = subprocess.run(
            [programs / name, "--version"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stderr.startswith("eruca-spark needs Spark, which is not installed; install ")
    else:
        package = name.replace("-", "_")
        found = ran(programs / "python", "-c", f"import {package}; print({package}.__file__)")
        assert str(programs.parent) in found


def starts(program: Path, directory: Path, settings: dict[str, str]) -> None:
    """Run a service until it listens; it ends in order."""
    prefix = program.name.upper().replace("-", "_")
    port = {f"{prefix}_PORT": "0", f"{prefix}_LOG_STYLE": "json"}
    process = subprocess.Popen(
        [program],
        cwd=directory,
        env={**clean_environment(), **port, **settings, "PATH": os.defpath},
        stderr=subprocess.PIPE,
        text=True,
    )
    with ServiceProcess(process) as service:
        service.wait_until_listening()
        assert service.stop() == 0
