"""Starts: the CPU and the time of each service until it is ready, beside those of bare imports.

Nearly all of a start is imports, so the raw limit is FastAPI's own. The database runs already.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.machine import cpu_seconds
from bench.report import Report
from bench.servers import free_port, running, wait_for
from eruca_postgres.embedded import EmbeddedServer

_TIMES: Final = 5
_NOBODY: Final = "http://127.0.0.1:1"  # name servers that do not answer


class _Start(NamedTuple):
    cpu_seconds: float
    seconds: float


def run(report: Report, _seconds: float) -> None:
    """Measure every row."""
    bare = _median(partial(_import, "pass"))
    fastapi = _median(partial(_import, "import fastapi"))
    _figure(report, "python -c pass", bare)
    _figure(report, "python -c 'import fastapi'", fastapi)
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        directory = Path(temporary)
        with EmbeddedServer(directory / "postgres") as server:
            found = {
                service: _median(partial(_start, service, directory, server.url))
                for service in _SETTINGS
            }
    for service, start in found.items():
        _figure(report, f"start of {service} until it is ready", start)
    report.ratio("start", found["eruca_broker"].cpu_seconds / fastapi.cpu_seconds)


def _figure(report: Report, name: str, start: _Start) -> None:
    report.figure(name, f"{start.cpu_seconds:.2f} CPU-s, {start.seconds:.2f} s")


def _median(measure: Callable[[], _Start]) -> _Start:
    measure()  # the first one may compile modules
    starts = [measure() for _ in range(_TIMES)]
    return _Start(*(statistics.median(figures) for figures in zip(*starts, strict=True)))


def _import(statement: str) -> _Start:
    began = time.perf_counter()
    process_id = os.posix_spawn(sys.executable, [sys.executable, "-c", statement], os.environ)
    _, status, used = os.wait4(process_id, 0)
    assert status == 0, statement
    return _Start(used.ru_utime + used.ru_stime, time.perf_counter() - began)


def _start(service: str, directory: Path, database_url: str) -> _Start:
    with _own_directory(directory) as own:
        port = free_port()
        settings = _SETTINGS[service](own, database_url)
        prefix = service.upper()
        environment = {
            **{name.replace("SERVICE", prefix): value for name, value in settings.items()},
            f"{prefix}_PORT": str(port),
        }
        began = time.perf_counter()
        with running([sys.executable, "-m", service], environment) as process_id:
            wait_for(f"http://127.0.0.1:{port}/readyz")
            return _Start(cpu_seconds(process_id), time.perf_counter() - began)


@contextmanager
def _own_directory(directory: Path) -> Iterator[Path]:
    with TemporaryDirectory(dir=directory) as own:
        yield Path(own)


def _of_projection(_own: Path, database_url: str) -> Mapping[str, str]:
    return {
        "SERVICE_NAME": "bench",
        "SERVICE_NAMESRV_URLS": _NOBODY,
        "DATABASE_URL": database_url,
    }


_SETTINGS: Final[Mapping[str, Callable[[Path, str], Mapping[str, str]]]] = {
    "eruca_namesrv": lambda own, _url: {
        "SERVICE_KV_FILE": str(own / "kv.json"),
        "SERVICE_SETTLE_SECONDS": "0",
    },
    "eruca_broker": lambda own, _url: {
        "SERVICE_STORE_DIR": str(own / "store"),
        "SERVICE_NAMESRV_URLS": "",
    },
    "eruca_controller": lambda own, _url: {
        "SERVICE_STORE": "file",
        "SERVICE_FILE": str(own / "groups.json"),
        "SERVICE_NAMESRV_URLS": _NOBODY,
    },
    "eruca_console": lambda _own, _url: {"SERVICE_NAMESRV_URLS": _NOBODY},
    "eruca_txn_checker": _of_projection,
    "eruca_query": _of_projection,
}
