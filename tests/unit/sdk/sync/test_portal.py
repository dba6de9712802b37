"""The bridge to the event loop: results, errors and interruptions of calls from a thread."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar

import pytest
import uvloop

from eruca.contract.errors import ClosedError
from eruca.sync.portal import Portal
from support.patience import PATIENCE_SECONDS
from support.waiting import wait_until


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


@pytest.fixture
def interrupt() -> Iterator[Callable[[], Awaitable[None]]]:
    """Return a function that interrupts the main thread once, and waits to be cancelled.

    A signal that comes just before the thread waits does not wake it, so the function repeats it.
    """
    main = threading.main_thread().ident
    assert main is not None
    has_raised = False

    def raise_once(_number: int, _frame: object) -> None:
        nonlocal has_raised
        if not has_raised:
            has_raised = True
            raise KeyboardInterrupt

    async def interrupt() -> None:
        while True:
            signal.pthread_kill(main, signal.SIGINT)
            await asyncio.sleep(0.05)  # the pace of the signals

    before = signal.signal(signal.SIGINT, raise_once)
    yield interrupt
    signal.signal(signal.SIGINT, before)


def test_interrupting_a_call_cancels_its_function(
    portal: Portal, interrupt: Callable[[], Awaitable[None]]
) -> None:
    was_cancelled = threading.Event()

    async def wait() -> None:
        try:
            await interrupt()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        portal.call(wait)

    assert was_cancelled.wait(PATIENCE_SECONDS)


def test_an_error_of_an_interrupted_call_is_not_logged_as_never_fetched(
    portal: Portal, caplog: pytest.LogCaptureFixture, interrupt: Callable[[], Awaitable[None]]
) -> None:
    calls: list[weakref.ref[asyncio.Task[None] | None]] = []

    async def wait() -> None:
        calls.append(weakref.ref(asyncio.current_task()))
        try:
            await interrupt()
        except asyncio.CancelledError:
            raise OddError("odd") from None

    with caplog.at_level(logging.ERROR, "asyncio"):
        with pytest.raises(KeyboardInterrupt):
            portal.call(wait)
        wait_until(lambda: gc.collect() >= 0 and calls[0]() is None)

    assert not caplog.records


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_code_that_exits_while_the_client_closes_leaves_no_call_waiting(
    monkeypatch: pytest.MonkeyPatch, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    monkeypatch.setattr("eruca.sync.portal._new_event_loop", new_loop)
    portal = Portal()
    begun = threading.Semaphore(0)
    outcomes: dict[str, type[BaseException]] = {}

    async def leave() -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            sys.exit(1)

    async def linger() -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # it is not through when the other one exits

    def call(function: Callable[[], Awaitable[None]]) -> None:
        try:
            portal.call(function)
        except BaseException as error:
            outcomes[function.__name__] = type(error)

    callers = [
        threading.Thread(target=call, args=(function,), daemon=True)
        for function in (leave, linger, leave)
    ]
    for caller in callers:
        caller.start()
        assert begun.acquire(timeout=PATIENCE_SECONDS)

    portal.finish(nothing)
    for caller in callers:
        caller.join(PATIENCE_SECONDS)

    assert outcomes == {"leave": SystemExit, "linger": ClosedError}


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
