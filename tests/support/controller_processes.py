"""Controllers as processes over one store, and requests that insist on an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
import httpx

from eruca_deploy.ports import free_ports
from support.controllers import GROUP_A
from support.forked import started_by_fork
from support.processes import ServiceProcess
from support.waiting import until_told


class ControllerStage:
    """Several controllers, each at a port of its own, also after it was killed."""

    def __init__(self, settings: Mapping[str, str], count: int) -> None:
        self._settings = settings
        self._ports = free_ports("127.0.0.1", count)
        self._processes: list[ServiceProcess | None] = [None] * count
        self.clients = [
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/v1", trust_env=False, timeout=20)
            for port in self._ports
        ]

    async def start(self, index: int, *, is_ready: bool = True) -> None:
        """Start a controller; return once it listens, or once it is ready."""
        settings = {**self._settings, "ERUCA_CONTROLLER_PORT": str(self._ports[index])}
        process = self._processes[index] = started_by_fork("eruca_controller", settings)
        await anyio.to_thread.run_sync(process.wait_until_listening)
        if is_ready:
            await self.until_ready(index)

    async def until_ready(self, index: int, status: int = 200) -> httpx.Response:
        """Wait until ``/readyz`` of a controller has this status."""
        url = f"http://127.0.0.1:{self._ports[index]}/readyz"
        return await until_told(
            lambda: self.clients[index].get(url), lambda answer: answer.status_code == status
        )

    def kill(self, index: int) -> None:
        """Kill a controller by SIGKILL, in the middle of whatever it does."""
        process = self._processes[index]
        assert process is not None
        process.__exit__(None, None, None)
        self._processes[index] = None

    async def stop(self) -> None:
        """Stop all of them in order; each must end well."""
        for index, process in enumerate(self._processes):
            if process is not None:
                assert await anyio.to_thread.run_sync(process.stop) == 0
                process.__exit__(None, None, None)
                self._processes[index] = None
        for client in self.clients:
            await client.aclose()

    def kill_all(self) -> None:
        """Kill what is left after a failure."""
        for index, process in enumerate(self._processes):
            if process is not None:
                self.kill(index)


@asynccontextmanager
async def controllers(
    settings: Mapping[str, str], count: int = 2
) -> AsyncIterator[ControllerStage]:
    """Yield controllers that are ready."""
    stage = ControllerStage(settings, count)
    try:
        for index in range(count):
            await stage.start(index)
        yield stage
        await stage.stop()
    finally:
        stage.kill_all()


async def insist(
    stage: ControllerStage,
    body: dict[str, Any],
    headers: dict[str, str],
    *,
    first: int = 0,
) -> tuple[httpx.Response, bool]:
    """Put a row at one controller after the other until the answer is certain.

    Return the answer, and whether an earlier request may have been done.
    """
    attempt = first
    is_doubtful = False
    while True:
        client = stage.clients[attempt % len(stage.clients)]
        attempt += 1
        try:
            answer = await client.put(GROUP_A, json=body, headers=headers)
        except httpx.ConnectError:
            await asyncio.sleep(0.02)  # it was killed; the other one may be starting, too
            continue
        except httpx.TransportError:
            is_doubtful = True
            continue
        if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
            return answer, is_doubtful
        is_doubtful = True
        await asyncio.sleep(0.02)  # it is starting, or its store is
