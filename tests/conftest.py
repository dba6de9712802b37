"""What holds for all tests.

Property tests print how to repeat a failure, and have no deadline: it would judge the machine,
which runs other tests at the same time. They look at other examples each time, but where ``CI`` is
set: whether a change may land is decided by the change. And Ctrl-C means what it means in a
terminal, also where the tests run in the background of a shell, which has its children ignore it.
Whoever waits does so with patience (`support/patience.py`).

Where several processes run the tests, each begins with a stretch of the list, and takes from the
end of another's when it has none left. So the list begins with the folders whose tests take
longest, or one process might be left alone with them at the end; and a folder's tests stay
together, or each process would start a Spark of its own.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

from support.certificates import read_certificates_once
from support.initdb import copy_from
from support.patience import be_patient
from support.routes import share_routes

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
    """Order the tests by folder; within one they stay as random as they are."""
    items.sort(key=_place_of_folder)


def _place_of_folder(item: pytest.Item) -> int:
    folder = _folder(item)
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]
