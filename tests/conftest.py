"""What holds for all tests.

Property tests print how to repeat a failure, and have no deadline: it would judge the machine,
which runs other tests at the same time. They look at other examples each time, but where ``CI`` is
set: whether a change may land is decided by the change. And Ctrl-C means what it means in a
terminal, also where the tests run in the background of a shell, which has its children ignore it.
Whoever waits does so with patience (`support/patience.py`).

Where several processes run the tests, each begins with a stretch of the list, and takes from the
end of another's when it has none left. So each stretch begins with some of the modules that take
longest, or one process would be left alone with them at the end. Those that share a Spark session
are in one stretch, for each process starts one of its own; and a folder's tests stay together.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from support.certificates import read_certificates_once
from support.initdb import copy_from
from support.patience import be_patient
from support.routes import share_routes

LONGEST: Final = (  # dealt to the stretches in turn; at one time they take some minutes each
    ("spark/test_kills.py",),
    (
        "spark/test_export.py",
        "spark/test_stream.py",
        "spark/test_reports.py",
        "spark/test_table.py",
    ),
    ("spark/test_standalone.py", "spark/test_command.py"),
    ("system/test_demo.py", "model/test_groups.py", "system/test_blocked_loop.py"),
)
LONGEST_FIRST: Final = ("spark", "crash", "system", "contract", "postgres", "model", "api", "store")

settings.register_profile("eruca", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("eruca")
signal.signal(signal.SIGINT, signal.default_int_handler)
be_patient()
read_certificates_once()
share_routes()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the tests marked ``anyio`` on asyncio, the only loop the services run on."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _initdb(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All processes that run the tests copy the same new PostgreSQL."""
    directory = tmp_path_factory.getbasetemp()
    is_one_of_many = "PYTEST_XDIST_WORKER" in os.environ
    copy_from((directory.parent if is_one_of_many else directory) / "initdb")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests, those that take longest first; within a module they stay random."""
    items.sort(key=_place_of_folder)
    stretch_count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    items[:] = _dealt(items, stretch_count)


def _dealt(items: Sequence[pytest.Item], stretch_count: int) -> Iterator[pytest.Item]:
    """Yield *items* in so many stretches of one length, the longest at their beginnings."""
    heads: list[list[pytest.Item]] = [[] for _ in range(stretch_count)]
    for number, modules in enumerate(LONGEST):
        heads[number % stretch_count] += [item for item in items if _module(item) in modules]
    dealt = {item.nodeid for head in heads for item in head}
    rest = iter([item for item in items if item.nodeid not in dealt])
    left = len(items)
    for number, head in enumerate(heads):
        size = left // (stretch_count - number)  # as pytest-xdist counts
        yield from head
        yield from islice(rest, max(size - len(head), 0))
        left -= size
    yield from rest


def _place_of_folder(item: pytest.Item) -> int:
    folder = _module(item).partition("/")[0]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


def _module(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).as_posix()
