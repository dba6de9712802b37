"""A service knows its version without reading its package's files for each answer."""

from __future__ import annotations

from importlib import metadata
from importlib.metadata import PackageNotFoundError, version

import pytest

from eruca_chassis.versions import version_of


def test_a_version_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    version_of.cache_clear()
    first = version_of("eruca-chassis")
    monkeypatch.setattr(metadata, "distribution", None)  # reading it again would fail

    assert first == version_of("eruca-chassis")
    monkeypatch.undo()
    assert first == version("eruca-chassis")


def test_a_package_that_is_not_installed_has_no_version() -> None:
    with pytest.raises(PackageNotFoundError):
        version_of("eruca-of-another-world")
