"""Replaying: messages of a lake, or of topics, sent to a topic once more."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from pyspark_eruca.columns import DAMAGE

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    # What an executor had sorted goes with it. Spark would send it all again beside what is left of
    # the first attempt, whose tasks nobody can tell from those of the next; so it gives up, and the
    # replay, run again, leaves out what was sent.
    "spark.stage.maxConsecutiveAttempts": "1",
}
_COLUMNS = (
    "topic",
    "broker_name",
    "queue_id",
    "queue_offset",
    "tag",
    "keys",
    "sharding_key",
    "body",
    "properties",
    "sys_flag",
    "flag",
)
_QUEUE = ("topic", "broker_name", "queue_id")


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    sent: int
    skipped: int  # that the topic had already
    damaged: int  # that were not sent


def replay(messages: DataFrame, options: Mapping[str, str], *, is_ordered: bool) -> Replayed:
    """Send *messages*, and return how many there were.

    Args:
        messages: From a lake or a topic.
        options: The data source's, see :class:`pyspark_eruca.replay.ReplayWriter`.
        is_ordered: Whether messages of one queue of origin are sent in its order; they are sorted
            for it, and each queue is then one task's.

    Raises:
        Py4JJavaError: The source refused, or the service was away for too long.
    """
    rows = messages.select(*_COLUMNS, DAMAGE)
    if is_ordered:
        rows = rows.repartition(*_QUEUE).sortWithinPartitions(*_QUEUE, "queue_offset")
    with tempfile.TemporaryDirectory(prefix="eruca-replay-") as directory:
        summary = Path(directory) / "summary.json"
        writer = rows.write.format("eruca").mode("append").options(**options)
        writer.option("summaryFile", str(summary)).save()
        document = json.loads(summary.read_text())
    return Replayed(document["sent"], document["skipped"], document["damaged"])
