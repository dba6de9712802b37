"""The registry of vector runners: what is not known is skipped by name or fails, never passed."""

from __future__ import annotations

import pytest

from support.vector_runners import RUNNERS, runner_for


def test_a_case_is_run_by_the_runner_of_its_kind() -> None:
    assert runner_for("latency_fault", "select") is RUNNERS["latency_fault/select"]


def test_a_file_without_kinds_has_one_runner() -> None:
    assert runner_for("tag_hash", None) is RUNNERS["tag_hash"]


def test_a_file_nobody_knows_has_no_runner() -> None:
    assert runner_for("of_another_subject", "any") is None


def test_an_unknown_kind_of_a_known_file_is_an_error() -> None:
    with pytest.raises(LookupError, match="'guess'"):
        runner_for("latency_fault", "guess")
