"""The stores behind the controllers of a run: a file, or a PostgreSQL server of its own.

Each can go back in time: a copy is kept, and later takes the place of what there is, as after a
restored backup or an asynchronous fail-over.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Literal

import psutil

from eruca_postgres.embedded import EmbeddedServer, running_url
from support.postgres import kill_server, postmaster_pid, reachable_directory

ArbiterKind = Literal["file", "postgres"]
ARBITERS: Final[tuple[ArbiterKind, ...]] = ("file", "postgres")


class ArbiterStore(ABC):
    """The store of all controllers of a run. The methods block."""

    settings: Mapping[str, str]  # of a controller, once the store has been started

    @abstractmethod
    def start(self) -> None:
        """Start it, unless it runs."""

    @abstractmethod
    def close(self) -> None:
        """End it, and remove what it leaves outside of the run's directory."""

    @abstractmethod
    def keep_copy(self) -> None:
        """Copy its state as a crash would leave it."""

    @abstractmethod
    def restore_copy(self) -> None:
        """Put the copy in the place of its state; no controller runs meanwhile."""


class FileStore(ArbiterStore):
    """A file with its history and its lock, in a directory of their own.

    Args:
        directory: Of the run.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "arbiter"
        self._copy = directory / "arbiter.copy"
        self._directory.mkdir(exist_ok=True)
        self.settings = {
            "ERUCA_CONTROLLER_STORE": "file",
            "ERUCA_CONTROLLER_FILE": str(self._directory / "groups.json"),
        }

    def start(self) -> None:
        """Do nothing: a file is always there."""

    def close(self) -> None:
        """Do nothing: it is in the run's directory."""

    def keep_copy(self) -> None:
        _copy(self._directory, self._copy)

    def restore_copy(self) -> None:
        _copy(self._copy, self._directory)


class PostgresStore(ArbiterStore):
    """A PostgreSQL server; under root it runs as another user, outside of the run's directory."""

    def __init__(self) -> None:
        self._held = ExitStack()
        self._directory = self._held.enter_context(reachable_directory()) / "data"
        self._server = EmbeddedServer(self._directory)
        self._paused: list[psutil.Process] = []

    @property
    def is_running(self) -> bool:
        """True if the server takes connections, or is paused."""
        return bool(self._paused) or running_url(self._directory) is not None

    def start(self) -> None:
        self.resume()
        if not self.is_running:
            self._server.start()
        self.settings = {
            "ERUCA_CONTROLLER_STORE": "postgres",
            "DATABASE_URL": self._server.url,  # the same after each start
        }

    def kill(self) -> None:
        """Kill all of its processes at once."""
        self.resume()
        if self.is_running:
            kill_server(self._server)

    def stop(self) -> None:
        """Stop it in order; it ends its connections."""
        self.resume()
        self._server.stop()

    def pause(self) -> None:
        """Suspend all of its processes: connections stay, and nothing answers."""
        if not self.is_running:
            return  # another nemesis has ended it
        postmaster = psutil.Process(postmaster_pid(self._server))
        postmaster.send_signal(signal.SIGSTOP)  # first, so that it starts no more
        self._paused = [postmaster, *postmaster.children(recursive=True)]
        self._signal_paused(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a suspended server go on."""
        self._signal_paused(signal.SIGCONT)
        self._paused = []

    def _signal_paused(self, number: signal.Signals) -> None:
        for process in self._paused:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def close(self) -> None:
        self.kill()
        self._server.stop()
        self._held.close()

    def keep_copy(self) -> None:
        self.kill()
        _copy(self._directory, self._directory.with_name("copy"))
        self._server.start()

    def restore_copy(self) -> None:
        self.kill()
        _copy(self._directory.with_name("copy"), self._directory)
        self._server.start()


def arbiter_of(kind: ArbiterKind, directory: Path) -> ArbiterStore:
    """Return the store of a run in *directory*."""
    return PostgresStore() if kind == "postgres" else FileStore(directory)


def _copy(source: Path, target: Path) -> None:
    """Replace a directory by a copy of another one, with the owners of its files."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
