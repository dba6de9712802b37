"""Services that are served within the tests' process."""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack

import pytest

from eruca_chassis.app import ServiceApp
from eruca_chassis.running.settings import ServiceSettings
from support.services import serving


@pytest.mark.anyio
async def test_an_interrupt_is_the_tests_though_servers_run_and_stop_in_any_order() -> None:
    before = signal.getsignal(signal.SIGINT)

    async with AsyncExitStack() as first, AsyncExitStack() as second:
        for stack in (first, second):
            app = ServiceApp(title="Thing", summary="", description="", version="1")
            await stack.enter_async_context(serving(app, ServiceSettings()))
        while_they_run = signal.getsignal(signal.SIGINT)
        await first.aclose()

    assert while_they_run is before
    assert signal.getsignal(signal.SIGINT) is before
