"""Listen on a Unix socket: for a proxy on the same machine, which terminates TLS.

A socket's file outlives a process that was killed. Such a stale file is removed. A file that a
living process listens on is refused, and so is any other kind of file. A lock beside the file
decides between two processes that start at once.

Source: unix(7).
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final

from eruca_chassis.files.file_lock import FileLock, FileLockedError

PREFIX: Final = "unix:"
_PATH_SIZE_MAX: Final = 107  # bytes, of the kernel's sockaddr_un


def path_of(text: str) -> Path:
    """Return the path in ``unix:/PATH``.

    Raises:
        ValueError: It is not of this form, or is too long for the kernel.
    """
    path = text.removeprefix(PREFIX)
    if path == text or not path.startswith("/"):
        raise ValueError("expected unix:/PATH; for an address use the settings host and port")
    if len(os.fsencode(path)) > _PATH_SIZE_MAX:
        raise ValueError(f"the path exceeds {_PATH_SIZE_MAX} bytes; use a shorter one")
    return Path(path)


def mode_of(text: str) -> int:
    """Return the mode in octal digits.

    Raises:
        ValueError: It is not a mode.
    """
    if not (len(text) in (3, 4) and set(text) <= set("01234567")):
        raise ValueError("expected octal digits, such as 0660")
    return int(text, 8)


def listen_at(path: Path, mode: int, backlog: int) -> socket.socket:
    """Return a socket that listens at *path*; remove a stale file first.

    Raises:
        OSError: A process listens there, the file is not a socket, or it cannot be made.
    """
    try:
        lock = FileLock.acquire(path.with_name(f"{path.name}.lock"))
    except FileLockedError as error:
        raise OSError(errno.EADDRINUSE, f"{error.who} starts there") from error
    try:
        _remove_stale(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Until the mode is set, only this user may connect.
            before = os.umask(0o177)
            try:
                listener.bind(str(path))
            finally:
                os.umask(before)
            path.chmod(mode)
            listener.listen(backlog)
        except BaseException:
            listener.close()
            raise
    finally:
        lock.release()
    return listener


def _remove_stale(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, "the file exists and is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass  # its queue is full, so it lives
    raise OSError(errno.EADDRINUSE, "a process listens there")
