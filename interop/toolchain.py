"""Java, Maven and their results: RocketMQ's jars and our small client program, in a cache.

The cache is under the user's cache directory, never in the repository. A directory is named by a
digest of its sources, and gets that name only when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
_FETCH_SECONDS_MAX: Final = 900
_COMPILE_SECONDS_MAX: Final = 120


class CannotRunError(Exception):
    """A tool that interoperation needs is missing; the text says how to install it."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The command to run Java programs with RocketMQ's and our own classes."""

    java: str
    class_path: str

    def command(self, main: str, *arguments: str, home: Path, heap: str = "512m") -> list[str]:
        """Return the command line; *home* is Java's user home, where RocketMQ puts its logs."""
        return [
            self.java,
            "-Xms64m",
            f"-Xmx{heap}",
            "-XX:MaxDirectMemorySize=256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            "-cp",
            self.class_path,
            main,
            *arguments,
        ]


def prepare() -> Toolchain:
    """Return the toolchain; fetch and compile the parts that the cache lacks.

    Raises:
        CannotRunError: A tool is missing, or Maven could not fetch.
    """
    java, javac, maven = (_tool(name) for name in ("java", "javac", "mvn"))
    libraries = _fetched(maven)
    classes = _compiled(javac, libraries)
    return Toolchain(java, f"{classes}{os.pathsep}{libraries}/*")


def cache_directory() -> Path:
    """Return the directory of everything fetched and compiled."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "eruca" / "interop"


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CannotRunError(
            f"`{name}` is not installed. Interoperation is checked against RocketMQ's own Java "
            "programs: install a JDK (11 or later) and Maven, for instance "
            "`apt-get install default-jdk-headless maven`."
        )
    return found


def _fetched(maven: str) -> Path:
    pom = HERE / "pom.xml"
    target = cache_directory() / f"lib-{_digest(pom)}"
    if target.exists():
        return target
    print("fetching Apache RocketMQ with Maven (once)", flush=True)
    partial = _empty(target)
    goal = "dependency:copy-dependencies"
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
    command = [maven, "--batch-mode", "--quiet", "--file", str(pom), goal, *options]
    complaint = "Maven could not fetch RocketMQ; it needs Maven Central"
    _run(command, partial, _FETCH_SECONDS_MAX, complaint)
    partial.rename(target)
    return target


def _compiled(javac: str, libraries: Path) -> Path:
    sources = sorted((HERE / "java").rglob("*.java"))
    target = cache_directory() / f"classes-{_digest(HERE / 'pom.xml', *sources)}"
    if target.exists():
        return target
    partial = _empty(target)
    options = ["-Xlint:all,-deprecation", "-Werror", "-d", str(partial), "-cp", f"{libraries}/*"]
    command = [javac, *options, *map(str, sources)]
    _run(command, partial, _COMPILE_SECONDS_MAX, "javac could not compile interop/java")
    partial.rename(target)
    return target


def _digest(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _empty(target: Path) -> Path:
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    return partial


def _run(command: list[str], made: Path, seconds_max: float, complaint: str) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds_max, check=False
        )
    except subprocess.TimeoutExpired as error:
        shutil.rmtree(made)
        raise CannotRunError(f"{complaint}: timed out after {seconds_max} s") from error
    if done.returncode:
        shutil.rmtree(made)
        output = (done.stdout + done.stderr).strip()
        raise CannotRunError(f"{complaint}:\n{output[-2000:]}")
