"""Java, Maven and their results: RocketMQ's jars and our small client program, in a cache.

The cache is under the user's cache directory, never in the repository. A directory is named by a
digest of its sources, and gets that name only when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
_FETCH_SECONDS_MAX: Final = 900
_COMPILE_SECONDS_MAX: Final = 120
SMALL_JVM: Final = ("-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that starts fast, and whose speed does not matter."""


class CannotRunError(Exception):
    """A tool that interoperation needs is missing; the text says how to install it."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """The command to run Java programs with RocketMQ's and our own classes."""

    java: str
    class_path: str

    def command(
        self,
        main: str,
        *arguments: str,
        home: Path,
        heap: str = "512m",
        options: Sequence[str] = SMALL_JVM,
    ) -> list[str]:
        """Return the command line.

        Args:
            main: The class to run.
            arguments: Its arguments.
            home: Java's user home, where RocketMQ puts its logs.
            heap: The largest heap.
            options: Further options of the JVM.
        """
        return [
            self.java,
            *options,
            f"-Xmx{heap}",
            f"-XX:MaxDirectMemorySize={heap}",
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            "-cp",
            self.class_path,
            main,
            *arguments,
        ]


def prepare(version: str | None = None) -> Toolchain:
    """Return the toolchain; fetch and compile the parts that the cache lacks.

    Args:
        version: Of RocketMQ; None: that of ``pom.xml``.

    Raises:
        CannotRunError: A tool is missing, or Maven could not fetch.
    """
    java, javac = (_tool(name) for name in ("java", "javac"))
    options = [] if version is None else [f"-Drocketmq.version={version}"]
    libraries = fetched_libraries(HERE / "pom.xml", "Apache RocketMQ", *options)
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
            f"`{name}` is not installed. RocketMQ and Kafka are Java programs: install a JDK (17 "
            "or later) and Maven, for instance `apt-get install default-jdk-headless maven`."
        )
    return found


def fetched_libraries(pom: Path, what: str, *options: str) -> Path:
    """Return the folder of the jars that *pom* lists; fetch what the cache lacks.

    Args:
        pom: Lists the jars as its dependencies.
        what: Their name for messages.
        options: Further options of Maven.

    Raises:
        CannotRunError: Java or Maven is missing, or Maven could not fetch.
    """
    maven = _tool("mvn")
    target = cache_directory() / f"lib-{_digest(pom, options=options)}"
    if target.exists():
        return target
    print(f"fetching {what} with Maven (once)", flush=True)
    partial = _empty(target)
    goal = "dependency:copy-dependencies"
    options = (*options, "-DincludeScope=runtime", f"-DoutputDirectory={partial}")
    command = [maven, "--batch-mode", "--quiet", "--file", str(pom), goal, *options]
    complaint = f"Maven could not fetch {what}; it needs Maven Central"
    _run(command, partial, _FETCH_SECONDS_MAX, complaint)
    partial.rename(target)
    return target


def _compiled(javac: str, libraries: Path) -> Path:
    sources = sorted((HERE / "java").rglob("*.java"))
    target = cache_directory() / f"classes-{_digest(*sources, options=[libraries.name])}"
    if target.exists():
        return target
    partial = _empty(target)
    options = ["-Xlint:all,-deprecation", "-Werror", "-d", str(partial), "-cp", f"{libraries}/*"]
    command = [javac, *options, *map(str, sources)]
    _run(command, partial, _COMPILE_SECONDS_MAX, "javac could not compile interop/java")
    partial.rename(target)
    return target


def _digest(*paths: Path, options: Sequence[str] = ()) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.read_bytes())
    digest.update("\n".join(options).encode())
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
