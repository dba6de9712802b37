"""Model tests open stores by the hundred: what these log on the way is not worth reading."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.stores import without_log_lines


@pytest.fixture(autouse=True)
def _without_log_lines() -> Iterator[None]:
    with without_log_lines():
        yield
