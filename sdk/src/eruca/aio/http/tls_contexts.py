"""TLS contexts of clients, from files that are read again when they change.

A context belongs to the connections that it has opened: a change means another context for later
connections, and the open ones stay. If the changed files are invalid, for example because one of
two is not written yet, the former context stays in use and a warning says why.

A thread loads the files, never the event loop. The system's authorities take 0.2 s of CPU time, so
a process loads them once, and before its first ``https://`` URL nothing is loaded.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import ssl
import threading
import time
from typing import Final

from eruca.aio.http.file_changes import Look, look_at
from eruca.contract.errors import NoCredentialsError
from eruca.core.credentials import TlsFiles

LOOK_SECONDS: Final = 1.0  # between two looks at the files

# by process: a forked child must not inherit a held lock
_locks: Final[dict[int, threading.Lock]] = {}
_logger = logging.getLogger(__name__)


async def trusted_context() -> ssl.SSLContext:
    """Return the process's context, which trusts the system's certificate authorities."""
    if _loaded.cache_info().currsize:
        return _loaded()
    return await asyncio.to_thread(_load)


class TlsContexts:
    """The contexts of one client's connections.

    Args:
        files: The files; if there are none, the context is the process's.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._paths = [p for p in (files.ca_file, files.cert_file, files.key_file) if p is not None]
        self._context: ssl.SSLContext | None = None
        self._looks: list[Look] = []
        self._look_at = 0.0  # by the monotonic clock: when to look at the files again

    async def current(self) -> ssl.SSLContext:
        """Return the context for a new connection.

        Raises:
            NoCredentialsError: The files are invalid, and never were valid.
        """
        if not self._paths:
            return await trusted_context()
        now = time.monotonic()
        if self._context is not None and now < self._look_at:
            return self._context
        self._look_at = now + LOOK_SECONDS
        return await asyncio.to_thread(self._read)

    def _read(self) -> ssl.SSLContext:
        looks = [look_at(path) for path in self._paths]
        before = self._context
        if before is not None and looks == self._looks:
            return before
        try:
            context = context_of(self._files)
        except NoCredentialsError as error:
            if before is None:
                raise
            if looks != self._looks:
                _logger.warning("%s; the former certificates stay in use", error.detail)
            context = before
        self._context, self._looks = context, looks
        return context


def context_of(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for clients; it verifies servers.

    Raises:
        NoCredentialsError: A file is missing or invalid.
    """
    named = ", ".join(
        str(path) for path in (files.ca_file, files.cert_file, files.key_file) if path is not None
    )
    try:
        cafile = None if files.ca_file is None else str(files.ca_file)
        context = ssl.create_default_context(cafile=cafile)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if files.cert_file is not None:
            # Without a function, OpenSSL asks the terminal for the passphrase of an encrypted key.
            context.load_cert_chain(files.cert_file, files.key_file, password=_no_passphrase)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise NoCredentialsError(
            f"the TLS files {named} cannot be used: {tls_fault(error)}",
            fix="check that each exists, is in PEM form and readable, and that key and certificate "
            "belong together",
        ) from error
    return context


def tls_fault(error: Exception) -> str:
    """Return what OpenSSL, or the system, says of a file."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "no certificate in PEM form"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def _no_passphrase() -> str:
    raise ValueError("the private key is encrypted; store it without a passphrase")


def _load() -> ssl.SSLContext:
    # With the cache alone, clients that start together would each load them.
    with _locks.setdefault(os.getpid(), threading.Lock()):
        return _loaded()


@functools.cache
def _loaded() -> ssl.SSLContext:
    return ssl.create_default_context()
