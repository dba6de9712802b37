"""``python -m support.dying_shop STEP NAMESRV DATABASE``: an order of the shop, cut short.

Each step kills the process as ``kill -9`` would. Where it is not reached, the exit code is 0.

``line:7``              the shop's code has come to the seventh line of placing an order
``sent:begin``          the broker has answered that request, unread; ``sent:commit``
``database:before``     the order is about to be committed in the database; ``database:after``
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

import psycopg

import eruca
from eruca.aio.http.http1 import Http1Transport
from eruca.aio.http.transport import HttpResponse
from eruca.contract.records import Buffer
from examples.orders import shop as shop_module
from examples.orders.shop import Shop

REQUESTS = {"begin": "/v1/transactions", "commit": ":commit"}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()  # the signal has been sent, and nothing more is done


class DyingTransport(Http1Transport):
    """Dies with the answer to a request in hand: the broker has done it, and nobody here knows."""

    def __init__(self, target_end: str) -> None:
        super().__init__()
        self._target_end = target_end

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        answer = await super().request(
            method, url, target, headers=headers, body=body, timeout=timeout
        )
        if target.endswith(self._target_end):
            die()
        return answer


def die_in_database(when: str) -> None:
    """Die before or after the next commit in the database, but for those that answer checks."""
    commit = psycopg.Connection.commit

    def commit_and_die(connection: psycopg.Connection[Any]) -> None:
        is_order = threading.current_thread() is threading.main_thread()
        if when == "after" or not is_order:
            commit(connection)
        if is_order:
            die()

    psycopg.Connection.commit = commit_and_die  # type: ignore[method-assign,assignment]


def trace_until(line_count: int) -> None:
    """Die when the shop's own code has come to its *line_count*-th line."""
    left = line_count

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:  # noqa: ANN401
        nonlocal left
        if frame.f_code.co_filename != shop_module.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                die()
        return trace

    sys.settrace(trace)


def main() -> None:
    step, namesrv_url, database_url = sys.argv[1:]
    kind, _, which = step.partition(":")
    transport = DyingTransport(REQUESTS[which]) if kind == "sent" else None
    with (
        eruca.Client(namesrv_url, hot_transport=transport) as client,
        Shop(client, database_url) as shop,
    ):
        if kind == "line":
            trace_until(int(which))
        if kind == "database":
            die_in_database(which)
        shop.place_order(step, 1)
        sys.settrace(None)


if __name__ == "__main__":
    main()
