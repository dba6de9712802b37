"""The images' file system without a container engine: a clean root, by ``bubblewrap``.

:func:`build` runs the steps of the build stage on the files that a build may see.
:class:`Container` runs a command with what a stage says: its environment, user and directory, as
process 1, with a read-only root, and with a loopback interface of its own. Only ``/tmp`` and the
home directory can be written. The base image is this machine's ``/usr`` and the tests' Python.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from support.containerfile import Stage, is_in_context
from support.documents import ROOT
from support.processes import START_SECONDS

HOME: Final = "/var/lib/eruca"
BUILD_SECONDS: Final = 600  # for each step; twenty suffice on a machine at rest
_FILES_OF_ETC: Final = (
    *("hosts", "resolv.conf", "nsswitch.conf", "ld.so.cache", "localtime"),
    *("ssl", "ca-certificates", "alternatives"),
)
_PASSED_ON: Final = ("UV_", "SSL_", "HTTP_", "HTTPS_", "NO_PROXY", "http_", "https_", "no_proxy")


def why_not() -> str | None:
    """Return why there is no clean root on this machine; None: there is."""
    if sys.platform != "linux" or shutil.which("bwrap") is None:
        return "needs bubblewrap"
    tried = subprocess.run(
        [*_root("0:0"), "/usr/bin/true"], capture_output=True, text=True, check=False
    )
    return f"bubblewrap: {tried.stderr.strip()}" if tried.returncode else None


def build(stage: Stage, directory: Path) -> Path:
    """Run the build's installing steps; return the environment that they make."""
    source, made, empty = directory / "src", directory / "eruca", directory / "cache"
    _copy_context(source)
    for folder in (made, empty):
        folder.mkdir()
    uv = Path(sys.executable).with_name("uv")
    kept = subprocess.run([uv, "cache", "dir"], capture_output=True, text=True, check=True)
    cache = Path(kept.stdout.strip())
    cache.mkdir(parents=True, exist_ok=True)
    passed_on = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
    environment = {
        **passed_on,
        **stage.environment,
        "UV_PYTHON": _base_python(),
        "PATH": "/tools:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/root",
    }
    steps = [step for step in stage.steps if step.command.startswith("uv ")]
    assert steps, "the build installs by uv"
    for step in steps:
        subprocess.run(
            [
                *_root("0:0", is_connected=True),
                *("--ro-bind", str(uv), "/tools/uv"),
                *("--bind", str(source), stage.directory),
                *("--bind", str(made), stage.environment["UV_PROJECT_ENVIRONMENT"]),
                *("--bind", str(cache if step.cache_target else empty), "/root/.cache/uv"),
                *_environment(environment),
                *("--chdir", stage.directory),
                *("/bin/sh", "-c", step.command),
            ],
            check=True,
            timeout=BUILD_SECONDS,
        )
    shutil.rmtree(source)
    shutil.rmtree(empty)
    return made


class Container:
    """A command of an image while it runs; killed, if it must be, on leaving.

    Args:
        stage: The image.
        made: The environment that :func:`build` has returned.
        home: The directory that is the container's volume.
        settings: Environment variables, as an engine would set them.
        arguments: Words after the image's entrypoint.
    """

    def __init__(
        self,
        stage: Stage,
        made: Path,
        home: Path,
        settings: Mapping[str, str],
        arguments: Sequence[str] = (),
    ) -> None:
        self._stage = stage
        self._environment = {**stage.environment, **settings, "HOME": HOME}
        told, tell = os.pipe()
        uid, gid = stage.user.split(":")
        accounts = home.with_suffix(".passwd")
        accounts.write_text(f"eruca:x:{uid}:{gid}::{HOME}:/usr/sbin/nologin\n")
        command = [
            *_root(stage.user),
            *("--ro-bind", str(accounts), "/etc/passwd"),
            *("--as-pid-1", "--die-with-parent", "--json-status-fd", str(tell)),
            *("--ro-bind", str(made), "/opt/eruca", "--bind", str(home), HOME),
            *_environment(self._environment),
            *("--chdir", stage.directory),
            *stage.entrypoint,
            *arguments,
        ]
        self.log = home.with_suffix(".log")
        with self.log.open("w") as output:
            self._process = subprocess.Popen(
                command, pass_fds=[tell], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        os.close(tell)
        self._status = os.fdopen(told)  # bwrap writes the end into it, too, so it stays open
        self._first = int(json.loads(self._status.readline() or "{}").get("child-pid", 0))
        if not self._first:
            self.__exit__(None, None, None)
            raise AssertionError(f"bwrap did not start it: {self.log.read_text()}")

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Kill what is left."""
        self._process.kill()
        self._process.wait()
        self._status.close()

    @property
    def is_over(self) -> bool:
        """True if the command has ended."""
        return self._process.poll() is not None

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as an engine runs the health check; return what it printed."""
        return subprocess.run(
            [
                *("nsenter", "--target", str(self._first), "--all", "--preserve-credentials"),
                *("env", "-i", *(f"{name}={value}" for name, value in self._environment.items())),
                *command,
            ],
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )

    def stop(self) -> int:
        """Send SIGTERM to the command; return its exit code."""
        os.kill(self._first, signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait for the command's end; return its exit code."""
        return self._process.wait(START_SECONDS)

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of its log that are JSON."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def _root(user: str, *, is_connected: bool = False) -> list[str]:
    """Return bwrap with a root that is this machine's ``/usr``, a Python, and little else."""
    uid, gid = user.split(":")
    prefix = str(Path(_base_python()).parents[1])
    etc = [f"/etc/{name}" for name in _FILES_OF_ETC if Path("/etc", name).exists()]
    links = [name for name in ("bin", "lib", "lib32", "lib64") if Path("/", name).is_symlink()]
    return [
        *("bwrap", "--unshare-all", *(["--share-net"] if is_connected else [])),
        *("--uid", uid, "--gid", gid, "--clearenv", "--ro-bind", "/usr", "/usr"),
        *(word for name in links for word in ("--symlink", f"usr/{name}", f"/{name}")),
        *(word for path in etc for word in ("--ro-bind", path, path)),
        *([] if prefix == "/usr" else ["--ro-bind", prefix, prefix]),
        *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/opt"),
    ]


def _base_python() -> str:
    return str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")


def _environment(variables: Mapping[str, str]) -> list[str]:
    return [word for name, value in variables.items() for word in ("--setenv", name, value)]


def _copy_context(target: Path) -> None:
    """Copy what ``.dockerignore`` leaves of the repository's files."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    ignored = (ROOT / ".dockerignore").read_text()
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).exists() and is_in_context(name, ignored):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
