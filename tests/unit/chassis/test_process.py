"""The settings of a process for itself: this platform supports all of them."""

from __future__ import annotations

import gc
import resource
import sys

import pytest

from eruca_chassis.running.process import (
    freeze_start_up_objects,
    keep_freed_memory,
    raise_file_limit,
)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator is meant")
def test_glibc_keeps_freed_memory() -> None:
    assert keep_freed_memory()


def test_the_soft_limit_of_files_becomes_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert raise_file_limit() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_exists_at_the_start_is_left_out_of_collections() -> None:
    try:
        freeze_start_up_objects()
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
