"""What holds for all tests.

Property tests print how to repeat a failure, and have no deadline: it would judge the machine,
which runs other tests at the same time. They look at other examples each time, but where ``CI`` is
set: whether a change may land is decided by the change. And Ctrl-C means what it means in a
terminal, also where the tests run in the background of a shell, which has its children ignore it.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

settings.register_profile("eruca", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("eruca")
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the tests marked ``anyio`` on asyncio, the only loop the services run on."""
    return "asyncio"
