"""An outage is logged when it begins and when it is over, however often something is tried."""

from __future__ import annotations

import logging

import pytest

from eruca.aio.cluster.outages import Outages
from eruca.contract.errors import NotReadyError, TransportError

LOGGER = logging.getLogger("eruca.test_outages")
REFUSED = TransportError("connection refused")


@pytest.fixture
def outages(caplog: pytest.LogCaptureFixture) -> Outages:
    caplog.set_level(logging.DEBUG, LOGGER.name)
    return Outages(
        LOGGER, failed="no answer from %s: %s", over="%s answers again", level=logging.WARNING
    )


def told(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_what_fails_again_is_for_debugging(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        outages.failed("broker-a", REFUSED)

    assert told(caplog) == ["no answer from broker-a: connection refused"]
    assert told(caplog, logging.DEBUG) == ["no answer from broker-a: connection refused"] * 2


def test_an_end_is_told_of_what_has_failed_and_of_nothing_else(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    outages.failed("broker-a", REFUSED)
    for name in ("broker-a", "broker-a", "broker-b"):
        outages.answered(name)

    assert told(caplog)[1:] == ["broker-a answers again"]


def test_what_fails_in_another_way_is_told_once_more(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    starting = NotReadyError("the service is starting", fix="wait")
    for error in (REFUSED, starting, REFUSED, starting):
        outages.failed("broker-a", error)

    assert told(caplog) == [
        "no answer from broker-a: connection refused",
        "no answer from broker-a: the service is starting (wait)",
    ]


def test_what_fails_again_is_logged_again(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    outages.failed("broker-a", REFUSED)
    outages.answered("broker-a")
    outages.failed("broker-a", REFUSED)

    assert len(told(caplog)) == 3


def test_the_end_of_what_nobody_tries_any_more_is_not_told(
    outages: Outages, caplog: pytest.LogCaptureFixture
) -> None:
    outages.failed("broker-a", REFUSED)
    outages.forget("broker-a")
    outages.answered("broker-a")

    assert len(told(caplog)) == 1
