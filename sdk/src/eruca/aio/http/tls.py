"""TLS for the SDK and the services: nothing is loaded before the first ``https://`` URL.

Loading the system's certificate authorities takes 0.2 s of CPU time. On the event loop it would
delay every request. So a thread loads them once per process, and all connections share them.
"""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import threading
from typing import Final

# by process: a forked child must not inherit a held lock
_locks: Final[dict[int, threading.Lock]] = {}


async def trusted_context() -> ssl.SSLContext:
    """Return the process's context, which trusts the system's certificate authorities."""
    if _loaded.cache_info().currsize:
        return _loaded()
    return await asyncio.to_thread(_load)


def _load() -> ssl.SSLContext:
    # With the cache alone, clients that start together would each load them.
    with _locks.setdefault(os.getpid(), threading.Lock()):
        return _loaded()


@functools.cache
def _loaded() -> ssl.SSLContext:
    return ssl.create_default_context()
