"""Optional libraries that make the hot path faster (extra ``fast``), and their substitutes.

``crc32``, ``compress`` and ``decompressobj`` are zlib-ng's or the standard library's: the checksums
are the same, and each unpacks what the other packed. numpy has no stand-in: who asks for it has
another way. It takes 0.1 s and more to import, for which an event loop must not stand still, and a
program that sends three messages has no use for it; so a thread imports it when it is first asked
for, and until then the other way is taken.
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
    # Its stub says that the class is an instance.
    COMPRESSION_ERRORS = (zlib.error, cast("type[Exception]", zlib_ng.error))


def optional_numpy() -> ModuleType | None:
    """Return numpy; None where it is not installed, or not imported yet."""
    loading = loading_numpy()
    return loading.result() if loading.done() else None


@cache
def loading_numpy() -> Future[ModuleType | None]:
    """Have a thread import numpy, if that has not happened, and return the future of it."""
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
