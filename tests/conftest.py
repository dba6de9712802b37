"""Settings that hold for all tests.

Property tests print how to repeat a failure, and have no deadline: it would judge the machine,
which runs other tests at the same time. They look at other examples each time, but where ``CI`` is
set: whether a change may land is decided by the change. Ctrl-C stops the tests also where they run
in the background of a shell, which makes its children ignore it. Tests wait with patience
(`support/patience.py`). Processes that share the tests begin with the longest
(`support/durations.py`). A test fails if what it captured has a key or a token
(`support/printed_secrets.py`). Python's collections of garbage pass over what pytest has collected.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from xdist.remote import Producer

from support.certificates import read_certificates_once
from support.durations import (
    DurationRecorder,
    UnitScheduling,
    alternating,
    place_in,
    recorded,
    units_longest_first,
)
from support.initdb import copy_from
from support.patience import be_patient
from support.printed_secrets import judge

settings.register_profile("eruca", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("eruca")
signal.signal(signal.SIGINT, signal.default_int_handler)
be_patient()
read_certificates_once()


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


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Run one PostgreSQL for all tests of this process that share one, each in its schema."""
    from support.postgres import embedded_server  # its imports are not for all tests

    with embedded_server() as server:
        yield server.url


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_open() -> Iterator[None]:
    """Fail where connections, files or tasks were left open, not in whatever runs next.

    They warn when they are collected as garbage, which would be at any time.
    """
    yield
    gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected, and never look at the tests again.

    Hundreds of thousands of objects come and stay: looking at them again and again takes as long
    as the rest of it, in each process.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--record-durations``."""
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write how long each module took to tests/durations.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Record durations where it was asked for: in the process that sees all reports."""
    if config.getoption("--record-durations") and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(DurationRecorder())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Search what a test has printed for secrets, once it is over."""
    report = yield
    if call.when == "teardown":
        judge(report)
    return report


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> UnitScheduling:
    """Give each process the next unit of work when it has finished one."""
    return UnitScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the units of work, the longest first; within a unit the order stays random."""
    place_of = place_in(alternating(units_longest_first(recorded())))
    items.sort(key=lambda item: place_of(item.nodeid))
