"""The number of brokers for a machine: by its processors, and never fewer than have stores."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eruca_deploy.broker_count import suitable_broker_count, usable_processors


@pytest.mark.parametrize(
    ("processors", "replicas", "said"),
    [
        (1, 1, "1 broker: one for each processor; 1 processor found"),
        (4, 1, "4 brokers: one for each processor; 4 processors found"),
        (4, 2, "2 brokers: a replica for each processor; 4 processors found"),
        (2, 3, "1 broker: a replica for each processor; 2 processors found"),
        (64, 1, "9 brokers: the maximum; 64 processors found"),
        (64, 2, "4 brokers: the maximum; 64 processors found"),
    ],
)
def test_there_is_a_broker_process_for_each_processor(
    tmp_path: Path, processors: int, replicas: int, said: str
) -> None:
    suitable = suitable_broker_count(tmp_path, replicas=replicas, processors=processors)

    assert str(suitable) == said


@pytest.mark.parametrize(("stores", "replicas"), [(["broker-c"], 1), (["broker-c-1"], 2)])
def test_no_broker_with_a_store_is_left_out(
    tmp_path: Path, stores: list[str], replicas: int
) -> None:
    for store in stores:
        (tmp_path / store).mkdir()

    suitable = suitable_broker_count(tmp_path, replicas=replicas, processors=2)

    assert str(suitable) == f"3 brokers: as many as {tmp_path} has; 2 processors found"


def test_a_data_directory_that_cannot_be_one_has_no_stores(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    assert suitable_broker_count(file / "below", replicas=1, processors=2).brokers == 2


@pytest.mark.parametrize(
    ("quota", "count"),
    [("max 100000", None), ("100000 100000", 1), ("50000 100000", 1), ("99999999 100000", None)],
)
def test_a_quota_of_a_container_counts(tmp_path: Path, quota: str, count: int | None) -> None:
    file = tmp_path / "cpu.max"
    file.write_text(f"{quota}\n")

    assert usable_processors(file) == (count or len(os.sched_getaffinity(0)))


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert usable_processors(tmp_path / "none") == len(os.sched_getaffinity(0))
