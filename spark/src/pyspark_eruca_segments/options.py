"""The options of a table of segments, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from eruca.exporting.errors import OptionError
from eruca.exporting.option_texts import OptionTexts
from eruca.exporting.ranges import Queue
from eruca.exporting.topic_choice import TopicChoice

OPTION_NAMES: Final = (
    "path",
    "topic",
    "subscribe",
    "broker",
    "cluster",
    "logId",
    "backup",
    "columns",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "damaged",
)

_IN_URLS_ONLY: Final = frozenset("@?#")  # before or behind them a URL may have a secret


@dataclass(frozen=True)
class SegmentOptions:
    """A user's options, validated."""

    place: str  # a folder, or the URL of an object store
    topics: tuple[str, ...]
    brokers: tuple[str, ...]
    cluster: str | None  # of a tier; None: it is a store or a backup
    log_id: str | None  # of a tier; None: the only one
    backup: int | None  # its number; None: the latest
    columns: tuple[str, ...]
    starts: tuple[tuple[Queue, int], ...]  # of queues; others from their beginning
    ends: tuple[tuple[Queue, int], ...]
    starting_ms: int | None  # stored at this time or later
    ending_ms: int | None  # stored before
    damaged: str  # "refuse", or "mark": damaged parts have rows with their fault

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SegmentOptions:
        """Return the options of a reader.

        Raises:
            OptionError: An option is missing, unknown or invalid.
        """
        texts = OptionTexts(given, OPTION_NAMES)
        topics = tuple(dict.fromkeys(texts.words(texts.either("topic", "subscribe"))))
        if not topics:
            raise OptionError(
                "option topic is missing: expected one topic, or several separated by commas"
            )
        choice = TopicChoice(topics)
        columns = texts.columns("columns")
        damaged = texts.damaged(columns)
        starting_ms, ending_ms = (_ms(texts, f"{end}Timestamp") for end in ("starting", "ending"))
        if starting_ms is not None and ending_ms is not None and ending_ms < starting_ms:
            raise OptionError("option endingTimestamp: expected a time after startingTimestamp")
        starts = texts.offsets("startingOffsets", "earliest", ("earliest",), choice)
        ends = texts.offsets("endingOffsets", "latest", ("latest",), choice)
        options = cls(
            place=_place(texts),
            topics=topics,
            brokers=tuple(dict.fromkeys(texts.words("broker"))),
            cluster=texts.text("cluster"),
            log_id=texts.text("logId"),
            backup=None if texts.text("backup") is None else texts.count("backup", 1),
            columns=columns,
            starts=() if isinstance(starts, str) else tuple(starts.items()),
            ends=() if isinstance(ends, str) else tuple(ends.items()),
            starting_ms=starting_ms,
            ending_ms=ending_ms,
            damaged=damaged,
        )
        if not options.brokers:
            raise OptionError(
                "option broker is missing: expected the broker's name; a record does not have it"
            )
        unread = {queue.text for queue, _ in (*options.starts, *options.ends)} - {
            queue.text
            for queue, _ in (*options.starts, *options.ends)
            if queue.broker_name in options.brokers
        }
        if unread:
            raise OptionError(
                f"{min(unread)} is on no broker of the option broker: {', '.join(options.brokers)}"
            )
        return options


def _place(texts: OptionTexts) -> str:
    """Return the path; a URL that may contain a secret is refused, because errors show it."""
    place = texts.needed("path", "load a folder, or the URL of an object store")
    if "://" in place and not _IN_URLS_ONLY.isdisjoint(place):
        raise OptionError(
            "the path's URL contains one of @ ? # (not shown): expected one without credentials,"
            " such as s3://BUCKET/PREFIX; set those in the store's environment variables"
        )
    return place


def _ms(texts: OptionTexts, name: str) -> int | None:
    """Return a time in ms since 1970, rounded up: stored times have whole milliseconds."""
    text = texts.moment(name)
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return int(moment.replace(microsecond=0).timestamp()) * 1000 + -(-moment.microsecond // 1000)
