"""Optional libraries that make the hot path faster (extra ``fast``), and their substitutes.

``crc32``, ``compress`` and ``decompressobj`` are zlib-ng's or the standard library's. Their
checksums are equal, and each decompresses the other's data. numpy has no substitute here: its
callers have another way. Importing it takes 0.1 s or more, too long for an event loop, and a
program that sends three messages does not need it. So a thread imports it at the first request, and
callers use the other way until then.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from threading import Thread
from types import ModuleType
from typing import Any, cast

try:
    from zlib_ng import zlib_ng
except ImportError:
    crc32, compress = zlib.crc32, zlib.compress
    decompressobj: Callable[[], Any] = zlib.decompressobj
    COMPRESSION_ERRORS: tuple[type[Exception], ...] = (zlib.error,)
else:
    crc32, compress, decompressobj = zlib_ng.crc32, zlib_ng.compress, zlib_ng.decompressobj
    # Its type stub wrongly declares the class as an instance.
    COMPRESSION_ERRORS = (zlib.error, cast("type[Exception]", zlib_ng.error))


def optional_numpy() -> ModuleType | None:
    """Return numpy; None if it is not installed, or not imported yet."""
    loading = loading_numpy()
    return loading.result() if loading.done() else None


@cache
def loading_numpy() -> Future[ModuleType | None]:
    """Import numpy in a thread, if that has not happened; return the future of it."""
    loading: Future[ModuleType | None] = Future()
    if "numpy" in sys.modules:
        loading.set_result(_import_numpy())
    else:
        Thread(target=lambda: loading.set_result(_import_numpy()), name="eruca-numpy").start()
    return loading


def _import_numpy() -> ModuleType | None:
    try:
        import numpy
    except ImportError:
        return None
    return numpy
