"""Services as processes that are forked from one that has imported them, once for all of them.

Each is a process of its own all the same: it opens its own files, listens on its own port, and can
be stopped or killed at any moment. But it is there without the second of computing that imports
take, and tests start hundreds. What happens when a service is started as a program is tested where
it is: in the tests of processes, of the local cluster and of the demo.

The process that forks ends with the tests, and those it has forked are then asked by the kernel to
stop, as those of a local cluster are.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Final

import pytest

from eruca_deploy import child, supervision
from support.processes import START_SECONDS, ServiceProcess, clean_environment

_FORKING: Final = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["support.preloaded"])


_BEGINNING: Final = threading.Lock()  # services are started by several threads


def _begin_forking() -> None:
    """Start the process that forks, where that has not been done."""
    with _BEGINNING:
        _begin_forking_once()


@cache
def _begin_forking_once() -> None:
    """Start the process that forks, so that it finds what it is to import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # it is not told ours otherwise
        forkserver.ensure_running()


@contextmanager
def forked(module: str, settings: Mapping[str, str]) -> Iterator[ServiceProcess]:
    """Yield a service that listens, with settings of its own."""
    with started_by_fork(module, settings) as process:
        process.wait_until_listening()
        yield process


def started_by_fork(module: str, settings: Mapping[str, str]) -> ServiceProcess:
    """Start a service: ``python -m <module>``, but for the imports."""
    return ServiceProcess(_ForkedService(module, {**clean_environment(), **settings}))


def forked_to_the_end(module: str, settings: Mapping[str, str], *arguments: str) -> tuple[int, str]:
    """Run a program that is expected to end by itself; return its exit code and stderr."""
    ending = _ForkedService(module, {**clean_environment(), **settings}, *arguments)
    with ending.stderr as stderr:
        text = stderr.read()
        return ending.wait(START_SECONDS), text


@contextmanager
def forked_broker(settings: Mapping[str, str]) -> Iterator[ServiceProcess]:
    """Yield a broker that listens."""
    with forked("eruca_broker", settings) as process:
        yield process


@contextmanager
def forking_clusters() -> Iterator[None]:
    """Have local clusters that are started in this process fork their services."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervision, "start_process", _start_forked)
        yield


async def _start_forked(module: str, environment: Mapping[str, str]) -> supervision.Process:
    """Do what ``eruca_deploy.supervision.start_process`` does."""
    reader = asyncio.StreamReader()
    forking = asyncio.to_thread(_Forked, module, environment, keeps_stdout=False)
    process = await forking  # in a thread: the first time it waits for the imports
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(process.output, "rb", buffering=0)
    )
    return _ForkedChild(process, reader)


class _Forked:
    """A process that was forked, and the pipe that it writes to."""

    def __init__(
        self, module: str, environment: Mapping[str, str], *arguments: str, keeps_stdout: bool
    ) -> None:
        _begin_forking()
        reader, writer = _FORKING.Pipe(duplex=False)
        self.process = _FORKING.Process(
            target=_run,
            args=([module, *arguments], dict(environment), writer, keeps_stdout),
            daemon=True,  # a test session that is broken off must not wait for it
        )
        with reader, writer:
            self.process.start()
            self.output = os.dup(reader.fileno())

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def send_signal(self, sig: int) -> None:
        if self.process.exitcode is None:
            os.kill(self.pid, sig)

    def exit_code(self) -> int:
        exit_code = self.process.exitcode
        assert exit_code is not None, f"process {self.pid} did not end"
        return exit_code


class _ForkedService:
    """The part of ``subprocess.Popen`` that :class:`ServiceProcess` uses; the pipe is stderr."""

    def __init__(self, module: str, environment: Mapping[str, str], *arguments: str) -> None:
        self._forked = _Forked(module, environment, *arguments, keeps_stdout=True)
        self.stderr = os.fdopen(self._forked.output)

    @property
    def pid(self) -> int:
        return self._forked.pid

    def send_signal(self, sig: int) -> None:
        self._forked.send_signal(sig)

    def kill(self) -> None:
        self._forked.process.kill()

    def poll(self) -> int | None:
        return self._forked.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._forked.process.join(timeout)
        return self._forked.exit_code()


class _ForkedChild:
    """The part of ``asyncio.subprocess.Process`` that a supervisor uses; the pipe is its stdout."""

    def __init__(self, forked: _Forked, stdout: asyncio.StreamReader) -> None:
        self._forked = forked
        self.stdout = stdout

    @property
    def pid(self) -> int:
        return self._forked.pid

    def send_signal(self, signal: int, /) -> None:
        self._forked.send_signal(signal)

    async def wait(self) -> int:
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        sentinel = self._forked.process.sentinel
        loop.add_reader(sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(sentinel)
        return self._forked.exit_code()


def _run(
    words: list[str], environment: dict[str, str], output: Connection, keeps_stdout: bool
) -> None:
    """Be ``python -m`` with *words* in an environment, what it prints going to a pipe."""
    child.stop_with_parent(os.getppid())
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(output.fileno(), 2)
    if not keeps_stdout:
        os.dup2(output.fileno(), 1)
    output.close()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it is the environment's
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
