"""The result of an export to a lake, for people and for programs."""

from __future__ import annotations

import pytest

from eruca.exporting.ranges import Queue, Range
from eruca_spark.export import LakeExported
from eruca_spark.export_command import _say
from eruca_spark.outcomes import export_document


def test_rejected_messages_are_counted_in_words_and_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = LakeExported()
    done.count([Range(Queue("orders", "broker-a", 0), 0, 10)], 10, 0)
    done.rejected_rows += 3

    _say(done, "lake has 10 messages in 1 batch")

    told = capsys.readouterr()
    assert "see _rejected: 3 messages" in told.out + told.err
    document = export_document("parquet:lake", done)
    assert (document["rows"], document["rejected_rows"]) == (10, 3)
