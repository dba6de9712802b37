"""One log for everything: structlog's events and the standard library's records, on stderr.

The style for people is coloured lines, for machines one JSON object per line. ``auto`` uses the
first if stderr is a terminal. Nothing is configured on import.

This is for the service's own process. Inside a foreign one use :func:`logging_as_guest`.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import structlog
from structlog.typing import Processor

LogStyle: TypeAlias = Literal["auto", "console", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


def configure_logging(service: str, *, level: LogLevel = "info", style: LogStyle = "auto") -> None:
    """Send every log line of this process to stderr, with the *service*'s name."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(["color_message"]),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _naming(service),
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # so that tests can capture the log
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderers(style),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    # httpx logs a line for each request that this service sends.
    logging.getLogger("httpx").setLevel(max(number, logging.WARNING))
    # uvicorn's start and stop messages say less than the service's own.
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(max(number, logging.WARNING))
    uvicorn_log.filters = [_is_no_cancelled_request, _cancels_something]


@contextmanager
def logging_as_guest() -> Iterator[None]:
    """Send log lines to the standard library's loggers, by module, for the block.

    The process decides what happens to them there. If it has configured structlog itself, that
    configuration stays.
    """
    if structlog.is_configured():
        yield
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,  # first, because nearly all lines are filtered out
            structlog.contextvars.merge_contextvars,
            structlog.dev.ConsoleRenderer(
                colors=False, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.reset_defaults()


def _is_no_cancelled_request(record: logging.LogRecord) -> bool:
    # A shutdown that takes too long cancels requests; uvicorn logs that once, and we drop the
    # traceback of each.
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _cancels_something(record: logging.LogRecord) -> bool:
    # An incomplete request is a connection without a task: uvicorn logs "Cancel 0 running …".
    return not (str(record.msg).startswith("Cancel %s") and record.args == (0,))


def _renderers(style: LogStyle) -> list[Processor]:
    if style == "console" or (style == "auto" and sys.stderr.isatty()):
        # A traceback with all variables, the default, would block the event loop for seconds.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=True, exception_formatter=plain)]
    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(ensure_ascii=False),
    ]


def _naming(service: str) -> Processor:
    def add_service(
        _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        event.setdefault("service", service)
        return event

    return add_service
