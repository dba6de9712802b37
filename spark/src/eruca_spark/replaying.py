"""Replay: send messages of a lake, or of topics, to a topic."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from eruca.exporting.columns import DAMAGE

SESSION_SETTINGS: Final[Mapping[str, str]] = {
    # With an executor, its sorted rows are lost. Spark would send all of them again, beside running
    # tasks of the first attempt, and could not distinguish their tasks. So the replay fails
    # instead. When it runs again, it skips messages that were sent.
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
    skipped: int  # already in the topic
    damaged: int  # not sent


def replay(messages: DataFrame, options: Mapping[str, str], *, is_ordered: bool) -> Replayed:
    """Send *messages*; return the counts.

    Args:
        messages: From a lake or a topic.
        options: The data source's, see :class:`pyspark_eruca.replay.ReplayWriter`.
        is_ordered: Whether to keep the order of each queue of origin. The messages are sorted for
            this, and one task sends each queue.

    Raises:
        Py4JJavaError: The source refused, or the service was unreachable for too long.
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
