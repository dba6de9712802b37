"""What holds for all tests: property tests print how to repeat a failure, and have no deadline.

A deadline would judge the machine, which runs other tests at the same time.
"""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("eruca", deadline=None, print_blob=True)
settings.load_profile("eruca")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the tests marked ``anyio`` on asyncio, the only loop the services run on."""
    return "asyncio"
