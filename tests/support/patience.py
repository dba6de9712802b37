"""Time limits of tests: a test waits until its condition holds, and not a moment longer.

A limit ends a test that hangs. It costs nothing while the test succeeds. So no busy machine should
reach it, even if a process gets no CPU time for several seconds. Code with a limit that is made for
users, such as an HTTP client's timeout, gets this one instead.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any, Final

import httpx

import eruca

PATIENCE_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 6.0  # that a process may get no turn, on a machine that has much else to do
SESSION_SECONDS: Final = 1.5 * PAUSE_SECONDS  # outlives one, also between two heartbeats

_TIME_OUTS: Final[tuple[tuple[Callable[..., Any], str], ...]] = (
    *((make.__init__, "timeout") for make in (httpx.Client, httpx.AsyncClient)),
    *((ask, "timeout") for ask in (httpx.get, httpx.put, httpx.post, httpx.delete)),
    *(
        (make, "send_timeout_seconds")
        for client in (eruca.Client, eruca.AsyncClient)
        for make in (client.producer, client.transaction_producer)
    ),
    *(
        (client.transaction_producer, "decision_timeout_seconds")
        for client in (eruca.Client, eruca.AsyncClient)
    ),
)
"""Functions, and the arguments of theirs that are time-outs."""


def be_patient() -> None:
    """Have the clients of this process wait so long where a test does not say how long.

    Tests of the time-outs say it.
    """
    os.environ["ERUCA_TIMEOUT_SECONDS"] = str(PATIENCE_SECONDS)
    for function, name in _TIME_OUTS:
        defaults = inspect.unwrap(function).__kwdefaults__
        assert defaults is not None
        assert name in defaults
        defaults[name] = PATIENCE_SECONDS
