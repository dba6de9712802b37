"""What makes the hot path faster where it is installed (extra ``fast``), and what stands in for it.

``crc32``, ``compress`` and ``decompress`` are zlib-ng's or the standard library's: the checksums
are the same, and each unpacks what the other packed. numpy has no stand-in: who asks for it has
another way.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from types import ModuleType

try:
    from zlib_ng import zlib_ng
except ImportError:
    crc32, compress, decompress = zlib.crc32, zlib.compress, zlib.decompress
    COMPRESSION_ERRORS: tuple[type[Exception], ...] = (zlib.error,)
else:
    crc32, compress, decompress = zlib_ng.crc32, zlib_ng.compress, zlib_ng.decompress
    # Its stub says that the class is an instance.
    COMPRESSION_ERRORS = (zlib.error, cast("type[Exception]", zlib_ng.error))


@cache
def optional_numpy() -> ModuleType | None:
    """Return numpy, or None where it is not installed; imported late, as it takes 0.1 s."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy
