"""Readiness: off, on, and off for good."""

from __future__ import annotations

from eruca_chassis.readiness import Readiness


def test_a_service_is_not_ready_until_it_says_so() -> None:
    readiness = Readiness()
    assert not readiness.is_ready
    assert "starting" in readiness.error().detail

    readiness.ready()

    assert readiness.is_ready


def test_a_reason_is_passed_on() -> None:
    readiness = Readiness()
    readiness.not_ready("the store is being read")

    assert readiness.error().detail == "the store is being read"
    assert readiness.error().retry_after_seconds is not None


def test_what_would_help_is_passed_on_as_long_as_it_would() -> None:
    readiness = Readiness()
    readiness.not_ready("there is no database", fix="start it")
    assert readiness.error().fix == "start it"

    readiness.stop()

    assert "another instance" in str(readiness.error().fix)


def test_stopping_is_final() -> None:
    readiness = Readiness()
    readiness.stop()

    readiness.ready()
    readiness.not_ready("something else")

    assert readiness.is_stopping
    assert "stopping" in readiness.error().detail


def test_a_service_that_stops_lets_go_of_what_it_asks_for_incapacities() -> None:
    readiness = Readiness()
    readiness.incapacities.append(lambda: None)

    readiness.stop()

    assert readiness.incapacities == []
