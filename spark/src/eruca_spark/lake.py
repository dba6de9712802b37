"""A lake: exported messages as Parquet, and the catalogue of its batches.

Layout::

    topic=orders/dt=2026-11-21/batch=12/part-….parquet   rows; dt: the day of storing (UTC)
    _manifest/00000012.json                              the content of batch 12
    _checkpoint/                                         Spark's: the progress of the export

A batch is finished when its manifest exists. The manifest is written last, when all files in it are
durable. Files of a batch without a manifest are from an interrupted export; the next run replaces
them. Batches are numbered 0, 1, 2 …. In every queue each batch begins where the one before ended.

Maintenance merges files, drops days, and lets one manifest stand for adjacent batches without
files (``first_batch``). The rows of a merged file are in the directory of their last batch.

Spark's readers skip names that begin with an underscore, so every reader can read the rows. Only
:func:`read_lake` omits unfinished batches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eruca.exporting.columns import COLUMNS
from eruca.exporting.ranges import Queue, Range
from eruca_spark.bodies.schema import BODY_SCHEMA_FILE, REASON, stored_schema
from eruca_spark.lake_files import LakeFiles, lake_files
from eruca_spark.layout import Layout, stored_layout

CHECKPOINT: Final = "_checkpoint"
REJECTED: Final = "_rejected"
_PLACES: Final = ("", f"{REJECTED}/")  # the lake's rows, and those that do not fit its schema
_STAGING: Final = ".spark-staging-*"


# Fields that are stored only if they say something.
_UNUSED: Final[Mapping[str, object]] = {
    "rejected_rows": 0,
    "dropped_rows": 0,
    "first_batch": None,
}


class LakeError(Exception):
    """The lake is not as expected; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a batch."""

    batch: int
    query_id: str  # of its checkpoint
    schema_version: int
    ranges: tuple[Range, ...]
    rows: int
    missing_rows: int  # deleted by retention before they were read
    written_at: str  # RFC 3339, UTC
    files: tuple[tuple[str, int], ...]  # path within the lake, size in bytes
    damaged_rows: int = 0  # of rows: marked in the column damage; earlier versions had none
    rejected_rows: int = 0  # of rows: below _rejected, because their bodies do not fit the schema
    dropped_rows: int = 0  # expired, and deleted with the files that this manifest named
    first_batch: int | None = None  # this manifest stands for batches since then; None: for one

    @property
    def first(self) -> int:
        """The first batch that this manifest stands for."""
        return self.batch if self.first_batch is None else self.first_batch

    def to_json(self) -> str:
        """Return the stored form, which earlier versions read if they know its fields."""
        document = asdict(self) | {
            "ranges": [one.to_json() for one in self.ranges],
            "files": [{"path": path, "size": size} for path, size in self.files],
        }
        for name, unused in _UNUSED.items():
            if document[name] == unused:
                del document[name]
        return json.dumps(document, indent=1) + "\n"

    def stands_for(self, batch: int, query: str, ranges: Sequence[Range]) -> bool:
        """Tell whether the batch *batch* of a query, with these ranges, is finished by this one."""
        if not self.first <= batch <= self.batch or query != self.query_id:
            return False
        if self.first == self.batch:
            return tuple(ranges) == self.ranges
        return all(any(_includes(mine, one) for mine in self.ranges) for one in ranges)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Return a stored manifest.

        Raises:
            LakeError: The text is not a manifest.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            ranges = tuple(Range.from_json(one) for one in document.pop("ranges"))
            files = tuple((one["path"], one["size"]) for one in document.pop("files"))
            return cls(ranges=ranges, files=files, **document)
        except (ValueError, KeyError, TypeError) as error:
            raise LakeError(f"unreadable manifest: {error}") from error


def chain_faults(manifests: Sequence[Manifest]) -> list[str]:
    """Return the gaps between batches, one sentence each; empty if there are none."""
    faults = []
    ends: dict[Queue, Range] = {}
    number = 0
    for manifest in manifests:
        if manifest.first != number:
            faults.append(f"batch {number} is missing before batch {manifest.first}")
            break
        number = manifest.batch + 1
        for one in manifest.ranges:
            before = ends.get(one.queue)
            if before is not None and one.start != before.end and not is_another(before, one):
                faults.append(
                    f"batch {manifest.batch}: expected {one.queue.text} to continue at"
                    f" {before.end}, found {one.start}"
                )
            ends[one.queue] = one
    return faults


def is_another(before: Range, now: Range) -> bool:
    """Tell whether two ranges of one queue are known to have different topic ids."""
    return None not in (before.topic_id, now.topic_id) and before.topic_id != now.topic_id


def joined_ranges(of_batches: Sequence[Sequence[Range]]) -> tuple[Range, ...]:
    """Return the ranges of consecutive batches; those that continue each other are joined."""
    joined: list[Range] = []
    last: dict[Queue, int] = {}  # the place of a queue's last range in the list
    for one in (one for ranges in of_batches for one in ranges):
        place = last.get(one.queue)
        before = None if place is None else joined[place]
        if before is not None and (before.end, before.topic_id) == (one.start, one.topic_id):
            joined[last[one.queue]] = before._replace(end=one.end)
        else:
            last[one.queue] = len(joined)
            joined.append(one)
    return tuple(joined)


def _includes(whole: Range, part: Range) -> bool:
    return (
        (whole.queue, whole.topic_id) == (part.queue, part.topic_id)
        and whole.start <= part.start
        and part.end <= whole.end
    )


class Catalogue:
    """The manifests of a lake; requires no Spark."""

    def __init__(self, files: LakeFiles) -> None:
        self.files = files

    def manifest(self, batch: int) -> Manifest | None:
        """Return the manifest with this number; None if there is none."""
        text = self.files.read(_manifest_path(batch))
        return None if text is None else Manifest.from_json(text)

    def manifests(self) -> list[Manifest]:
        """Return all manifests, in order, without those for which another one stands."""
        # In ascending order: a manifest that stands for others is written before they are deleted.
        texts = (self.files.read(path) for path, _ in self.files.glob("_manifest/*.json"))
        found = [Manifest.from_json(text) for text in texts if text is not None]
        standing: list[Manifest] = []
        for manifest in reversed(found):
            if not standing or manifest.batch < standing[-1].first:
                standing.append(manifest)
        return standing[::-1]

    def covering(self, batch: int) -> Manifest | None:
        """Return the manifest that stands for a batch; None if the batch is not finished."""
        own = self.manifest(batch)
        if own is not None:
            return own
        # The next one may be a remainder of an interrupted fold, which a later one hides.
        for number in sorted(one for one in self.numbers() if one > batch):
            later = self.manifest(number)
            if later is not None and later.first <= batch:
                return later
        return None

    def numbers(self) -> set[int]:
        """Return the numbers of all manifests, also of those for which another one stands."""
        paths = (path for path, _ in self.files.glob("_manifest/*.json"))
        return {int(path.rsplit("/", 1)[-1].removesuffix(".json")) for path in paths}

    def replace(self, manifest: Manifest) -> None:
        """Write a manifest, durably; it replaces the one with its number."""
        self.files.write(_manifest_path(manifest.batch), manifest.to_json())

    def forget(self, batch: int) -> None:
        """Delete a manifest for which another one stands."""
        self.files.delete(_manifest_path(batch))


class Lake(Catalogue):
    """A lake's catalogue, and operations on its directories.

    Args:
        spark: A session; None: the lake is on this machine.
        root: A path or a URI.
    """

    def __init__(self, spark: SparkSession | None, root: str) -> None:
        self.root = root.rstrip("/")
        super().__init__(lake_files(spark, self.root))
        self.layout = stored_layout(self.files) or Layout()
        self.schema = stored_schema(self.files)
        if not self.schema.fields:
            self._check_no_schema()

    def _check_no_schema(self) -> None:
        """Check that the schema of bodies is missing because the lake never had one.

        Hadoop's file systems replace a file in two steps: between them, there is none.
        """
        for pattern in (f"{BODY_SCHEMA_FILE}.*.tmp", f"{REJECTED}/topic=*"):
            for path, _ in self.files.glob(pattern):
                raise LakeError(
                    f"{self.root} has no {BODY_SCHEMA_FILE}, but {path}: an export that adds fields"
                    " is replacing the schema of bodies, or was killed then. Run this again; if the"
                    f" error stays, rename {BODY_SCHEMA_FILE}.*.tmp to {BODY_SCHEMA_FILE}"
                )

    @property
    def checkpoint(self) -> str:
        """The path of Spark's checkpoint, with the progress of the export."""
        return f"{self.root}/{CHECKPOINT}"

    @property
    def exists(self) -> bool:
        """True if an export was started here, even an empty one."""
        return bool(self.files.glob(CHECKPOINT) or self.files.glob("_manifest"))

    def finish(self, manifest: Manifest) -> None:
        """Mark a batch as finished, when its files are durable."""
        self.files.make_durable(path for path, _ in manifest.files)
        self.replace(manifest)

    def delete_batch(self, batch: int) -> None:
        """Delete the files that an interrupted run has left of a batch."""
        for place in _PLACES:
            for path, _ in self.files.glob(place + self.layout.pattern(batch)):
                self.files.delete(path)

    def batch_files(self, batch: int) -> tuple[tuple[str, int], ...]:
        """Return a batch's files."""
        pattern = f"{self.layout.pattern(batch)}/*.parquet"
        return tuple(one for place in _PLACES for one in self.files.glob(place + pattern))

    def delete_abandoned(self) -> None:
        """Delete the staging directories of killed jobs."""
        for place in _PLACES:
            for path in self.files.abandoned(place + _STAGING):
                self.files.delete(path)


def read_lake(spark: SparkSession, root: str) -> DataFrame:
    """Return the messages of a lake's finished batches, with the columns of its directories.

    A lake with a schema of bodies also has its columns, and ``reject_reason``: rows below
    ``_rejected`` are included, because they are messages, too.

    The readers' lock is held while files are listed. If a maintenance replaces them before Spark
    opens them, the job fails; hold the lock for the whole job to prevent this.

    Raises:
        LakeError: There is no lake, or its schema of bodies is missing.
    """
    lake = Lake(spark, root)
    if not lake.exists:
        raise LakeError(f"there is no lake in {lake.root}")
    # A merge between manifests and list would move rows to a batch that is not in the manifests.
    with lake.files.reading():
        manifests = lake.manifests()
        rows = _rows_in(spark, lake, "", lake.schema.columns, manifests)
        if not lake.schema.fields:
            return rows
        rejected = _rows_in(spark, lake, f"{REJECTED}/", {REASON: "STRING"}, manifests)
    names = [*COLUMNS, *lake.schema.columns, REASON, "dt", *lake.layout.added_columns, "batch"]
    return rows.unionByName(rejected, allowMissingColumns=True).select(*names)


def _rows_in(
    spark: SparkSession,
    lake: Lake,
    place: str,
    added: Mapping[str, str],
    manifests: Sequence[Manifest],
) -> DataFrame:
    columns = {**COLUMNS, **added, "dt": "DATE", **lake.layout.added_columns, "batch": "INT"}
    ddl = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
    has_rejected = place == f"{REJECTED}/"
    finished = [
        manifest.batch
        for manifest in manifests
        if any(path.startswith(f"{REJECTED}/") == has_rejected for path, _ in manifest.files)
    ]
    if not finished:
        return spark.createDataFrame([], ddl)
    # Spark puts partition columns last, regardless of the schema.
    rows = spark.read.schema(ddl).parquet(f"{lake.root}/{place}".rstrip("/")).select(*columns)
    ends = [-1, *(manifest.batch for manifest in manifests)]
    if all(end + 1 == one.first for end, one in zip(ends, manifests, strict=False)):
        return rows.where(f.col("batch") <= finished[-1])
    return rows.where(f.col("batch").isin(finished))


def _manifest_path(batch: int) -> str:
    return f"_manifest/{batch:08d}.json"
