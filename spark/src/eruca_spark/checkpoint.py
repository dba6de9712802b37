"""Read a Spark checkpoint: its query, and the ranges of a batch.

The ranges of a batch are read while it is running. Spark has logged the batch's offset by then, and
that of the batch before.

Source: Spark 4.3, ``OffsetSeqLog`` (a line with the version, one with metadata, one for each
source), ``StreamMetadata``.
"""

from __future__ import annotations

import json
from typing import Any

from eruca.exporting.ranges import Range
from eruca.exporting.stream_offsets import StreamOffset, batch_ranges
from eruca_spark.lake import CHECKPOINT, LakeError
from eruca_spark.lake_files import LakeFiles


def query_id(files: LakeFiles) -> str:
    """Return the id of the query, which is the same in every run."""
    text = files.read(f"{CHECKPOINT}/metadata")
    if text is None:
        raise LakeError("the checkpoint has no metadata")
    document: dict[str, str] = json.loads(text)
    return document["id"]


def ranges_of(files: LakeFiles, batch: int) -> tuple[Range, ...]:
    """Return the ranges of a batch."""
    before = _offset(files, batch - 1) if batch else StreamOffset()
    return tuple(batch_ranges(before, _offset(files, batch)))


def finished_position(files: LakeFiles) -> dict[str, Any] | None:
    """Return the position after the last batch; None without one, or if it is not finished.

    The position has the form of the source, which stored it.
    """
    begun, finished = (_last_batch(files, log) for log in ("offsets", "commits"))
    if begun is None or begun != finished:
        return None
    return _offset(files, begun).to_json()


def _last_batch(files: LakeFiles, log: str) -> int | None:
    """Return the last batch in one of the checkpoint's logs."""
    names = [path.rpartition("/")[2] for path, _ in files.glob(f"{CHECKPOINT}/{log}/*")]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _offset(files: LakeFiles, batch: int) -> StreamOffset:
    text = files.read(f"{CHECKPOINT}/offsets/{batch}")
    lines = (text or "").splitlines()
    if len(lines) != 3 or lines[0] != "v1":
        raise LakeError(f"offset {batch} of the checkpoint is invalid: {text!r}")
    return StreamOffset.parse(json.loads(lines[2]))
