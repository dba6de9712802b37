"""``make floors``: the SDK's unit tests with its lowest dependencies, and on every Python here.

The first environment has the lowest version of each direct dependency, extras included. There is
one more environment for every other installed CPython that the SDK supports, with the locked
versions. A missing Python is reported and skipped; none is downloaded. Environments are in
``.venv/floors``.

Exit codes: 0 all passed, 1 a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SDK: Final = "./sdk[arrow,backup,cli,fast,otel,prometheus]"
UV: Final = Path(sys.executable).with_name("uv")
TOOLS: Final = (
    "anyio",
    "cryptography",  # the authority of TLS tests
    "hypothesis",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "sqlalchemy",  # the inbox uses connections of the program
    "tzdata",
)
"""Packages that the tests need in addition to the SDK's."""
TESTS: Final = "tests/unit/sdk"
WORKERS: Final = min(os.cpu_count() or 1, 4)
_IDENTITY: Final = "import sys; print(sys.implementation.name, *sys.version_info[:2])"


def main() -> int:
    """Test in every environment; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", help="'lowest', or a version of Python such as 3.12")
    only = parser.parse_args().only
    supported = supported_versions()
    lowest = supported[0]
    pythons = dict(found_pythons())
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    pythons.setdefault(here, sys.executable)
    environments = directory_of_environments()
    constraints = environments / "locked.txt"
    constraints.write_text(locked())

    passed = []
    if only in (None, "lowest"):
        python = pythons.get(lowest, sys.executable)
        _say(f"lowest direct dependencies: {python}")
        directory = made("lowest", python)
        install(directory, "--resolution=lowest-direct", "--editable", SDK)
        # A separate step: the tests' tools are not the SDK's dependencies.
        install(directory, f"--constraint={constraints}", *TOOLS)
        passed.append(tests_pass(directory))
    for version in supported:
        if version == here or only not in (None, version):
            continue  # `make test` uses this one
        if version not in pythons:
            _say(f"Python {version}: skipped, not found on PATH or in pyenv's versions")
            continue
        _say(f"Python {version}, locked dependencies: {pythons[version]}")
        directory = made(version, pythons[version])
        install(directory, f"--constraint={constraints}", "--editable", SDK, *TOOLS)
        passed.append(tests_pass(directory))
    return 0 if all(passed) else 1


def supported_versions() -> list[str]:
    """Return the Python versions in the SDK's classifiers, lowest first."""
    project = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text())["project"]
    prefix = "Programming Language :: Python :: 3."
    minors = [
        int(name.removeprefix(prefix)) for name in project["classifiers"] if name.startswith(prefix)
    ]
    return [f"3.{minor}" for minor in sorted(minors)]


def found_pythons() -> Iterator[tuple[str, str]]:
    """Yield the version and path of each CPython of this machine that starts."""
    listed = subprocess.run(
        [UV, "python", "list", "--only-installed", "--no-python-downloads", "--output-format=json"],
        capture_output=True,
        check=True,
    )
    candidates = [str(python["path"]) for python in json.loads(listed.stdout)]
    # pyenv's shims on PATH start only the versions that are selected.
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates += [str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python"))]
    for candidate in candidates:
        try:
            said = subprocess.run([candidate, "-c", _IDENTITY], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        if match := re.fullmatch(rb"cpython (\d+) (\d+)", said.stdout.strip()):
            yield b".".join(match.groups()).decode(), candidate


def directory_of_environments() -> Path:
    """Return the environments' directory: inside the virtual environment, which git ignores."""
    directory = Path(sys.prefix) / "floors"
    directory.mkdir(exist_ok=True)
    return directory


def locked() -> str:
    """Return the locked versions as constraints."""
    command = ["export", "--all-packages", "--frozen", "--no-hashes", "--no-emit-workspace"]
    return subprocess.run(
        [UV, *command, "--quiet"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def made(name: str, python: str) -> Path:
    """Return a new, empty environment."""
    directory = directory_of_environments() / name
    _run(UV, "venv", "--quiet", "--clear", "--no-python-downloads", f"--python={python}", directory)
    return directory


def install(directory: Path, *arguments: str) -> None:
    """Install into an environment; use packages from uv's cache if possible."""
    python = directory / "bin/python"
    _run(UV, "pip", "install", "--quiet", "--compile-bytecode", f"--python={python}", *arguments)


def tests_pass(directory: Path) -> bool:
    """Run the tests in an environment; return whether they passed.

    Failed tests run once more, alone: on a busy machine they may have run out of time.
    """
    if _tested(directory, f"-n{WORKERS}", "--dist=worksteal"):
        return True
    _say("running the failed tests once more, one after another")
    return _tested(directory, "-n0", "--last-failed", "--last-failed-no-failures=none")


def _tested(directory: Path, *arguments: str) -> bool:
    command: list[str | Path] = [
        directory / "bin/python",
        *("-m", "pytest", TESTS, "-q", *arguments),
        f"--confcutdir={TESTS}",  # tests/conftest.py imports the services
        "-psupport.sdk_alone",
        f"--override-ini=cache_dir={directory / 'pytest-cache'}",
        "--override-ini=filterwarnings=",  # new versions deprecate what old ones need
    ]
    tested = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "tests"}, check=False
    )
    return tested.returncode == 0


def _run(*command: str | Path) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


def _say(text: str) -> None:
    print(f"== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
