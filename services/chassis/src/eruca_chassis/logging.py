"""One log for everything: structlog's events and the standard library's records, on stderr.

For people it is coloured lines; for machines one JSON object per line. ``auto`` takes the first
where stderr is a terminal. Nothing is configured on import.

That is for a process of the service's own. Within somebody else's, :func:`logging_as_guest`.
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
    """Send every log line of this process to stderr, marked with the *service*'s name."""
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
        cache_logger_on_first_use=False,  # or a test could not look at what is logged
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
    # Its start and stop messages say less than the service's own.
    # One line for each request this service makes of another would drown everything else.
    logging.getLogger("httpx").setLevel(max(number, logging.WARNING))
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(max(number, logging.WARNING))
    uvicorn_log.filters = [_is_no_cancelled_request, _cancels_something]


@contextmanager
def logging_as_guest() -> Iterator[None]:
    """Send log lines to the standard library's loggers for the block, each to its module's.

    What becomes of them there is for the process to say. One that has configured structlog itself
    has said so already.
    """
    if structlog.is_configured():
        yield
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,  # first: nearly all lines are wanted by nobody
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
    # A stop that takes too long cancels requests, which uvicorn says once; not with a traceback
    # for each of them.
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _cancels_something(record: logging.LogRecord) -> bool:
    # A request that has not arrived whole is a connection without a task: "Cancel 0 running …".
    return not (str(record.msg).startswith("Cancel %s") and record.args == (0,))


def _renderers(style: LogStyle) -> list[Processor]:
    if style == "console" or (style == "auto" and sys.stderr.isatty()):
        # Drawn with all variables, as it would be, a traceback takes the event loop for seconds.
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
