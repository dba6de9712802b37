"""A lake under exports and maintenance, either of which is killed before any of its steps.

The model is the list of exported rows. After every single step, a reader that lists the lake must
find each row of a finished batch exactly once; of an expired day, all rows of a batch or none.
"""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eruca.exporting.ranges import Queue, Range
from eruca_spark.lake import Catalogue, Manifest, chain_faults
from eruca_spark.maintenance.plan import NO_DAY, mergeable
from eruca_spark.maintenance.running import Maintenance
from support.lake_folders import KilledError, MemoryFolders, Rows

QUERY = "1b4e"
TARGET_BYTES = 60  # six rows
FIRST_DAY = date(2026, 11, 1)
DAYS = 5
TOPICS = ("orders", "payments")

# Of a batch: rows by topic and day; day None: damaged messages.
batches = st.dictionaries(
    st.tuples(st.sampled_from(TOPICS), st.none() | st.integers(0, DAYS - 1)),
    st.integers(1, 7),
    max_size=4,
)
steps = st.integers(0, 60)

Place = tuple[str, int]
"""A partition and a batch."""


class LakeMachine(RuleBasedStateMachine):
    """Exports, maintenance, kills."""

    @initialize()
    def begin(self) -> None:
        self.folders = MemoryFolders()
        self.folders.look = self.look
        self.rows: dict[Place, Rows] = {}  # of finished batches
        self.batch_of: dict[str, int] = {}  # by row
        self.expired_before = FIRST_DAY
        self.next_batch = 0
        self.ends: dict[Queue, int] = {}
        self.ranges: list[tuple[Range, ...]] = []  # by batch
        self.names = 0
        self.waiting: list[dict[tuple[str, int | None], int]] = []  # batches for the next moment
        self.is_exporting = False

    @rule(content=batches)
    def export(self, content: dict[tuple[str, int | None], int]) -> None:
        self.write_batch(content)

    @rule(content=batches, kill_after=steps)
    def export_and_be_killed(
        self, content: dict[tuple[str, int | None], int], kill_after: int
    ) -> None:
        """Its next run has the same rows, as the checkpoint says."""
        self.folders.steps_left = kill_after
        try:
            self.write_batch(content)
        except KilledError:
            self.restart()
            self.write_batch(content)
        self.restart()

    @rule(keep_days=st.none() | st.integers(0, DAYS), waiting=st.lists(batches, max_size=2))
    def maintain(
        self, keep_days: int | None, waiting: list[dict[tuple[str, int | None], int]]
    ) -> None:
        self.waiting = [*waiting]
        self.run_maintenance(keep_days)
        left, self.waiting = self.waiting, []
        for content in left:
            self.write_batch(content)
        manifests = Catalogue(self.folders).manifests()
        names = [path for path, _ in self.folders.glob("_manifest/*.json")]
        assert names == [f"_manifest/{one.batch:08d}.json" for one in manifests]
        if not waiting:
            assert mergeable(manifests, TARGET_BYTES) == {}
            idle = [one for one in manifests[:-1] if not one.files]
            assert len(idle) <= sum(bool(one.files) for one in manifests) + 1

    @rule(keep_days=st.none() | st.integers(0, DAYS), kill_after=steps)
    def maintain_and_be_killed(self, keep_days: int | None, kill_after: int) -> None:
        self.folders.steps_left = kill_after
        try:
            self.run_maintenance(keep_days)
        except KilledError:
            self.restart()
        self.restart()

    @rule()
    def repeat_finished_batches(self) -> None:
        """An export whose checkpoint is older finds each batch finished, as the lake has it."""
        catalogue = Catalogue(self.folders)
        for batch, ranges in enumerate(self.ranges):
            manifest = catalogue.covering(batch)
            assert manifest is not None
            assert manifest.stands_for(batch, QUERY, ranges)
        assert catalogue.covering(len(self.ranges)) is None

    @invariant()
    def readers_are_right(self) -> None:
        self.look()

    @invariant()
    def proof_holds(self) -> None:
        """Manifests continue each other, and after a recovery they say what there is."""
        catalogue = Catalogue(self.folders)
        assert chain_faults(catalogue.manifests()) == []
        if self.folders.exists("_maintenance"):
            return
        manifests = catalogue.manifests()
        named = Counter(path for manifest in manifests for path, _ in manifest.files)
        assert named == Counter(path for path in self.data() if self.is_finished(path))
        held = sum(one.rows - one.dropped_rows for one in manifests)
        assert held == sum(len(self.folders.files[path]) for path in named)
        assert sum(one.rows for one in manifests) == sum(self.ends.values())

    def run_maintenance(self, keep_days: int | None) -> None:
        today = FIRST_DAY + timedelta(days=DAYS)
        if keep_days is not None:
            self.expired_before = max(self.expired_before, today - timedelta(days=keep_days))
        Maintenance(self.folders, self.new_name).run(TARGET_BYTES, keep_days=keep_days, today=today)

    def restart(self) -> None:
        """Go on after a kill: locks are free, and nothing is about to be killed."""
        self.folders.steps_left = None
        self.folders.locks.clear()
        self.is_exporting = False

    def new_name(self) -> str:
        self.names += 1
        return f"name{self.names}"

    def write_batch(self, content: dict[tuple[str, int | None], int]) -> None:
        """Do what the export does: delete remains, write files, write the manifest last."""
        number, folders, catalogue = self.next_batch, self.folders, Catalogue(self.folders)
        self.is_exporting = True
        ranges, files = [], []
        with folders.writing():
            for path in self.data():
                if f"/batch={number}/" in path:
                    folders.delete(path)
            ends = dict(self.ends)
            rows_of: dict[str, Rows] = {}
            for (topic, day), count in sorted(content.items(), key=str):
                queue = Queue(topic, "broker-a", 0)
                start = ends.get(queue, 0)
                ends[queue] = start + count
                ranges.append(Range(queue, start, start + count))
                name = NO_DAY if day is None else str(FIRST_DAY + timedelta(days=day))
                partition = f"topic={topic}/dt={name}"
                rows = tuple(f"{topic}/{offset}" for offset in range(start, start + count))
                rows_of[partition] = rows_of.get(partition, ()) + rows
            for partition, rows in rows_of.items():
                path = f"{partition}/batch={number}/part.parquet"
                folders.step()
                folders.files[path] = rows
                files.append((path, len(rows) * 10))
            catalogue.replace(self.manifest(number, tuple(ranges), tuple(files)))
            self.next_batch, self.ends = number + 1, ends
            self.ranges.append(tuple(ranges))
            for partition, rows in rows_of.items():
                self.rows[partition, number] = rows
                self.batch_of |= dict.fromkeys(rows, number)
        self.is_exporting = False

    def manifest(
        self, number: int, ranges: tuple[Range, ...], files: tuple[tuple[str, int], ...]
    ) -> Manifest:
        return Manifest(
            batch=number,
            query_id=QUERY,
            schema_version=2,
            ranges=ranges,
            rows=sum(one.rows for one in ranges),
            missing_rows=0,
            written_at=f"{written_on(number)}T08:00:00.000+00:00",
            files=files,
        )

    def data(self) -> list[str]:
        return [path for path in self.folders.files if path.startswith("topic=")]

    def is_finished(self, path: str) -> bool:
        return int(path.split("/")[2].removeprefix("batch=")) < self.next_batch

    def look(self) -> None:
        """Read the lake as a program does that knows nothing of manifests."""
        if self.is_exporting:
            return
        found: dict[Place, Rows] = {}
        for path in self.data():
            if self.is_finished(path):
                content = self.folders.files[path]
                assert isinstance(content, tuple)
                for row in content:
                    place = (path.rsplit("/", 2)[0], self.batch_of[row])
                    found[place] = (*found.get(place, ()), row)
        for (partition, batch), rows in list(self.rows.items()):
            there = found.pop((partition, batch), ())
            day = partition.partition("dt=")[2]
            stored_on = written_on(batch) if day == NO_DAY else date.fromisoformat(day)
            if stored_on < self.expired_before and not there:
                del self.rows[partition, batch]
            else:
                assert Counter(there) == Counter(rows)
        assert found == {}
        if self.waiting and not self.folders.locks and self.folders.steps_left is None:
            self.write_batch(self.waiting.pop(0))


def written_on(batch: int) -> date:
    """Return the day of a batch's manifest: no row of it was stored later."""
    return FIRST_DAY + timedelta(days=DAYS - 1 + min(batch, 1))


LakeMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestLake = LakeMachine.TestCase
