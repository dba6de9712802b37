"""A reader's options, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark_eruca.columns import COLUMNS, DAMAGE
from pyspark_eruca.errors import OptionError
from pyspark_eruca.option_texts import OptionTexts
from pyspark_eruca.ranges import Queue

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")  # as brokers have it
REQUEST_ROWS_MAX: Final = 5_000_000  # messages of one answer, as the service allows
PARTITION_ROWS_DEFAULT: Final = 500_000  # messages; a task of fewer than 250 000 is mostly start-up
TRIGGER_ROWS_DEFAULT: Final = 2_000_000  # messages of a micro-batch: what a crash repeats


@dataclass(frozen=True)
class Options:
    """A user's options, validated."""

    urls: tuple[str, ...]  # of query services, one as good as the other
    topics: tuple[str, ...]
    columns: tuple[str, ...]
    codec: str  # how answers are compressed
    partition_rows: int
    trigger_rows: int
    starting: str | Mapping[Queue, int]  # "earliest", "latest", or offsets
    ending: str | Mapping[Queue, int]  # "latest", or offsets
    starting_at: str | None  # RFC 3339: stored then or later
    ending_at: str | None  # RFC 3339: stored before
    fail_on_data_loss: bool
    damaged: str  # "refuse", or "mark": damaged messages have rows that say so
    patience_seconds: float  # for how long something is tried again without any progress
    timeout_seconds: float  # for an answer's next bytes

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Return the options of a reader.

        Raises:
            OptionError: One is missing, unknown, or says what cannot be.
        """
        texts = OptionTexts(given)
        topics = texts.words("topic") or texts.words("path")
        if not topics:
            raise OptionError("option topic is missing: one topic, or several with commas between")
        strange = [topic for topic in topics if not _TOPIC.fullmatch(topic)]
        if strange:
            raise OptionError(f"option topic: {strange[0]!r} is no name of a topic")
        columns = texts.words("columns") or tuple(COLUMNS)
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown or len(set(columns)) != len(columns):
            raise OptionError(f"option columns: a choice of {', '.join(COLUMNS)}; not {unknown}")
        damaged = texts.choice("damaged", ("refuse", "mark"))
        if damaged == "mark" and DAMAGE not in columns:
            raise OptionError(
                f"option damaged: mark needs the column {DAMAGE}, which tells damaged rows from "
                f"others; add it to the option columns"
            )
        starting = texts.offsets("startingOffsets", "earliest", ("earliest", "latest"), topics)
        ending = texts.offsets("endingOffsets", "latest", ("latest",), topics)
        starting_at, ending_at = texts.moment("startingTimestamp"), texts.moment("endingTimestamp")
        if starting_at and ending_at and _instant(ending_at) < _instant(starting_at):
            raise OptionError(
                f"option endingTimestamp: {ending_at} is before startingTimestamp, {starting_at}"
            )
        if (starting_at and texts.text("startingOffsets")) or (
            ending_at and texts.text("endingOffsets")
        ):
            raise OptionError("where to start and to end is told by offsets or by times, not both")
        return cls(
            urls=texts.urls("url", "ERUCA_QUERY_URLS"),
            topics=tuple(dict.fromkeys(topics)),
            columns=columns,
            codec=texts.choice("codec", ("none", "lz4", "zstd")),
            partition_rows=texts.count(
                "partitionRows", PARTITION_ROWS_DEFAULT, most=REQUEST_ROWS_MAX
            ),
            trigger_rows=texts.count("maxRowsPerTrigger", TRIGGER_ROWS_DEFAULT),
            starting=starting,
            ending=ending,
            starting_at=starting_at,
            ending_at=ending_at,
            fail_on_data_loss=texts.flag("failOnDataLoss", default=True),
            damaged=damaged,
            patience_seconds=texts.seconds("retrySeconds", 300.0),
            timeout_seconds=texts.seconds("timeoutSeconds", 60.0),
        )


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
