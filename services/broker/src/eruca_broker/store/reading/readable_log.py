"""The log as readers see it: records, runs for replicas, and look-ups by key.

The log alone does not know what may be read. The dispatcher knows what is visible; the writer knows
the bounds of what was written together and is not confirmed yet; the state knows when a topic was
created. This class asks them, and leaves the reading to
:mod:`eruca_broker.store.reading.log_reader`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from eruca.contract.errors import RecordNotFoundError
from eruca.contract.messages import DamagedRecord
from eruca.contract.records import Record
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.files.residency import at_once
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.projecting.index_follower import IndexFollower
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.lagging import KEY_INDEX, index_failed, index_unproved
from eruca_broker.store.reading.log_reader import LogRead, LogReader
from eruca_broker.store.reading.record_groups import group_across
from eruca_broker.store.writing.writer import Writer


class LogFile(NamedTuple):
    """A file of the log, for direct reads."""

    path: Path
    base_offset: int  # log offset of its first byte
    end_offset: int  # … after its last byte


class ReadableLog:
    """Reads the log of one open store.

    Args:
        log: The files.
        reader: Reads them, and finds records by the index.
        index: The key index.
        index_follower: Completes the index when a reader needs it.
        queues: The consume queues, by which groups of records are found.
        dispatcher: Knows what is visible.
        writer: Knows the bounds of what is not.
        state: The topics.
    """

    def __init__(
        self,
        *,
        log: CommitLog,
        reader: LogReader,
        index: KeyIndex,
        index_follower: IndexFollower,
        queues: ConsumeQueues,
        dispatcher: Dispatcher,
        writer: Writer,
        state: BrokerState,
    ) -> None:
        self._log = log
        self._reader = reader
        self._index = index
        self._index_follower = index_follower
        self._queues = queues
        self._dispatcher = dispatcher
        self._writer = writer
        self._state = state

    @property
    def min_offset(self) -> int:
        """Log offset of the first record that is here."""
        return self._log.min_offset

    @property
    def visible_offset(self) -> int:
        """Log offset after the last record that readers see."""
        return self._dispatcher.queued_offset

    def record(self, log_offset: int) -> Record:
        """Return the visible record at *log_offset*; raises RecordNotFoundError."""
        return self._reader.record(log_offset, self.visible_offset)

    def raw(self, log_offset: int, *, is_proved: bool = True) -> memoryview:
        """Return the bytes of a record that is known to start there.

        Raises:
            RecordNotFoundError: No record starts there; or it is damaged, and *is_proved* is set.
        """
        return self._reader.raw(log_offset, is_proved=is_proved)

    def read(self, from_offset: int, bytes_max: int, stop: int | None = None) -> LogRead:
        """Return whole records of the log from *from_offset* on, and before *stop*.

        Raises:
            RecordNotFoundError: No record starts there.
        """
        end = self.visible_offset
        if stop is None or stop >= end:
            return self._reader.read_log(from_offset, bytes_max, end)
        read = self._reader.read_log(from_offset, bytes_max, stop)
        return read._replace(max_offset=end)

    def run(self, from_offset: int, bytes_max: int, *, is_proved: bool = True) -> list[memoryview]:
        """Return the run at *from_offset*, for a replica's copy; empty at the log's end.

        It reaches up to the end of what is written, since a replica must hold records before they
        are confirmed. It divides no group of records, and of what is not visible yet nothing that
        was appended together: a replica can become master with it (rule 4).

        Args:
            from_offset: The beginning of a record.
            bytes_max: Maximum bytes; exceeded by the first record, by what must not be divided, or
                by the record after a blank one, if the run would be empty or incomplete without it.
            is_proved: Whether visible records are verified here, although the replica does it.

        Returns:
            The log's own bytes, one piece for each segment.

        Raises:
            RecordNotFoundError: No record starts there.
            UnavailableError: A record is damaged.
        """
        if from_offset >= self.visible_offset:
            return self._unconfirmed_run(from_offset, bytes_max)
        read = partial(self._reader.run, from_offset, is_proved=is_proved)
        run = read(bytes_max, self.visible_offset)
        end = from_offset + sum(map(len, run))
        torn = group_across(self._log, self._queues, end)
        if torn is None:
            return run
        before = read(bytes_max, torn.begin) if torn.begin > from_offset else []
        return before or read(torn.end - from_offset, torn.end)

    def _unconfirmed_run(self, from_offset: int, bytes_max: int) -> list[memoryview]:
        """Return a run of records that are not visible yet; the writer knows their bounds."""
        written = self._log.written_offset
        if from_offset > written:
            raise RecordNotFoundError(
                f"log offset {from_offset} is outside the log, {self._log.min_offset} to {written}",
                fix=f"read from {written} on",
            )
        end = self._writer.run_end(from_offset, from_offset + bytes_max)
        assert end <= written, "rule 4: a run is whole writes"
        return self._reader.stretches(from_offset, end)

    def pieces(self, begin: int, end: int) -> list[memoryview]:
        """Return the log's own bytes between two log offsets, by segment; both are in the log."""
        return self._reader.pieces(begin, end)

    def is_boundary(self, log_offset: int) -> bool:
        """Tell whether a replica's log may end at *log_offset*: a record does, but no group lacks.

        Its runs end at such places. Those of another master ended elsewhere than this store's own,
        and a kill leaves the beginning of a run.
        """
        visible = self.visible_offset
        if log_offset in (visible, self._log.written_offset):
            return True
        if not self._reader.begins_at(log_offset):
            return False
        if log_offset > visible:
            return not self._writer.is_amid_group(log_offset)
        return group_across(self._log, self._queues, log_offset) is None

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        is_latest_left_out: bool = False,
        since_offset: int | None = None,
        before_offset: int | None = None,
        is_wanted: Callable[[Record], bool] | None = None,
        damaged: list[DamagedRecord] | None = None,
    ) -> list[Record]:
        """Return a topic's newest messages with *key* as unique id or among their keys.

        Args:
            topic: The messages' topic.
            key: Their key.
            count_max: Their maximum number.
            begin_ms: The first store time that counts.
            end_ms: The last one.
            is_latest_left_out: Whether to skip records that are not in the key index yet, at most
                ``INDEX_BACKLOG_MAX``: this costs much less.
            since_offset: Log offset of the first record that counts; None: the creation of the
                present topic.
            before_offset: Log offset after the last record that counts; None: the log's end.
            is_wanted: A further condition; None: no condition.
            damaged: Collects damaged records that may be among them.

        Raises:
            UnavailableError: The key index could not be written, and is incomplete; or a record
                that may be among them is damaged, and *damaged* is None.
        """
        if (lag := self._dispatcher.lagging.get(KEY_INDEX)) is not None:
            raise index_failed(lag.error)
        if self._index.has_unproved(begin_ms, end_ms):
            raise index_unproved()
        if since_offset is None:
            known = self._state.topics.get(topic)
            since_offset = known.created_at if known else 0
        if not is_latest_left_out:
            at_once(
                self._index_follower.catch_up
            )  # so that a client finds messages that it has just sent
        return self._reader.by_key(
            topic,
            key,
            count_max=count_max,
            begin_ms=begin_ms,
            end_ms=end_ms,
            since_offset=since_offset,
            before_offset=before_offset,
            unindexed=() if is_latest_left_out else self._dispatcher.unindexed(),
            is_wanted=is_wanted,
            damaged=damaged,
        )

    def file(self, log_offset: int) -> LogFile:
        """Return the file that holds *log_offset*, which is in the log."""
        segment = self._log.segment_at(log_offset)
        assert segment is not None
        return LogFile(segment.path, segment.base_offset, segment.end_offset)
