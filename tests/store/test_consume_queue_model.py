"""A consume queue through puts, cuts, expiry, closing and crashes, beside a model: a list."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE, build_entries
from eruca_broker.store.files.open_files import OpenFiles
from eruca_broker.store.files.unflushed import Unflushed
from eruca_broker.store.queues.consume_queue import ConsumeQueue

PER_FILE = 4
FILE_SIZE = PER_FILE * ENTRY_SIZE
SECTOR_SIZE = 32  # bytes; a disk's have 512, and so split entries where these do
Row = tuple[int, int, int]  # log offset, size, tags code


class Queue(RuleBasedStateMachine):
    """The model: ``rows[n]`` is the entry of queue offset ``start + n``; below ``low`` is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="eruca-queue-"))
        self.directory = self.root / "orders" / "0"
        self.unflushed = Unflushed()
        self.start = 0
        self.low = 0
        self.first_in_files = 0  # queue offset; files before it have been deleted
        self.rows: list[Row] = []
        self.log_end = 100
        self.log_start = 0
        self.durable_end = 0  # log offset up to which entries have been flushed
        self.open_files = OpenFiles(2)
        self.queue = self.opened(None)

    def opened(self, limit: int | None) -> ConsumeQueue:
        queue = ConsumeQueue.open(
            str(self.directory),
            entries_per_file=PER_FILE,
            open_files=self.open_files,
            unflushed=self.unflushed,
            limit=limit,
        )
        queue.correct_min(self.log_start)
        return queue

    @rule(
        sizes=st.lists(st.integers(91, 300), min_size=1, max_size=9),
        again=st.integers(0, 5),
        start=st.integers(0, 12),
        gap=st.integers(0, 50),
    )
    def put(self, sizes: list[int], again: int, start: int, gap: int) -> None:
        """Put some new entries, and before them some that are known."""
        if not self.rows:
            self.start = self.low = start
            self.first_in_files = 0
        again = min(again, len(self.rows))
        first = self.start + len(self.rows) - again
        new = []
        for size in sizes:
            self.log_end += gap
            new.append((self.log_end, size, size * 7 - 1000))
            self.log_end += size
        run = self.rows[len(self.rows) - again :] + new
        columns = [np.array([row[n] for row in run], np.int64) for n in range(3)]

        if len(run) == 1:
            assert self.queue.put(first, *run[0]) == 1
        else:
            assert self.queue.put_run(first, build_entries(*columns)) == len(new)
        self.rows += new

    @rule(back=st.integers(0, 1500))
    def cut_the_log(self, back: int) -> None:
        """Never below what has expired: the log has no such place any more."""
        end = max(self.log_end - back, self.log_start)
        self.queue.truncate(end)
        self.keep(sum(row[0] < end for row in self.rows))
        self.log_end = max(end, self.rows[-1][0] + self.rows[-1][1] if self.rows else 0)
        self.durable_end = min(self.durable_end, end)

    @rule(share=st.floats(0, 1))
    def expire(self, share: float) -> None:
        self.log_start = max(self.log_start, int(self.log_end * share))
        self.queue.delete_expired(self.log_start)
        self.low = next(
            (self.start + n for n, row in enumerate(self.rows) if row[0] >= self.log_start),
            self.start + len(self.rows),
        )
        last_file = (self.start + max(len(self.rows) - 1, 0)) // PER_FILE
        self.first_in_files = max(
            self.first_in_files, min(self.low // PER_FILE, last_file) * PER_FILE
        )

    @rule()
    def flush(self) -> None:
        self.unflushed.take()  # what it makes durable is for crash() to respect
        self.durable_end = self.log_end

    @rule()
    def reopen(self) -> None:
        self.open_files.close()
        self.queue = self.opened(None)

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """Lose any sectors of what was not flushed, then open again."""
        self.open_files.close()
        durable = sum(row[0] < self.durable_end for row in self.rows)
        first = (self.start + durable) * ENTRY_SIZE
        for path in sorted(self.directory.iterdir()) if self.directory.exists() else ():
            content = bytearray(path.read_bytes())
            for low in range(0, FILE_SIZE, SECTOR_SIZE):
                high = min(low + SECTOR_SIZE, FILE_SIZE)
                low = max(low, first - int(path.name))  # noqa: PLW2901 - what was flushed stays
                if low < high and any(content[low:high]) and data.draw(st.booleans()):
                    content[low:high] = bytes(high - low)
            path.write_bytes(content)
        self.queue = self.opened(self.durable_end)
        self.keep(durable)

    def keep(self, count: int) -> None:
        """Forget the rows behind the first *count*; all, where no file holds any of them."""
        self.rows = self.rows[:count]
        if self.start + count <= self.first_in_files:
            self.rows = []
        self.low = min(self.low, self.start + len(self.rows))

    @invariant()
    def holds_those_entries_and_no_others(self) -> None:
        queue = self.queue
        if not self.rows:
            assert queue.min_offset == queue.max_offset
            return
        assert queue.max_offset == self.start + len(self.rows)
        assert queue.min_offset == self.low
        count = queue.max_offset - queue.min_offset
        found = [tuple(row) for row in queue.entries(queue.min_offset, count).tolist()]
        assert found == self.rows[self.low - self.start :]
        assert queue.max_physical_offset == self.rows[-1][0] + self.rows[-1][1]

    @invariant()
    def files_are_whole_and_empty_behind_the_end(self) -> None:
        if not self.directory.exists():
            return
        content = b""
        for path in sorted(self.directory.iterdir()):
            assert path.stat().st_size == FILE_SIZE
            content = path.read_bytes()
        if self.rows:
            used = (self.start + len(self.rows) - 1) % PER_FILE + 1
            assert not any(content[used * ENTRY_SIZE :])

    def teardown(self) -> None:
        self.open_files.close()
        shutil.rmtree(self.root)


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=50, stateful_step_count=15, deadline=None)
