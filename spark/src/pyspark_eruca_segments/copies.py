"""A copy of a broker's log, as a plan knows it: its stretches, in order."""

from __future__ import annotations

from typing import NamedTuple

from pyspark_eruca_segments.objects import Source


class Stretch(NamedTuple):
    """A part of the log that one task reads: it begins with a record."""

    source: Source
    begin: int  # log offset of the first byte
    end: int  # log offset behind the bytes to be read
    first_ms: int | None = None  # store time of the first record, in ms since 1970; None: unknown
    last_ms: int | None = None  # … of the last one


class LogCopy(NamedTuple):
    """One copy of a broker's log."""

    broker_name: str
    stretches: tuple[Stretch, ...]  # without a gap
    note: str | None = None  # what its reader should know
    may_be_rocketmqs: bool = False  # then each stretch begins a segment
