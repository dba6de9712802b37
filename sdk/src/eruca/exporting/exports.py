"""A query service's exports: the offsets of queues, and their rows.

Every batch is checked: it must begin where the last one ended, and have the number of rows that it
claims. An interrupted answer is resumed at the next offset. An answer that ends early is an error
if a retry does not help.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from eruca.exporting.columns import DAMAGE, SCHEMA_VERSION, arrow_schema
from eruca.exporting.credentials import credentials_of
from eruca.exporting.errors import (
    BrokenAnswer,
    DamagedError,
    DataLossError,
    RangeDeleted,
    RefusedError,
    SourceError,
    UnavailableError,
)
from eruca.exporting.options import REQUEST_ROWS_MAX, Options
from eruca.exporting.positions import Lost, Position, another_topic
from eruca.exporting.ranges import UNKNOWN_END, Held, LogEnd, Queue, Range, least_ends
from eruca.exporting.service import TRANSIENT, Patience, Service
from eruca.exporting.stream_offsets import data_loss

_BATCH_RANGE: Final = b"eruca.range"
_PROVED_AT_ONCE: Final = 100  # positions in one request; limits the length of its URL
_TOPIC_NOT_FOUND: Final = "topic-not-found"
_NAMED_MAX: Final = 8  # queues named in one error
_DAMAGED: Final = "message-damaged"


class Exports:
    """A query service's exports: the offsets of queues, and their rows.

    Args:
        options: The topics, and how to read them.
        never_lacks: Why no broker may be missing, regardless of the options.
        stop: Set if the work should end; then no request is retried.
    """

    def __init__(
        self,
        options: Options,
        *,
        never_lacks: str | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._options = options
        self.logs: dict[str, LogEnd] = {}  # of the brokers, reached by the last call of held
        self._never_lacks = never_lacks
        if never_lacks is None and options.fail_on_data_loss:
            self._never_lacks = "to continue without it, set failOnDataLoss=false"
        self._service = Service(
            options.urls,
            timeout=options.timeout_seconds,
            patience=options.patience_seconds,
            credentials=credentials_of(os.environ, options.files),
            stop=stop,
        )

    def topics(self, *, may_be_none: bool = False) -> tuple[str, ...]:
        """Return the topics to read: the named ones, or those that match the pattern now.

        Raises:
            OptionError: No topic matches, and that matters.
            UnavailableError: There was no answer.
            SourceError: The service refused.
        """
        choice = self._options.topics
        if choice.pattern is None:
            return choice.names
        listed: list[str] = []
        query: list[tuple[str, str]] = []
        while True:
            page = self._service.get_json("/v1/exports/topics", query)
            listed += page["topics"]
            if page["next_cursor"] is None:
                break
            query = [("cursor", page["next_cursor"])]
        topics = choice.pattern.among(listed)
        if not topics and not may_be_none:
            raise choice.nothing_of(listed)
        return topics

    def is_deleted(self, queues: Collection[Queue]) -> bool:
        """Tell whether the topic of *queues* no longer exists, and none of their brokers is away.

        Raises:
            UnavailableError: There was no answer.
            SourceError: The service refused.
        """
        # One queue names a broker; all queues could be more than a request may have.
        ids = {queue.broker_name: queue.queue_id for queue in queues}
        start = {f"{broker_name}/{queue_id}": 0 for broker_name, queue_id in ids.items()}
        [topic] = {queue.topic for queue in queues}
        query = [
            ("partition_rows", str(REQUEST_ROWS_MAX)),
            ("start", json.dumps(start)),
            ("missing", "skip"),
        ]
        try:
            self._asked(topic, query)
        except RefusedError as error:
            if error.code == _TOPIC_NOT_FOUND:
                return True
            raise
        return False

    def held(
        self,
        topics: Iterable[str],
        *,
        starting_at: str | None = None,
        ending_at: str | None = None,
        skips_deleted: bool = False,
    ) -> dict[Queue, Held]:
        """Return the present offsets of the topics' queues, optionally of a time range.

        Args:
            topics: The topics.
            starting_at: Stored at this time or later.
            ending_at: Stored before this time.
            skips_deleted: Leave out topics that do not exist, instead of refusing.

        Raises:
            UnavailableError: There was no answer; or a broker with messages of a topic is
                unreachable, and that matters.
            SourceError: The service refused.
        """
        query = [("partition_rows", str(REQUEST_ROWS_MAX))]  # the partitions are not used
        if starting_at:
            query.append(("since", starting_at))
        if ending_at:
            query.append(("until", ending_at))
        held, logs = {}, []
        for topic in topics:
            try:
                plan = self._plan(topic, query)
            except RefusedError as error:
                if skips_deleted and error.code == _TOPIC_NOT_FOUND:
                    continue
                raise
            logs.append(_log_ends(plan))
            if plan["schema_version"] < SCHEMA_VERSION:
                raise SourceError(
                    f"the query service exports schema {plan['schema_version']}, expected"
                    f" {SCHEMA_VERSION} or later; update the service"
                )
            for one in plan["queues"]:
                queue = Queue(topic, one["broker_name"], one["queue_id"])
                held[queue] = Held(
                    one["from_offset"],
                    one["to_offset"],
                    one["min_offset"],
                    one["max_offset"],
                    one.get("topic_id"),
                    one.get("broker_started_at"),
                    one.get("latest_stored_at"),
                )
        self.logs = least_ends(logs)
        return self._assigned(held)

    def away(self, topics: Iterable[str]) -> list[str]:
        """Return a sentence for each broker with messages of a topic that is unreachable now.

        Raises:
            UnavailableError: There was no answer.
            SourceError: The service refused.
        """
        query = [("partition_rows", str(REQUEST_ROWS_MAX))]
        return [
            f"{topic}: {broker}" for topic in topics for broker in _away(self._asked(topic, query))
        ]

    def _assigned(self, held: dict[Queue, Held]) -> dict[Queue, Held]:
        """Return the queues of the option ``assign``.

        Raises:
            SourceError: One of them does not exist, and that matters.
        """
        assigned = self._options.assigned
        if assigned is None:
            return held
        topics = {queue.topic for queue in held}
        missing = sorted(queue.text for queue in assigned - held.keys() if queue.topic in topics)
        if missing and self._options.fail_on_data_loss:
            raise SourceError(
                f"option assign: unknown queue {missing[0]}; the topics have"
                f" {', '.join(sorted(queue.text for queue in held)[:_NAMED_MAX])}"
            )
        return {queue: now for queue, now in held.items() if queue in assigned}

    def lost(self, positions: Mapping[Queue, Position]) -> dict[Queue, Lost]:
        """Return the *positions* that their queues' logs do not contain any more, with the reasons.

        Raises:
            UnavailableError: There was no answer.
            SourceError: The service refused.
        """
        lost = {}
        for topic in sorted({queue.topic for queue in positions}):
            its = [(queue, one) for queue, one in positions.items() if queue.topic == topic]
            for at in range(0, len(its), _PROVED_AT_ONCE):
                some = dict(its[at : at + _PROVED_AT_ONCE])
                start = {
                    f"{queue.broker_name}/{queue.queue_id}": {
                        "offset": one.offset,
                        "topic_id": one.topic_id,
                        "latest_stored_at": one.latest_stored_at,
                    }
                    for queue, one in some.items()
                }
                query = [
                    ("partition_rows", str(REQUEST_ROWS_MAX)),
                    ("start", json.dumps(start)),
                    ("missing", "skip"),
                ]
                for told in self._plan(topic, query)["queues"]:
                    queue = Queue(topic, told["broker_name"], told["queue_id"])
                    if queue in some and told.get("lost"):
                        lost[queue] = Lost(told["lost"], told["from_offset"])
        return lost

    def patience(self) -> Patience:
        """Return a new limit of retries."""
        return self._service.patience()

    def _plan(self, topic: str, query: Sequence[tuple[str, str]]) -> dict[str, Any]:
        patience = self._service.patience()
        while True:
            plan = self._asked(topic, query)
            away = _away(plan)
            if not away:
                return plan
            text = f"{topic} is incomplete: {'; '.join(away)}"
            if self._never_lacks is None:
                print(text, file=sys.stderr)
                return plan
            patience.wait(BrokenAnswer(f"{text}; {self._never_lacks}"))

    def _asked(self, topic: str, query: Sequence[tuple[str, str]]) -> dict[str, Any]:
        plan: dict[str, Any] = self._service.get_json(
            f"/v1/exports/{quote(topic, safe='')}/plan", query
        )
        return plan

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of *ranges*, all of one topic, in order; resume interrupted answers.

        Raises:
            DamagedError: A message is damaged, and the options do not allow to mark it.
            DataLossError: Messages are deleted.
            UnavailableError: The service was unreachable for too long.
            SourceError: The service sent rows that were not requested.
        """
        todo = [one for one in ranges if one.rows]
        begun = 0  # rows yielded so far
        patience = self._service.patience()
        while todo:
            try:
                for batch, got in self._stream(todo):
                    todo = _after(todo, got)
                    begun += got.rows
                    patience.progressed()
                    _tell_damage(batch, got)
                    yield batch
                if todo:
                    raise BrokenAnswer(f"the answer ended before {todo[0].text}")
            except RangeDeleted as error:
                todo = self._without_deleted(todo, error, begun=begun)
            except RefusedError as error:
                if error.code == _TOPIC_NOT_FOUND:
                    # A name server that has just started knows no topic yet.
                    todo = self._without_topic(todo, error, patience)
                elif error.code == _DAMAGED:
                    raise DamagedError(
                        f"{error}; to continue, set damaged=mark (commands: --damaged mark):"
                        " a damaged message has a row with its fault in the column damage"
                    ) from error
                else:
                    todo = self._without_deleted(todo, error, begun=begun)
            except TRANSIENT as error:
                self._service.next_url()
                patience.wait(error)

    def _stream(self, todo: Sequence[Range]) -> Iterator[tuple[pa.RecordBatch, Range]]:
        options = self._options
        topic = todo[0].queue.topic
        query = [("range", one.request_text) for one in todo]
        query += [("columns", ",".join(options.columns)), ("codec", options.codec)]
        query.append(("damaged", options.damaged))
        path = f"/v1/exports/{quote(topic, safe='')}/records"
        expected = arrow_schema(options.columns)
        connection, answer = self._service.open(path, query)
        with closing(connection), closing(answer), pa.ipc.open_stream(answer) as stream:
            if not expected.equals(stream.schema):
                raise SourceError(f"expected the schema\n{expected}\nfound\n{stream.schema}")
            while True:
                try:
                    batch, metadata = stream.read_next_batch_with_custom_metadata()
                except StopIteration:
                    return
                if batch.num_rows:
                    text = (metadata or {}).get(_BATCH_RANGE)
                    if text is None:
                        raise SourceError("the service's batches contain no position")
                    yield batch, _checked(batch, text.decode(), topic)

    def _without_topic(
        self, todo: list[Range], error: RefusedError, patience: Patience
    ) -> list[Range]:
        """Wait for the topic as for an unreachable service; return the ranges without it."""
        try:
            patience.wait(error)
        except UnavailableError:
            return self._without(todo, [_nothing_of(one) for one in todo], error)
        return todo

    def _without_deleted(
        self, todo: Sequence[Range], error: Exception, *, begun: int
    ) -> list[Range]:
        """Return the remaining part of *todo*, if the queues' offsets now explain a refusal.

        A topic that was created again may have fewer queues than before.

        Raises:
            DataLossError: Messages are deleted, and that matters; or the topic is another one, and
                rows yielded so far may belong to it.
        """
        held = self.held({todo[0].queue.topic})
        for one in todo:
            now = held.get(one.queue)
            reason = now and another_topic(one.queue.topic, one.topic_id, now.topic_id)
            if reason and begun:
                raise DataLossError(
                    f"{one.queue.text}: {reason} while it was being read; run it again"
                ) from error
        brokers = {queue.broker_name for queue in held}
        left = []
        for one in todo:
            now = held.get(one.queue)
            if now is not None and not another_topic(one.queue.topic, one.topic_id, now.topic_id):
                start = min(max(one.start, now.min_offset), one.end)
                left.append(one._replace(start=start, end=max(start, min(one.end, now.max_offset))))
            else:  # the broker has another topic, or lacks this queue, or is away
                left.append(_nothing_of(one) if one.queue.broker_name in brokers else one)
        return self._without(todo, left, error)

    def _without(
        self, todo: Sequence[Range], left: Sequence[Range], error: Exception
    ) -> list[Range]:
        """Return *left*, the remaining part of each range of *todo*, without empty ranges."""
        if left == list(todo):
            raise error if isinstance(error, SourceError) else SourceError(str(error)) from error
        for one, rest in zip(todo, left, strict=True):
            for start, end in ((one.start, rest.start), (rest.end, one.end)):
                if start < end:
                    loss = data_loss(one.queue, start, end)
                    if self._options.fail_on_data_loss:
                        raise loss from error
                    print(f"{loss}", file=sys.stderr)
        return [one for one in left if one.rows]


def _away(plan: dict[str, Any]) -> list[str]:
    return [
        f"{one['broker_name']}: {one['detail']}" if one["broker_name"] else one["detail"]
        for one in plan.get("incomplete", ())
    ]


def _log_ends(plan: dict[str, Any]) -> dict[str, LogEnd]:
    """Return the log ends that a plan of one topic reaches, also of the brokers that it lacks."""
    lacking = {one["broker_name"] for one in plan.get("incomplete", ()) if one["broker_name"]}
    # services of earlier versions do not report them
    silent = {one["broker_name"] for one in plan["queues"]}
    told = {
        one["broker_name"]: LogEnd(one["epoch"], one["log_offset"])
        for one in plan.get("brokers", ())
    }
    return dict.fromkeys(silent, UNKNOWN_END) | told | dict.fromkeys(lacking, UNKNOWN_END)


def _nothing_of(one: Range) -> Range:
    return one._replace(start=one.end)


def _checked(batch: pa.RecordBatch, text: str, topic: str) -> Range:
    """Return the range of a batch after checking that it is consistent."""
    place, _, offsets = text.rpartition(":")
    broker_name, _, queue_id = place.rpartition("/")
    start, _, end = offsets.partition("-")
    got = Range(Queue(topic, broker_name, int(queue_id)), int(start), int(end))
    if got.rows != batch.num_rows:
        raise SourceError(f"a batch of {got.text} has {batch.num_rows} rows")
    if "queue_offset" in batch.schema.names:
        column = batch.column("queue_offset")
        ends = column[0].as_py(), column[-1].as_py()
        if ends != (got.start, got.end - 1):
            raise SourceError(f"a batch of {got.text} contains the offsets {ends[0]} to {ends[1]}")
    return got


def _tell_damage(batch: pa.RecordBatch, got: Range) -> None:
    """Report damaged messages on stderr; each is a batch of its own."""
    if DAMAGE not in batch.schema.names:
        return
    column = batch.column(DAMAGE)
    if column.null_count < len(column):
        fault = column.drop_null()[0].as_py()
        print(
            f"{got.queue.text}: the message at offset {got.start} is damaged, and its row says"
            f" so: {fault}",
            file=sys.stderr,
        )


def _after(todo: Sequence[Range], got: Range) -> list[Range]:
    """Return the remaining part of *todo* after a batch.

    Raises:
        SourceError: It is not the next batch.
    """
    first = todo[0]
    if (got.queue, got.start) != (first.queue, first.start) or got.end > first.end:
        raise SourceError(f"expected rows of {first.text}, found {got.text}")
    rest = first._replace(start=got.end)
    return [rest, *todo[1:]] if rest.rows else [*todo[1:]]
