"""The errors of a source, and two conditions that are not errors yet."""

from __future__ import annotations


class SourceError(Exception):
    """The source cannot go on; the text says why, and what to do about it."""


class OptionError(SourceError):
    """An option is missing, unknown, or says what cannot be."""


class DataLossError(SourceError):
    """Messages that were to be read are gone."""


class DamagedError(SourceError):
    """A message that was to be read is damaged."""


class RefusedError(SourceError):
    """A service refused, and will refuse again.

    Args:
        text: What it said.
        code: The contract's name for it; None where it did not tell.
    """

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.code = code


class UnavailableError(SourceError):
    """A service was not to be reached, or refused, for as long as was allowed."""


class BrokenAnswer(Exception):  # noqa: N818 - no error to anybody: the rest is asked for again
    """An answer ended early, or said that the same request may succeed later."""

    def __init__(self, text: str, *, retry_after: float = 0.0) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class RangeDeleted(Exception):  # noqa: N818 - whether that is an error is an option
    """Retention has deleted messages of a range that was asked for."""
