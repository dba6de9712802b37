"""Prepare a service's process for its imports, which are most of the cost of its start.

A program imports this module first, and everything else in the block of :func:`quick_imports`:

- The garbage collector rests. Imports make many objects and hardly any garbage, so its searches
  would take a fifth of the start. Afterwards the objects are exempt from searches.
- pydantic builds the validator of a model when it is first used. Most models are FastAPI's own, or
  of requests that this process may never get.
- Packages that libraries import only because they are installed are hidden: structlog and httpx
  would load rich for a terminal, Mako a highlighter, uvicorn the watcher of a developer's files.
- NumPy's library for linear algebra, which no service calls, starts no threads.
- Ctrl-C ends the process without a word, as long as nothing has begun.
- Process 1 of a container can be stopped: the kernel drops signals for which it has no handler.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

GC_THRESHOLDS: Final = (20_000, 20, 20)  # objects, then collections of the younger generation
_HIDDEN: Final = ("rich", "pygments", "better_exceptions", "watchfiles")


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import a service in the block; afterwards the process is ready to run it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end)
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:  # else the parent ignores it, or handles it
        signal.signal(signal.SIGINT, _end)
    gc.disable()
    try:
        for package in _HIDDEN:
            sys.modules.setdefault(package, None)  # type: ignore[arg-type]  # it is not found then
        _defer_models()
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, _frame: FrameType | None) -> None:
    # As a shell reports a signal. Nothing has begun yet, and an exception could be raised anywhere.
    os._exit(128 + number)


def _defer_models() -> None:
    from pydantic import BaseModel
    from pydantic.warnings import UnsupportedFieldAttributeWarning

    # FastAPI is silent about it while it makes the adapter of a body, which is built later now.
    warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)
    BaseModel.model_config["defer_build"] = True  # of all models, as their configuration inherits
