"""The record of a batch in its commit, and the commit of a batch exactly once: a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.exporting.errors import UnavailableError
from eruca.tables.batches import Batch, CommitConflictError, TableBusyError, TableError
from eruca.tables.committing import (
    CONFLICTS_MAX,
    checked_last_batch,
    commit_once,
)
from eruca.tables.files import DataFile


def batch_of(number: int, commit: str = "c") -> Batch:
    return Batch(number, f"{commit}{number}", f'{{"next": {number}}}', 10, 0, 0, 2)


@given(st.builds(Batch, *[st.integers(0)], *[st.text()] * 2, *[st.integers(0)] * 4))
def test_a_record_comes_back_as_it_was(batch: Batch) -> None:
    assert Batch.from_properties(batch.to_properties()) == batch


def test_a_record_of_an_earlier_version_names_no_brokers() -> None:
    properties = batch_of(3).to_properties()
    del properties["eruca.brokers"]
    assert Batch.from_properties(properties) == batch_of(3)


def test_a_commit_of_another_writer_is_no_batch_and_a_damaged_one_is_refused() -> None:
    assert Batch.from_properties({"operation": "OPTIMIZE"}) is None
    with pytest.raises(TableError, match="invalid"):
        Batch.from_properties({"eruca.positions": "{}"})


@dataclass
class Table:
    """A table in memory; *events* happen one after another, one before each commit."""

    commits: list[Batch | str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    seen: int = 0  # commits at the last reading
    name: str = "table"
    data: Any = None  # nothing is written
    adopts: bool = False
    is_used: bool = False

    def last_batch(self) -> Batch | None:
        self.seen = len(self.commits)
        batches = [one for one in self.commits if isinstance(one, Batch)]
        return batches[-1] if batches else None

    def append(self, files: Sequence[DataFile], batch: Batch) -> None:
        event = self.events.pop(0) if self.events else "none"
        if event == "other writer":
            self.commits.append("optimize")
        if event == "other exporter":
            self.commits.append(batch_of(batch.number, "theirs"))
        if event == "no connection":
            raise OSError("no connection")
        if len(self.commits) != self.seen:
            raise CommitConflictError("changed")
        self.commits.append(batch)
        if event == "no answer":
            raise OSError("no answer")


EVENTS = ["none", "other writer", "other exporter", "no connection", "no answer"]


@given(st.lists(st.sampled_from(EVENTS), max_size=30))
def test_a_batch_is_in_the_table_once_or_an_error_says_that_it_is_not(events: list[str]) -> None:
    """A run after an error continues with what the table has, as a new process does."""
    table = Table(events=events)
    ours = 0
    for number in range(8):
        after = table.last_batch()
        mine = batch_of(0 if after is None else after.number + 1, f"mine{number}-")
        try:
            commit_once(table, after, [], mine)
        except (TableBusyError, UnavailableError):
            assert mine not in table.commits
        else:
            ours += 1
            assert table.commits.count(mine) == 1
    batches = [one for one in table.commits if isinstance(one, Batch)]
    assert [one.number for one in batches] == list(range(len(batches)))
    assert ours == sum(one.commit.startswith("mine") for one in batches)


def test_an_error_of_a_format_s_library_says_that_nothing_is_lost() -> None:
    table = Table(events=["no connection"])
    with pytest.raises(UnavailableError, match="OSError: no connection; nothing is lost: run it"):
        commit_once(table, None, [], batch_of(0))


def test_writers_that_never_stop_end_it_with_an_error() -> None:
    table = Table(events=["other writer"] * CONFLICTS_MAX)
    with pytest.raises(TableError, match="run it again"):
        commit_once(table, None, [], batch_of(0))


def test_rows_of_another_origin_are_refused_unless_they_are_adopted() -> None:
    with pytest.raises(TableError, match="do not say where to continue"):
        checked_last_batch(Table(is_used=True))
    assert checked_last_batch(Table(is_used=True, adopts=True)) is None
    assert checked_last_batch(Table()) is None
