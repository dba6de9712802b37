"""A reader's options, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from eruca.exporting.credentials import CredentialFiles
from eruca.exporting.errors import OptionError
from eruca.exporting.option_texts import OptionTexts
from eruca.exporting.ranges import Queue, Range
from eruca.exporting.topic_choice import TopicChoice, TopicPattern

_TOPIC: Final = re.compile(r"[%|a-zA-Z0-9_-]+")  # as in brokers
_PROGRESS_GROUP: Final = re.compile(r"spark-[%|a-zA-Z0-9_-]{1,114}")
REQUEST_ROWS_MAX: Final = 5_000_000  # messages in one answer, the service's limit
# messages; a task with fewer than 250 000 is mostly start-up
PARTITION_ROWS_DEFAULT: Final = 500_000
_STARTS_AND_ENDS: Final = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
)
TRIGGER_ROWS_DEFAULT: Final = 2_000_000  # messages in a micro-batch, which a crash repeats
TRIGGER_DELAY_DEFAULT: Final = 900.0  # seconds, as Spark's Kafka source has it
PARTITION_COUNT_MIN_MAX: Final = 10_000  # tasks of a read; more would be nothing but start-up


@dataclass(frozen=True)
class Options:
    """A user's options, validated."""

    urls: tuple[str, ...]  # of query services, all equivalent
    topics: TopicChoice
    assigned: frozenset[Queue] | None  # only these queues; None: all
    columns: tuple[str, ...]
    codec: str  # the compression of answers
    partition_rows: int
    partition_count_min: int
    trigger_rows: int
    trigger_rows_min: int  # a stream waits for so many messages,
    trigger_delay_seconds: float  # but not longer than this
    starting: str | Mapping[Queue, int]  # "earliest", "latest", or offsets
    ending: str | Mapping[Queue, int]  # "latest", or offsets
    needs_later: bool  # whether each queue must have a message stored at starting_at or later
    starting_at: str | None  # RFC 3339: stored at this time or later
    ending_at: str | None  # RFC 3339: stored before this time
    ranges: tuple[Range, ...] | None  # exactly these; None: what start and end say
    fail_on_data_loss: bool
    damaged: str  # "refuse", or "mark": damaged messages have rows with their fault
    patience_seconds: float  # how long to retry without any progress
    timeout_seconds: float  # for an answer's next bytes
    files: CredentialFiles
    progress_group: str | None  # shows a stream's progress; None: it is not shown
    namesrvs: tuple[str, ...]  # only for that; else none

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Return the options of a reader.

        Raises:
            OptionError: An option is missing, unknown or invalid.
        """
        texts = OptionTexts(given)
        assigned = texts.queues("assign")
        topics = _topics_of(texts, assigned)
        columns = texts.columns("columns")
        damaged = texts.damaged(columns)
        starting = texts.offsets("startingOffsets", "earliest", ("earliest", "latest"), topics)
        ending = texts.offsets("endingOffsets", "latest", ("latest",), topics)
        starting_at, ending_at = texts.moment("startingTimestamp"), texts.moment("endingTimestamp")
        if starting_at and ending_at and _instant(ending_at) < _instant(starting_at):
            raise OptionError(
                "option endingTimestamp: expected a time after startingTimestamp"
                f" {starting_at}, found {ending_at}"
            )
        if (starting_at and texts.text("startingOffsets")) or (
            ending_at and texts.text("endingOffsets")
        ):
            raise OptionError(
                "offsets and times exclude each other; give start and end by one of them"
            )
        ranges = texts.ranges("ranges", topics)
        if ranges is not None and any(texts.text(name) for name in _STARTS_AND_ENDS):
            raise OptionError(
                f"option ranges excludes {', '.join(_STARTS_AND_ENDS)}; remove one or the other"
            )
        progress_group = texts.text("progressGroup")
        if progress_group is not None and not _PROGRESS_GROUP.fullmatch(progress_group):
            raise OptionError(
                "option progressGroup: expected a group's name that begins with spark-, because its"
                f" offsets are overwritten; found {progress_group!r}"
            )
        trigger_rows = texts.count(
            texts.either("maxRowsPerTrigger", "maxOffsetsPerTrigger"), TRIGGER_ROWS_DEFAULT
        )
        trigger_rows_min = texts.count("minOffsetsPerTrigger", 1)
        if trigger_rows_min > trigger_rows:
            raise OptionError(
                f"option minOffsetsPerTrigger: expected at most {trigger_rows}, the maximum of a"
                f" micro-batch; found {trigger_rows_min}"
            )
        return cls(
            urls=texts.urls("url", "ERUCA_QUERY_URLS"),
            topics=topics,
            assigned=frozenset(assigned) or None,
            columns=columns,
            codec=texts.choice("codec", ("none", "lz4", "zstd")),
            partition_rows=texts.count(
                "partitionRows", PARTITION_ROWS_DEFAULT, most=REQUEST_ROWS_MAX
            ),
            partition_count_min=texts.count("minPartitions", 1, most=PARTITION_COUNT_MIN_MAX),
            trigger_rows=trigger_rows,
            trigger_rows_min=trigger_rows_min,
            trigger_delay_seconds=texts.duration("maxTriggerDelay", TRIGGER_DELAY_DEFAULT),
            starting=starting,
            ending=ending,
            needs_later=texts.choice("startingOffsetsByTimestampStrategy", ("latest", "error"))
            == "error",
            starting_at=starting_at,
            ending_at=ending_at,
            ranges=ranges,
            fail_on_data_loss=texts.flag("failOnDataLoss", default=True),
            damaged=damaged,
            patience_seconds=texts.seconds("retrySeconds", 300.0),
            timeout_seconds=texts.seconds("timeoutSeconds", 60.0),
            files=texts.credential_files(),
            progress_group=progress_group,
            namesrvs=() if progress_group is None else texts.urls("namesrv", "ERUCA_NAMESRV_URLS"),
        )


def _topics_of(texts: OptionTexts, assigned: tuple[Queue, ...]) -> TopicChoice:
    """Return the topics that exactly one of the options chooses."""
    named = texts.either("topic", "subscribe")
    names = texts.words(named) or texts.words("path")
    pattern = texts.text("subscribePattern")
    chosen = [
        option
        for option, is_given in (
            (named, names),
            ("assign", assigned),
            ("subscribePattern", pattern),
        )
        if is_given
    ]
    if not chosen:
        raise OptionError(
            "option topic is missing: expected one topic, or several separated by commas; or"
            " subscribePattern, or assign"
        )
    if len(chosen) > 1:
        raise OptionError(f"options {' and '.join(chosen)} exclude each other; keep one")
    if pattern is not None:
        return TopicChoice(pattern=TopicPattern(pattern))
    names = names or tuple(queue.topic for queue in assigned)
    strange = [topic for topic in names if not _TOPIC.fullmatch(topic)]
    if strange:
        raise OptionError(f"option {chosen[0]}: expected a topic's name, found {strange[0]!r}")
    return TopicChoice(tuple(dict.fromkeys(names)))


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
