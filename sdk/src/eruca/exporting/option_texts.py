"""Options as Spark passes them: text by name; case does not matter in names."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from eruca.exporting.columns import COLUMNS, DAMAGE
from eruca.exporting.credentials import CredentialFiles
from eruca.exporting.errors import OptionError
from eruca.exporting.ranges import Queue, Range
from eruca.exporting.topic_choice import TopicChoice

OPTION_NAMES: Final = (
    "url",
    "topic",
    "subscribe",
    "subscribePattern",
    "assign",
    "path",
    "columns",
    "codec",
    "partitionRows",
    "minPartitions",
    "maxRowsPerTrigger",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "ranges",
    "failOnDataLoss",
    "damaged",
    "progressGroup",
    "retrySeconds",
    "timeoutSeconds",
    "apiKeyFile",
    "caFile",
    "certFile",
    "keyFile",
    # of the writer
    "namesrv",
    "idempotencyPrefix",
    "idempotencyKeyColumn",
    "idempotencyWindowSeconds",
    "failOnDoubledRows",
    "replay",
    "replayFrom",
    "force",
    "summaryFile",
    # of Spark's own, which passes them on
    "checkpointLocation",
    "queryName",
)
_SHOWN_SIZE: Final = 120  # characters of an unexpected value
_MILLISECONDS: Final = re.compile("[0-9]{13}")  # of 2001 to 2286; shorter ones may be a date
_OFFSET_MAX: Final = 2**63 - 1
_REMOVED: Final = {
    "pushdown": "Spark would apply the filters of one query to all queries of the same load,"
    " which would then lack rows; remove the option, and limit the rows with"
    " startingOffsets, endingOffsets, startingTimestamp and endingTimestamp"
}
_KAFKA: Final = {  # options of Spark's Kafka source that have no meaning here, in lower case
    "includeheaders": "remove it: the column properties always has them; choose with columns",
    "startingoffsetsbytimestamp": "use startingTimestamp, which applies to all queues",
    "endingoffsetsbytimestamp": "use endingTimestamp, which applies to all queues",
    "kafka.bootstrap.servers": "give the query service's URL in the option url",
    "kafka.group.id": "remove it: the source belongs to no consumer group; to see its lag, set"
    " progressGroup",
}
# Spark passes them for a table that SQL creates.
_OF_CATALOGUES: Final = frozenset({"owner", "provider"})
_DURATION: Final = re.compile(r"([0-9]{1,9}) *(ms|s|m|min|h)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class OptionTexts:
    """Options as Spark passes them: text by name; case does not matter in names.

    Args:
        given: The options.
        valid: Their names.
    """

    def __init__(self, given: Mapping[str, str], valid: Sequence[str] = OPTION_NAMES) -> None:
        self._texts = {name.lower(): value for name, value in given.items()}
        if self._texts.keys() >= _OF_CATALOGUES:
            raise OptionError(
                "Spark reads a table of its catalogue without the options of CREATE TABLE; use"
                " CREATE TEMPORARY VIEW NAME USING FORMAT OPTIONS (…), with the same format"
            )
        for name, reason in _REMOVED.items():
            if name in self._texts:
                raise OptionError(f"option {name} was removed: {reason}")
        for name, fix in _KAFKA.items():
            if name in self._texts:
                raise OptionError(f"option {name} belongs to Spark's Kafka source: {fix}")
        unknown = sorted(set(self._texts) - {name.lower() for name in valid})
        if unknown:
            named = ", ".join(repr(name) for name in unknown)
            raise OptionError(f"unknown option {named}; valid options: {', '.join(valid)}")

    def text(self, name: str) -> str | None:
        """Return an option's text; None if it is empty or not given."""
        return self._texts.get(name.lower(), "").strip() or None

    def credential_files(self) -> CredentialFiles:
        """Return the files of keys and certificates."""
        return CredentialFiles(
            api_key=self.text("apiKeyFile"),
            ca=self.text("caFile"),
            cert=self.text("certFile"),
            key=self.text("keyFile"),
        )

    def either(self, name: str, other: str) -> str:
        """Return the one of two names of one option that is given.

        Raises:
            OptionError: Both are given.
        """
        if self.text(name) is not None and self.text(other) is not None:
            raise OptionError(f"options {name} and {other} mean the same; remove one")
        return name if self.text(other) is None else other

    def duration(self, name: str, default: float) -> float:
        """Return the seconds of a duration, such as ``15m``."""
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text)
        if match is None:
            raise OptionError(
                f"option {name}: expected a duration such as 90s, 15m or 1h, found {text!r}"
            )
        return int(match[1]) * _SECONDS[match[2]]

    def queues(self, name: str) -> tuple[Queue, ...]:
        """Return the queues in a JSON array of their names; none if it is not given."""
        text = self.text(name)
        if text is None:
            return ()
        try:
            names = json.loads(text)
        except (ValueError, RecursionError):
            names = None
        if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
            raise OptionError(
                f"option {name}: expected a JSON array of queues such as"
                f' ["TOPIC/BROKER/QUEUE"], found {text[:_SHOWN_SIZE]!r}'
            )
        return tuple(Queue.parse(one) for one in dict.fromkeys(names))

    def needed(self, name: str, meaning: str) -> str:
        """Return the text of a required option."""
        text = self.text(name)
        if text is None:
            raise OptionError(f"option {name} is missing: {meaning}")
        return text

    def words(self, name: str) -> tuple[str, ...]:
        """Return the words of a comma-separated list."""
        words = (self.text(name) or "").split(",")
        return tuple(word.strip() for word in words if word.strip())

    def columns(self, name: str) -> tuple[str, ...]:
        """Return the columns of a comma-separated list; all if it is not given."""
        columns = self.words(name) or tuple(COLUMNS)
        unknown = [column for column in columns if column not in COLUMNS]
        if unknown or len(set(columns)) != len(columns):
            raise OptionError(
                f"option {name}: unknown column {unknown}; valid columns: {', '.join(COLUMNS)}"
            )
        return columns

    def urls(self, name: str, variable: str) -> tuple[str, ...]:
        """Return the URLs of a semicolon-separated list, or of an environment variable."""
        text = self.text(name) or os.environ.get(variable, "")
        urls = tuple(url.strip().rstrip("/") for url in text.split(";") if url.strip())
        if not urls:
            raise OptionError(
                f"option {name} is missing: set it (commands: --{name}"
                f" http://127.0.0.1:10931), or set {variable}; every executor must reach it"
            )
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise OptionError(f"option {name}: expected an http URL, found {url!r}")
        return urls

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of the choices; the default is the first."""
        text = self.text(name) or choices[0]
        if text not in choices:
            raise OptionError(
                f"option {name}: expected one of {', '.join(choices)}; found {text!r}"
            )
        return text

    def damaged(self, columns: Sequence[str]) -> str:
        """Return how damaged messages are treated, with these columns: ``refuse`` or ``mark``."""
        text = self.choice("damaged", ("refuse", "mark"))
        if text == "mark" and DAMAGE not in columns:
            raise OptionError(
                f"option damaged: mark requires the column {DAMAGE}, which identifies damaged"
                " rows; add it to the option columns"
            )
        return text

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether an option is set."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"option {name}: expected true or false, found {text!r}")
        return text.lower() == "true"

    def count(self, name: str, default: int, *, most: int = 2**31 - 1) -> int:
        """Return a number of at least 1."""
        text = self.text(name)
        if text is None:
            return default
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise OptionError(f"option {name}: expected a number from 1 to {most}, found {text!r}")
        return int(text)

    def seconds(self, name: str, default: float) -> float:
        """Return a number of seconds above 0."""
        try:
            seconds = float(self.text(name) or default)
        except ValueError:
            seconds = math.nan
        if not (0 < seconds < math.inf):
            raise OptionError(
                f"option {name}: expected a number of seconds, found {self.text(name)!r}"
            )
        return seconds

    def offsets(
        self, name: str, default: str, words: Sequence[str], topics: TopicChoice
    ) -> str | Mapping[Queue, int]:
        """Return one of *words*, or the offsets in a JSON object."""
        text = self.text(name) or default
        if text in words:
            return text
        try:
            pairs = json.loads(text, object_pairs_hook=tuple)  # a dict would hide duplicates
        except (ValueError, RecursionError):
            pairs = None
        # An object is parsed as a tuple of pairs here, an array as a list. It must name a queue.
        if not isinstance(pairs, tuple) or not pairs:
            raise OptionError(
                f"option {name}: expected {' or '.join(words)}, or JSON such as"
                f' {{"TOPIC/BROKER/QUEUE": 17}}; found {text!r}'
            )
        queues: dict[Queue, int] = {}
        for queue_text, offset in pairs:
            queue = Queue.parse(queue_text)
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise OptionError(
                    f"option {name}: expected a whole number for {queue_text}, found {offset!r}"
                )
            if not 0 <= offset <= _OFFSET_MAX:
                raise OptionError(
                    f"option {name}: expected 0 to {_OFFSET_MAX} for {queue_text}, found"
                    f" {offset}; {' or '.join(words)} applies to all queues together"
                )
            if queue in queues:
                raise OptionError(f"option {name}: {queue.text} occurs twice")
            if queue.topic not in topics:
                raise OptionError(
                    f"option {name}: expected a queue of {topics.text}, found {queue.text}"
                )
            queues[queue] = offset
        return queues

    def ranges(self, name: str, topics: TopicChoice) -> tuple[Range, ...] | None:
        """Return the ranges in a JSON array; None if the option is not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            ranges = tuple(Range.from_json(one) for one in json.loads(text))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise OptionError(
                f"option {name}: expected a JSON array of ranges, as in a manifest ({error!r});"
                f" found {text[:_SHOWN_SIZE]!r}"
            ) from error
        others = sorted(one.queue.topic for one in ranges if one.queue.topic not in topics)
        if others:
            raise OptionError(
                f"option {name}: expected ranges of {topics.text}, found topic {others[0]}"
            )
        return ranges

    def moment(self, name: str) -> str | None:
        """Return a time with its zone; milliseconds since 1970, as Kafka has them, converted."""
        text = self.text(name)
        if text is None:
            return None
        if _MILLISECONDS.fullmatch(text):
            moment = datetime.fromtimestamp(int(text) / 1000, UTC)
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        try:
            has_zone = datetime.fromisoformat(text).tzinfo is not None
        except ValueError:
            has_zone = False
        if not has_zone:
            raise OptionError(
                f"option {name}: expected a time with its zone, such as 2026-11-21T08:00:00Z, "
                f"found {text!r}"
            )
        return text
