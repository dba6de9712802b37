"""The bridge to the event loop: results, errors and interruptions of calls from a thread."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import weakref
from collections.abc import Iterator
from contextvars import ContextVar

import pytest

from eruca.contract.errors import ClosedError
from eruca.sync.portal import Portal
from support.patience import PATIENCE_SECONDS


@pytest.fixture
def portal() -> Iterator[Portal]:
    portal = Portal()
    yield portal
    portal.finish(nothing)


async def nothing() -> None:
    """Do nothing."""


class OddError(Exception):
    """An error of a call."""


async def fail() -> None:
    """Fail."""
    raise OddError("odd")


def test_a_call_returns_the_result_of_its_function(portal: Portal) -> None:
    async def thread_and(number: int, *, more: int) -> tuple[str, int]:
        await asyncio.sleep(0)
        return threading.current_thread().name, number + more

    assert portal.call(thread_and, 1, more=2) == ("eruca", 3)


def test_a_call_has_the_context_of_its_caller(portal: Portal) -> None:
    tenant: ContextVar[str] = ContextVar("tenant")
    tenant.set("ours")

    async def read() -> str:
        return tenant.get()

    assert portal.call(read) == "ours"


def test_an_error_refers_to_nothing_that_refers_to_it(portal: Portal) -> None:
    gc.disable()
    try:
        try:
            portal.call(fail)
        except OddError as error:
            gone = weakref.ref(error)
        portal.call(nothing)  # the loop's thread has finished with the call before
        assert gone() is None
    finally:
        gc.enable()


def test_interrupting_a_call_cancels_its_function(portal: Portal) -> None:
    was_cancelled = threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    async def wait() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        portal.call(wait)

    assert was_cancelled.wait(PATIENCE_SECONDS)


def test_closing_ends_a_call_under_way() -> None:
    portal = Portal()
    has_begun = threading.Event()
    outcomes: list[BaseException] = []

    async def wait() -> None:
        has_begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            portal.call(wait)
        except ClosedError as error:
            outcomes.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    assert has_begun.wait(PATIENCE_SECONDS)

    portal.finish(nothing)
    caller.join(PATIENCE_SECONDS)

    assert [str(outcome) for outcome in outcomes] == ["the client was closed meanwhile"]
