"""Logging: one line per event, for machines or for people, with the service's name in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from eruca_chassis.logging import LogStyle, configure_logging, logging_as_guest


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn_level = uvicorn.level
    structlog.reset_defaults()  # another test's process may have been set up
    yield
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level
    uvicorn.setLevel(uvicorn_level)
    uvicorn.filters = []


def logged(monkeypatch: pytest.MonkeyPatch, style: LogStyle) -> str:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    configure_logging("things", level="info", style=style)
    log = structlog.get_logger()
    log.debug("too little to say")
    log.info("started", port=17)
    logging.getLogger("some.library").warning("from a %s", "library")
    logging.getLogger("uvicorn.error").info("Started server process")
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("failed")
    return stderr.getvalue()


def test_machines_get_one_object_per_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.loads(line) for line in logged(monkeypatch, "json").splitlines()]

    assert [line["event"] for line in lines] == ["started", "from a library", "failed"]
    assert [line["level"] for line in lines] == ["info", "warning", "error"]
    assert {line["service"] for line in lines} == {"things"}
    assert lines[0]["port"] == 17
    assert "ValueError: why" in lines[2]["exception"]


def test_without_a_terminal_auto_is_for_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert logged(monkeypatch, "auto").startswith("{")


def test_people_get_coloured_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = logged(monkeypatch, "console")

    assert "\x1b[" in text
    assert "from a library" in text
    assert "ValueError" in text
    assert "stderr" not in text  # variables are nobody's business, and take long to draw


def test_a_request_cancelled_by_a_stop_is_not_logged_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    configure_logging("things", style="json")
    log = logging.getLogger("uvicorn.error")

    log.error("Exception in ASGI application", exc_info=asyncio.CancelledError())
    log.error("Exception in ASGI application", exc_info=ValueError("why"))

    [line] = stderr.getvalue().splitlines()
    assert "ValueError: why" in line


def test_a_guest_logs_where_its_process_looks_and_nowhere_else(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    log = structlog.get_logger()
    with caplog.at_level("INFO"), logging_as_guest():
        log.debug("too little to say")
        log.info("started", port=17)

    assert [(line.name, line.levelname, line.message) for line in caplog.records] == [
        (__name__, "INFO", "started port=17")
    ]
    assert capsys.readouterr() == ("", "")
    assert not structlog.is_configured()


def test_a_guest_leaves_a_process_that_has_its_own_way_to_it() -> None:
    with structlog.testing.capture_logs() as lines:
        structlog.configure(structlog.get_config()["processors"])
        with logging_as_guest():
            structlog.get_logger().info("started", port=17)

    assert lines == [{"event": "started", "port": 17, "log_level": "info"}]
    assert structlog.is_configured()
