"""Services of an earlier version, from a commit of this repository.

They run in this environment, with the sources of that commit before those that are installed. So
its dependencies must be those of today, or compatible with them.
"""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from support.processes import ServiceProcess, started
from support.stores import scratch_directory

STORE_BEFORE: Final = "15ede68a74a76d748fc03971535ca0ede37a7858"
"""An earlier version whose stores this version opens, and that opens this version's."""

GROUP_BEFORE: Final = "c00e002a4f527b51d070b447d3554e808f502753"
"""The earliest version whose replicas follow masters of this version, and lead its replicas."""

_ROOT: Final = Path(__file__).parents[2]
_NATIVE: Final = "services/broker/src/eruca_broker/core/native"
_LIBRARY: Final = "_eruca_broker.so"


@cache
def version_at(commit: str) -> str:
    """Return the search path of Python modules of a commit; skip the test if it is not here."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{commit}^{{commit}}"],
        cwd=_ROOT,
        capture_output=True,
        check=False,
    )
    if known.returncode:
        pytest.skip(f"commit {commit[:8]} is not in this checkout: git fetch --unshallow")
    archive = subprocess.run(
        ["git", "archive", commit, "sdk", "services"], cwd=_ROOT, capture_output=True, check=True
    )
    directory = scratch_directory() / commit[:8]
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(directory, filter="data")
    sources = sorted(map(str, (directory / _NATIVE).glob("*.c")))
    compiler = os.environ.get("CC", "cc").split()
    flags = ["-std=c11", "-O2", "-fPIC", "-shared"]
    subprocess.run([*compiler, *flags, "-o", str(directory / _LIBRARY), *sources], check=True)
    folders = [directory, directory / "sdk" / "src", *sorted(directory.glob("services/*/src"))]
    return os.pathsep.join(map(str, folders))


def started_at(commit: str, module: str, settings: Mapping[str, str]) -> ServiceProcess:
    """Start a service of a commit, and prove that it is that version's."""
    process = started(module, {**settings, "PYTHONPATH": version_at(commit)})
    process.wait_until_listening()
    if module == "eruca_broker":
        library = Path(version_at(commit).split(os.pathsep)[0]) / _LIBRARY
        assert str(library) in Path(f"/proc/{process.pid}/maps").read_text()
    return process
