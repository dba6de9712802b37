"""TLS as the SDK and the services use it: nothing is loaded until an ``https://`` URL is used.

Loading the system's certificate authorities takes 0.2 s of computing. On the event loop it would
hold up every request, so a thread loads them, once per process, and all connections share them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import threading
from typing import Final

_locks: Final[dict[int, threading.Lock]] = {}  # by process: a forked child inherits no held lock


async def trusted_context() -> ssl.SSLContext:
    """Return the context that trusts the system's authorities; the process has one."""
    if _loaded.cache_info().currsize:
        return _loaded()
    return await asyncio.to_thread(_load)


def _load() -> ssl.SSLContext:
    # The cache alone would let clients that start together each load them.
    with _locks.setdefault(os.getpid(), threading.Lock()):
        return _loaded()


@functools.cache
def _loaded() -> ssl.SSLContext:
    return ssl.create_default_context()
