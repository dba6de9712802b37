"""Decide what maintenance changes in a lake, and what its manifests say afterwards. Pure.

Every change has one form: in one partition, some files are replaced by others. A merge adds the
files that have the rows of the removed ones. A drop adds none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Final

from eruca_spark.lake import LakeError, Manifest, joined_ranges

NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"  # of damaged messages, whose time is unknown
MERGED: Final = "merged-"
_SMALL_PARTS: Final = 2  # a file is small below the target size divided by this


@dataclass(frozen=True, slots=True, order=True)
class LakeFile:
    """A data file of a finished batch."""

    path: str  # within the lake
    size: int  # bytes

    @property
    def partition(self) -> str:
        """The directory of its partition: without batch and name."""
        return self.path.rsplit("/", 2)[0]

    @property
    def batch(self) -> int:
        """The batch of its directory: of a merged file, the last of its rows' batches."""
        return int(self.path.split("/")[-2].removeprefix("batch="))

    @property
    def first_batch(self) -> int:
        """The first batch of its rows."""
        name = self.path.rsplit("/", 1)[1]
        return int(name.split("-")[1]) if name.startswith(MERGED) else self.batch

    @property
    def day(self) -> str | None:
        """The value of the partition's day; None: the lake has none."""
        return _value(self.partition, "dt")


@dataclass(frozen=True, slots=True)
class Change:
    """The replacement of files in a partition, as the intent file stores it."""

    name: str  # unique
    partition: str
    removed: tuple[LakeFile, ...]
    rows: tuple[int, ...]  # of each removed file
    added: tuple[LakeFile, ...] = ()
    is_drop: bool = False

    def to_json(self) -> str:
        """Return the stored form."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Change:
        """Return a stored change.

        Raises:
            LakeError: The text is not a change.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            removed, added = (
                tuple(LakeFile(**one) for one in document.pop(name))
                for name in ("removed", "added")
            )
            rows = tuple(document.pop("rows"))
            return cls(removed=removed, added=added, rows=rows, **document)
        except (ValueError, KeyError, TypeError) as error:
            raise LakeError(f"unreadable intent of a maintenance: {error}") from error


def files_of(manifests: Iterable[Manifest]) -> list[LakeFile]:
    """Return the files of finished batches, in the order of their batches."""
    files = [LakeFile(path, size) for manifest in manifests for path, size in manifest.files]
    return sorted(files, key=lambda file: (file.partition, file.first_batch, file.batch, file.path))


def mergeable(
    manifests: Iterable[Manifest], target_bytes: int
) -> dict[str, list[tuple[LakeFile, ...]]]:
    """Return, for each partition with small files, the groups to merge into one file each.

    Larger files stay as they are. So a row is rewritten a few times, however often this runs.
    Damaged messages stay in the files of their batches: they are few, and expire by batch.
    """
    groups: dict[str, list[tuple[LakeFile, ...]]] = {}
    open_groups: dict[str, list[LakeFile]] = {}

    def close(partition: str) -> None:
        group = open_groups.pop(partition, [])
        if len(group) > 1:
            groups.setdefault(partition, []).append(tuple(group))

    for file in files_of(manifests):
        if file.day == NO_DAY or file.size >= target_bytes / _SMALL_PARTS:
            continue
        group = open_groups.setdefault(file.partition, [])
        group.append(file)
        if sum(one.size for one in group) >= target_bytes:
            close(file.partition)
    for partition in list(open_groups):
        close(partition)
    return groups


def merged_path(group: Sequence[LakeFile], name: str, number: int) -> str:
    """Return the path of the file that replaces *group*.

    It is in the directory of the last batch, so that only finished batches have directories.
    """
    first, last = min(one.first_batch for one in group), max(one.batch for one in group)
    partition = group[0].partition
    return f"{partition}/batch={last}/{MERGED}{first:08d}-{name}-{number}.parquet"


def expired(manifests: Iterable[Manifest], oldest: date) -> dict[str, tuple[LakeFile, ...]]:
    """Return, by partition, the files whose rows were all stored before the day *oldest*.

    The time of a damaged message is unknown. It was stored before its manifest was written.
    """
    found: dict[str, list[LakeFile]] = {}
    for manifest in manifests:
        written_on = datetime.fromisoformat(manifest.written_at).astimezone(UTC).date()
        for file in files_of([manifest]):
            if file.day is None:
                continue
            day = written_on if file.day == NO_DAY else date.fromisoformat(file.day)
            if day < oldest:
                found.setdefault(file.partition, []).append(file)
    return {partition: tuple(files) for partition, files in sorted(found.items())}


def after(manifests: Iterable[Manifest], change: Change) -> list[Manifest]:
    """Return the manifests that *change* alters, as they are after it; doing it again alters none.

    Rows of a dropped file are counted in the manifest that named the file.
    """
    rows = {file.path: count for file, count in zip(change.removed, change.rows, strict=True)}
    altered = []
    for manifest in manifests:
        files = [one for one in manifest.files if one[0] not in rows]
        known = {path for path, _ in files}
        files += [
            (file.path, file.size)
            for file in change.added
            if file.batch == manifest.batch and file.path not in known
        ]
        dropped = sum(rows.get(path, 0) for path, _ in manifest.files) if change.is_drop else 0
        now = replace(manifest, files=tuple(files), dropped_rows=manifest.dropped_rows + dropped)
        if now != manifest:
            altered.append(now)
    return altered


def folded(manifests: Sequence[Manifest]) -> list[Manifest]:
    """Return manifests that replace adjacent ones without files, so that their number is bounded.

    Each has the number of the last one that it replaces. The newest manifest stays as it is: the
    export compares it with its checkpoint if it has to repeat a batch.
    """
    replacements = []
    run: list[Manifest] = []

    def close() -> None:
        if len(run) > 1:
            replacements.append(_joined(run))
        run.clear()

    for manifest in manifests[:-1]:
        if run and (run[-1].query_id, run[-1].batch + 1) != (manifest.query_id, manifest.first):
            close()
        run.append(manifest)
        if manifest.files:
            close()
    close()
    return replacements


def _joined(run: Sequence[Manifest]) -> Manifest:
    assert not any(manifest.files for manifest in run[:-1])
    last = run[-1]
    return replace(
        last,
        first_batch=run[0].first,
        schema_version=max(one.schema_version for one in run),
        ranges=joined_ranges([one.ranges for one in run]),
        rows=sum(one.rows for one in run),
        missing_rows=sum(one.missing_rows for one in run),
        damaged_rows=sum(one.damaged_rows for one in run),
        rejected_rows=sum(one.rejected_rows for one in run),
        dropped_rows=sum(one.dropped_rows for one in run),
    )


def _value(partition: str, column: str) -> str | None:
    found = (part for part in partition.split("/") if part.startswith(f"{column}="))
    return next((part.partition("=")[2] for part in found), None)
