"""Watches where the system's certificate authorities are loaded: by which threads, how often."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from typing import Any

import pytest

from eruca.aio.http import tls_contexts


def watch_loading(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return a list to which each loading of authorities from now on adds its thread."""
    loads: list[threading.Thread] = []

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def load(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  (whatever it takes)
            loads.append(threading.current_thread())
            return original(*arguments, **options)

        return load

    for name in ("load_default_certs", "load_verify_locations"):
        monkeypatch.setattr(ssl.SSLContext, name, watched(getattr(ssl.SSLContext, name)))
    tls_contexts._loaded.cache_clear()
    return loads
