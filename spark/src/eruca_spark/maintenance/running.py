"""Carry out changes of a lake; a kill at any moment leaves what the next run completes or undoes.

A change is prepared in the directory ``_maintenance``, which readers ignore. The exchange of two
directories makes it visible as a whole. DESIGN.md has the states and the reasons.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from typing import Final

from eruca_spark.lake import Catalogue, LakeError
from eruca_spark.maintenance.folders import LakeFolders
from eruca_spark.maintenance.plan import (
    Change,
    LakeFile,
    after,
    expired,
    folded,
    mergeable,
    merged_path,
)

WORK: Final = "_maintenance"
INTENT: Final = f"{WORK}/intent.json"
_STAGED: Final = f"{WORK}/staged"  # merged files, with their paths of the lake
_BESIDE: Final = f"{WORK}/beside"  # the new content of a partition; after the exchange the old one


@dataclass(slots=True)
class Maintained:
    """The result of a run."""

    merged_files: int = 0
    new_files: int = 0
    merged_rows: int = 0
    dropped_files: int = 0
    dropped_rows: int = 0
    folded_batches: int = 0  # without a manifest of their own since this run
    recovered: bool = False  # a change of an interrupted run was completed or undone

    @property
    def has_changed(self) -> bool:
        """True if the lake is different from before."""
        return bool(self.new_files or self.dropped_files or self.folded_batches or self.recovered)


class Maintenance:
    """One maintenance of a lake; another one must not run at the same time.

    Args:
        folders: The lake's directories.
        new_name: Returns a name that no file of the lake has.
    """

    def __init__(
        self, folders: LakeFolders, new_name: Callable[[], str] = lambda: uuid.uuid4().hex
    ) -> None:
        self._folders = folders
        self._catalogue = Catalogue(folders)
        self._new_name = new_name
        self.done = Maintained()
        self.is_interrupted = False  # the run was told to stop, and left a step out

    def run(
        self,
        target_bytes: int,
        *,
        keep_days: int | None = None,
        today: date,
        is_told_to_stop: Callable[[], bool] = lambda: False,
    ) -> Maintained:
        """Recover, drop, merge, and fold manifests; return early if told to stop.

        Args:
            target_bytes: The size of merged files.
            keep_days: Days before *today* that are kept; None: all.
            today: The day in UTC.
            is_told_to_stop: Called before each change.

        Raises:
            LakeBusyError: A reader holds the lake.
            LakeError: A file of the lake is missing or unreadable.
        """
        self._check_readers()
        self._recover()
        for step in self._steps(target_bytes, keep_days, today):
            if is_told_to_stop():
                self.is_interrupted = True
                break
            step()
        return self.done

    def _steps(
        self, target_bytes: int, keep_days: int | None, today: date
    ) -> Iterator[Callable[[], None]]:
        """Yield the changes, one by one, as the lake needs them then."""
        if keep_days is not None:
            oldest = today - timedelta(days=keep_days)
            for partition, files in expired(self._catalogue.manifests(), oldest).items():
                yield partial(self._drop, partition, files)
        for groups in mergeable(self._catalogue.manifests(), target_bytes).values():
            yield partial(self._merge, groups)
        yield self._fold

    def _recover(self) -> None:
        """Complete or undo the change of an interrupted run."""
        text = self._folders.read(INTENT)
        if text is not None:
            change = Change.from_json(text)
            with self._alone():
                if not self._folders.exists(change.removed[0].path):
                    self._record(change)
                self._folders.delete(INTENT)
            self.done.recovered = True
        self._folders.delete(WORK)

    def _drop(self, partition: str, files: tuple[LakeFile, ...]) -> None:
        rows = tuple(self._folders.rows(file.path) for file in files)
        change = Change(self._new_name(), partition, files, rows, is_drop=True)
        self._carry_out(change)
        self.done.dropped_files += len(files)
        self.done.dropped_rows += sum(rows)

    def _merge(self, groups: Sequence[Sequence[LakeFile]]) -> None:
        name = self._new_name()
        added, rows = [], []
        for number, group in enumerate(groups):
            counts = [self._folders.rows(file.path) for file in group]
            path = merged_path(group, name, number)
            staged = f"{_STAGED}/{path}"
            written = self._folders.merge([file.path for file in group], staged)
            if written != sum(counts):
                raise LakeError(f"expected {sum(counts)} rows in {staged}, found {written}")
            self._folders.make_durable([staged])
            [(_, size)] = self._folders.glob(staged)
            added.append(LakeFile(path, size))
            rows += counts
        removed = tuple(file for group in groups for file in group)
        partition = removed[0].partition
        self._carry_out(Change(name, partition, removed, tuple(rows), tuple(added)))
        self.done.merged_files += len(removed)
        self.done.new_files += len(added)
        self.done.merged_rows += sum(rows)

    def _carry_out(self, change: Change) -> None:
        folders = self._folders
        with self._alone():
            self._prepare(change)
            folders.write(INTENT, change.to_json())
            # From here on every reader sees the new files instead of the old ones.
            folders.exchange(_BESIDE, change.partition)
            self._record(change)
            folders.delete(INTENT)
        folders.delete(WORK)

    def _prepare(self, change: Change) -> None:
        """Build the new content of the partition beside it."""
        folders = self._folders
        gone = {file.path for file in change.removed}
        gone |= {_checksum(path) for path in gone}
        kept = [path for path in folders.files_below(change.partition) if path not in gone]
        links = [(path, path) for path in kept]
        links += [(f"{_STAGED}/{file.path}", file.path) for file in change.added]
        directories = {path.rpartition("/")[0] for _, path in links} | {change.partition}
        # A directory sorts before those in it.
        for directory in sorted(directories):
            folders.create(_beside(directory, change), directory)
        names = [_beside(path, change) for _, path in links]
        for (source, _), name in zip(links, names, strict=True):
            folders.link(source, name)
        folders.make_durable(names)

    def _record(self, change: Change) -> None:
        """Let the manifests say what the exchange has made visible."""
        batches = sorted({file.batch for file in (*change.removed, *change.added)})
        # A batch with files has a manifest of its own: only those without are folded.
        named = [self._catalogue.manifest(batch) for batch in batches]
        for manifest in after([one for one in named if one is not None], change):
            self._catalogue.replace(manifest)
        # A partition below hours or properties may have been the last one of its day.
        levels = change.partition.split("/")
        for count in range(len(levels), 1, -1):
            self._folders.delete_if_empty("/".join(levels[:count]))

    def _fold(self) -> None:
        """Join manifests without files, and delete all for which another one stands.

        An interrupted run may have left some of those, which ``manifests`` hides.
        """
        numbers = self._catalogue.numbers()
        manifests = self._catalogue.manifests()
        joined = folded(manifests)
        standing = (*manifests, *joined)
        covered = {
            batch for one in standing for batch in range(one.first, one.batch) if batch in numbers
        }
        if not covered:
            return
        with self._alone():
            for manifest in joined:
                self._catalogue.replace(manifest)
            # In descending order: the next manifest after a deleted one is the one that stands.
            for batch in sorted(covered, reverse=True):
                self._catalogue.forget(batch)
        self.done.folded_batches += len(covered)

    def _check_readers(self) -> None:
        """Fail early, before files are merged."""
        with self._folders.unread():
            pass

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wait for a batch of an export; refuse to go on beside a reader that holds the lake."""
        with self._folders.writing(), self._folders.unread():
            yield


def _beside(path: str, change: Change) -> str:
    """Return the path that a file or directory of the changed partition has in its new content."""
    return _BESIDE + path.removeprefix(change.partition)


def _checksum(path: str) -> str:
    """Return the name of the checksum that Hadoop's local files have."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/.{name}.crc"
