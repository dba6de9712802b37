"""The registry of vector runners: what is not known fails, and is never passed."""

from __future__ import annotations

import pytest

from support.vector_runners import RUNNERS, runner_for


def test_a_case_is_run_by_the_runner_of_its_kind() -> None:
    assert runner_for("latency_fault", "select") is RUNNERS["latency_fault/select"]


def test_a_file_without_kinds_has_one_runner() -> None:
    assert runner_for("tag_hash", None) is RUNNERS["tag_hash"]


@pytest.mark.parametrize(
    ("file", "kind"), [("of_another_subject", "any"), ("latency_fault", "guess")]
)
def test_an_unknown_file_or_kind_is_an_error(file: str, kind: str) -> None:
    with pytest.raises(LookupError, match=f"'{kind}' of the file '{file}'"):
        runner_for(file, kind)
