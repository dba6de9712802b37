"""The refused queues are those that the broker's error points at."""

from __future__ import annotations

import pytest

from eruca.contract.errors import (
    ErucaError,
    PermissionDeniedError,
    QueueNotFoundError,
    StaleLockError,
    TopicNotFoundError,
    UnavailableError,
    ValidationError,
)
from eruca.core.consuming.refused_queues import refused_places


def pointing(error: type[ErucaError], *pointers: str) -> ErucaError:
    return error("no", errors=[{"pointer": pointer, "detail": "no"} for pointer in pointers])


@pytest.mark.parametrize("error", [TopicNotFoundError, QueueNotFoundError, PermissionDeniedError])
def test_queues_that_cannot_be_read_are_those_pointed_at(error: type[ErucaError]) -> None:
    assert refused_places(pointing(error, "/body/queues/2", "/body/queues/0"), 3) == [0, 2]


def test_offsets_of_a_commit_are_pointed_at_likewise() -> None:
    assert refused_places(pointing(TopicNotFoundError, "/body/offsets/1"), 3) == [1]


def test_an_offset_behind_its_queue_s_end_concerns_that_queue_alone() -> None:
    assert refused_places(pointing(ValidationError, "/body/offsets/1/offset"), 3) == [1]


def test_a_queue_whose_file_has_failed_is_pointed_at_and_an_overload_is_not() -> None:
    assert refused_places(pointing(UnavailableError, "/body/queues/1"), 3) == [1]
    assert refused_places(pointing(UnavailableError), 3) == []


@pytest.mark.parametrize("error", [ValidationError, StaleLockError])
def test_another_error_is_of_the_whole_request(error: type[ErucaError]) -> None:
    assert refused_places(pointing(error, "/body/queues/0"), 3) == []


@pytest.mark.parametrize(
    "pointer", ["", "/body/queues/3", "/body/queues/0/filter", "/body/queues/"]
)
def test_what_points_at_no_queue_asked_for_names_none(pointer: str) -> None:
    assert refused_places(pointing(TopicNotFoundError, pointer), 3) == []


def test_an_error_that_points_nowhere_is_of_the_whole_request() -> None:
    assert refused_places(PermissionDeniedError("the group may not consume"), 3) == []
