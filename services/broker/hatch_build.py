"""Compile the broker's loops (``eruca_broker/core/native``) while its wheel is built.

The library is beside the package and not in it, so that an editable install has it too, and the
source tree stays unchanged. The system's C compiler builds it, or the one in ``CC``. If none of
them works, Zig's does, which is a wheel like any other.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang==0.17.1"
# Left to itself it compiles for the very processor it runs on; a wheel goes elsewhere.
ZIG_COMMAND = (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline")
FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fvisibility=hidden")
SOURCES = "src/eruca_broker/core/native"
LIBRARY = "_eruca_broker.so"
PROBE = "#include <stdint.h>\n#include <string.h>\nint probe(void) { return 0; }\n"


class NativeLibrary(BuildHookInterface):  # type: ignore[type-arg]  # of hatchling's configuration
    """Adds the compiled library to the wheel."""

    def dependencies(self) -> list[str]:
        """Require Zig if the system has no compiler."""
        return [] if _system_compiler() else [ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and mark the wheel for this platform."""
        self._directory = TemporaryDirectory(prefix="eruca-native-")
        library = Path(self._directory.name) / LIBRARY
        compiler = _system_compiler() or [*ZIG_COMMAND]
        sources = sorted(map(str, (Path(self.root) / SOURCES).glob("*.c")))
        _compile(compiler, sources, library)
        build_data["force_include" if version == "standard" else "force_include_editable"] = {
            str(library): LIBRARY
        }
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Forget the library: the wheel has it."""
        self._directory.cleanup()


def _system_compiler() -> list[str] | None:
    named = os.environ.get("CC", "").strip()
    candidates = [named] if named else ["cc", "gcc", "clang"]
    for candidate in map(shlex.split, candidates):
        if shutil.which(candidate[0]) and _works(candidate):
            return candidate
    return None


def _works(compiler: list[str]) -> bool:
    """Tell whether a compiler compiles, which without the C library's headers it does not."""
    with TemporaryDirectory(prefix="eruca-native-") as directory:
        probe, library = Path(directory) / "probe.c", Path(directory) / "probe.so"
        probe.write_text(PROBE)
        try:
            _compile(compiler, [str(probe)], library)
        except (OSError, subprocess.CalledProcessError):
            return False
        return library.exists()


def _compile(compiler: list[str], sources: list[str], library: Path) -> None:
    # Zig caches its compiled C library: beside the result, because there may be no home directory.
    caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), str(library.parent))
    subprocess.run(
        [*compiler, *FLAGS, "-o", str(library), *sources],
        check=True,
        env=os.environ | caches,
        stdin=subprocess.DEVNULL,
    )
