"""A broker as a process that is forked from one that has imported it, once for all of them.

It is a process of its own all the same: it opens its own files, listens on its own port, and can be
killed at any moment. But it is there without the second of computing that imports take, and tests
of crashes start hundreds. What happens when a broker is started as a program is tested where it is.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final

from support.processes import ServiceProcess, clean_environment

_FORKING: Final = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["eruca_broker.app"])


@contextmanager
def forked_broker(settings: Mapping[str, str]) -> Iterator[ServiceProcess]:
    """Yield a broker that listens."""
    with ServiceProcess(_ForkedProcess({**clean_environment(), **settings})) as process:
        process.wait_until_listening()
        yield process


class _ForkedProcess:
    """What a :class:`ServiceProcess` needs of ``subprocess.Popen``."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        reader, writer = _FORKING.Pipe(duplex=False)
        # A daemon: a test session that is broken off must not wait for it.
        self._process = _FORKING.Process(target=_serve, args=(environment, writer), daemon=True)
        with reader, writer:
            self._process.start()
            self.stderr = os.fdopen(os.dup(reader.fileno()))

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        self._process.kill()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        exit_code = self._process.exitcode
        assert exit_code is not None, f"process {self.pid} did not end"
        return exit_code


def _serve(environment: Mapping[str, str], errors: Connection) -> None:
    """Be a broker: ``python -m eruca_broker`` in an environment, whose stderr is a pipe."""
    os.dup2(errors.fileno(), sys.stderr.fileno())
    errors.close()
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["eruca_broker"]
    from eruca_broker.__main__ import main  # now, since its settings are in the environment

    main()
