"""The errors of a source, and two conditions that may still be handled."""

from __future__ import annotations


class SourceError(Exception):
    """The source cannot continue; the text says why, and how to fix it."""


class OptionError(SourceError):
    """An option is missing, unknown or invalid."""


class DataLossError(SourceError):
    """Messages of the requested range are deleted."""


class DamagedError(SourceError):
    """A message of the requested range is damaged."""


class RefusedError(SourceError):
    """A service refused the request; a retry fails as well.

    Args:
        text: The service's text.
        code: The contract's error code; None if the answer has none.
    """

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.code = code


class UnavailableError(SourceError):
    """A service was unreachable, or refused requests, until the time limit; or a table was."""


class StoppedError(Exception):
    """The work was asked to stop, and has ended at a place of its own choice."""


class BrokenAnswer(Exception):  # noqa: N818 - no error to anybody: the rest is asked for again
    """An answer ended early, or said that a retry may succeed."""

    def __init__(self, text: str, *, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class RangeDeleted(Exception):  # noqa: N818 - whether that is an error is an option
    """Retention has deleted messages of a requested range."""
