"""The certificates of the system are read once by each process that runs tests.

httpx reads them for every client, and for every request that is made without one. That takes a
fiftieth of a second of computing, for connections that are not encrypted: as much as all else that
a broker in process does when it is opened and closed.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any, Final

import httpx

_READERS: Final[tuple[Callable[..., Any], ...]] = (
    httpx.Client.__init__,
    httpx.AsyncClient.__init__,
    *(httpx.get, httpx.put, httpx.post, httpx.delete, httpx.request),
)
"""Functions of which ``verify`` is an argument."""


def read_certificates_once() -> None:
    """Have the HTTP clients of this process share what they verify servers by."""
    shared = ssl.create_default_context()
    for function in _READERS:
        defaults = function.__kwdefaults__
        assert defaults is not None
        assert defaults["verify"] is True
        defaults["verify"] = shared
