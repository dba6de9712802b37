"""Read a Spark checkpoint: its query, and the ranges of a batch.

The ranges of a batch are read while it is running. Spark has logged the batch's offset by then, and
that of the batch before.

Source: Spark 4.3, ``OffsetSeqLog`` (a line with the version, one with metadata, one for each
source), ``StreamMetadata``.
"""

from __future__ import annotations

import json
from typing import Any, Final

from eruca.exporting.ranges import Range
from eruca.exporting.stream_offsets import StreamOffset, batch_ranges
from eruca_spark.lake import CHECKPOINT, LakeError
from eruca_spark.lake_files import LakeFiles

_VERSION: Final = "v1"
_LINES: Final = 3


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
    """Return the position after the last batch, as the source stored it.

    None without a batch, or if the last one is not finished.
    """
    begun, finished = (_last_batch(files, log) for log in ("offsets", "commits"))
    if begun is None or begun != finished:
        return None
    document: dict[str, Any] = _document(files, begun)
    return document


def _last_batch(files: LakeFiles, log: str) -> int | None:
    """Return the last batch in one of the checkpoint's logs."""
    names = [path.rpartition("/")[2] for path, _ in files.glob(f"{CHECKPOINT}/{log}/*")]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _offset(files: LakeFiles, batch: int) -> StreamOffset:
    return StreamOffset.parse(_document(files, batch))


def _document(files: LakeFiles, batch: int) -> Any:  # noqa: ANN401 - JSON
    """Return the source's part of a batch's offset."""
    path = f"{CHECKPOINT}/offsets/{batch}"
    try:
        lines = (files.read(path) or "").splitlines()
        if len(lines) == _LINES and lines[0] == _VERSION:
            return json.loads(lines[2])
    except ValueError as error:  # not UTF-8, or not JSON
        raise LakeError(f"{path} is damaged: {error}") from error
    raise LakeError(f"{path} is damaged: expected {_LINES} lines after {_VERSION}, found {lines}")
