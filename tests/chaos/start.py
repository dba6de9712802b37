"""Start a service whose disk, clock and connections the harness controls.

Nothing of this is in the product. A process that is forked for it patches, before the service runs:

- ``os.pwrite``, ``os.pwritev``, ``os.fdatasync``: the disk's faults, and how far the log is durable
- the chassis' clock: its offset and drift
- the event loop's ``create_connection``: connections to a port go through the proxy of this
  process's own link
- ``/proc/sys/kernel/random/boot_id``: another one after a simulated power cut
- at will, one rule of the product, so that it is wrong (:mod:`chaos.mutations`)
"""

from __future__ import annotations

import errno
import json
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import uvloop

from chaos import mutations
from chaos.controls import Controls, Disk
from eruca_chassis.clock import SystemClock
from eruca_deploy import child

BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"
SLOW_FLUSH_SECONDS: Final = 0.4


def run(module: str, environment: Mapping[str, str], log_file: str) -> None:
    """Be ``python -m <module>``; what it prints is appended to *log_file*.

    The environment has, besides the service's settings, ``CHAOS_CONTROLS`` (the file),
    ``CHAOS_DETOURS`` (ports as JSON), ``CHAOS_BOOT_ID`` and ``CHAOS_MUTATION``.
    """
    child.stop_with_parent(os.getppid())
    os.setsid()
    _redirect(log_file)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # it is the environment's
    controls = Controls(Path(environment["CHAOS_CONTROLS"]))
    control_disk(controls)
    control_clock(controls)
    detour(json.loads(environment.get("CHAOS_DETOURS", "{}")))
    replace_boot_id(environment.get("CHAOS_BOOT_ID", ""))
    mutations.apply(environment.get("CHAOS_MUTATION", ""))
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _redirect(log_file: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]


def control_disk(controls: Controls) -> None:
    """Let the switches decide what writes and flushes do; note how far the log is durable."""
    pwrite, pwritev, fdatasync = os.pwrite, os.pwritev, os.fdatasync

    def base_of(descriptor: int) -> int | None:
        """Return the log offset at which a segment begins, or None for any other file."""
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        return int(path.name) if path.parent.name == "commitlog" and path.name.isdigit() else None

    def fail_on_write() -> None:
        if controls.disk is Disk.FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if controls.disk is Disk.FAILING_WRITES:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def note(descriptor: int, position: int, size: int, first: bytes) -> None:
        base = base_of(descriptor)
        if base is not None and first.strip(b"\0"):  # zeros take back, or warm
            controls.written_offset = max(controls.written_offset, base + position + size)

    def write(descriptor: int, data: Any, position: int) -> int:  # noqa: ANN401 - any buffer
        fail_on_write()
        size = pwrite(descriptor, data, position)
        note(descriptor, position, size, bytes(memoryview(data).cast("B")[:64]))
        return size

    def write_all(
        descriptor: int,
        buffers: Sequence[Any],
        position: int,
        *flags: int,
    ) -> int:
        fail_on_write()
        size = pwritev(descriptor, buffers, position, *flags)
        note(descriptor, position, size, b"data")
        return size

    def flush(descriptor: int) -> None:
        written = controls.written_offset
        if controls.disk is Disk.FAILING_FLUSHES:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if controls.disk is Disk.SLOW:
            time.sleep(SLOW_FLUSH_SECONDS)  # the slowness of the disk
        fdatasync(descriptor)
        if base_of(descriptor) is not None:
            controls.durable_offset = max(controls.durable_offset, written)

    os.pwrite, os.pwritev, os.fdatasync = write, write_all, flush  # type: ignore[assignment]


def control_clock(controls: Controls) -> None:
    """Let the switches decide what the wall clock says; monotonic time stays the machine's."""
    now_ms: Callable[[SystemClock], int] = SystemClock.now_ms

    def wrong(self: SystemClock) -> int:
        drift = controls.clock_rate * (time.monotonic() - controls.drifts_since)
        return now_ms(self) + controls.clock_offset_ms + round(1_000 * drift)

    SystemClock.now_ms = wrong  # type: ignore[method-assign]


def detour(ports: Mapping[str, int]) -> None:
    """Lead connections to these ports of this machine to other ports of it."""

    class DetouredLoop(uvloop.Loop):
        async def create_connection(
            self,
            protocol_factory: Any,  # noqa: ANN401 - as uvloop
            host: Any = None,  # noqa: ANN401
            port: Any = None,  # noqa: ANN401
            **more: Any,  # noqa: ANN401
        ) -> Any:  # noqa: ANN401
            port = ports.get(str(port), port)
            return await super().create_connection(protocol_factory, host, port, **more)

    def run_detoured(main: Any, **more: Any) -> Any:  # noqa: ANN401 - as uvloop
        return original(main, **{"loop_factory": DetouredLoop, **more})

    original = uvloop.run
    uvloop.run = run_detoured


def replace_boot_id(boot_id: str) -> None:
    """Have the kernel's boot id read as *boot_id*, if it is not empty."""
    read_text = Path.read_text

    def read(self: Path, *arguments: Any, **more: Any) -> str:  # noqa: ANN401 - as pathlib
        if boot_id and str(self) == BOOT_ID_FILE:
            return boot_id + "\n"
        return read_text(self, *arguments, **more)

    Path.read_text = read  # type: ignore[method-assign]
