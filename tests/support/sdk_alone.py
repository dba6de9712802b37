"""A pytest plug-in: the SDK's unit tests where nothing of the services is installed.

``tests/conftest.py`` imports the services, whose dependencies are newer than the SDK's floors. Load
this instead: ``-p support.sdk_alone --confcutdir=tests/unit/sdk``. Property tests take the same few
examples each time: a fault of a version shows in the first ones, and `make test` takes more.
"""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import settings

from support.patience import be_patient

EXAMPLE_COUNT: Final = 20  # of each property

settings.register_profile(
    "sdk_alone", deadline=None, derandomize=True, max_examples=EXAMPLE_COUNT, database=None
)
settings.load_profile("sdk_alone")
be_patient()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run the tests marked ``anyio`` on asyncio, as ``tests/conftest.py`` does."""
    return "asyncio"
