"""An export service that breaks off when told to: what a real one does only when it is killed.

Its rows are made up from their offsets, so that any range is there without being stored::

    queue_offset n   stored_at BEGAN + n ms   body b"<topic>/<broker>/<queue>/<n>"
"""

from __future__ import annotations

import io
import json
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from eruca.exporting.columns import COLUMNS, SCHEMA_VERSION, arrow_schema
from eruca.exporting.ranges import Queue, Range

TOPIC_ID = "9f2c-1"
BEGAN = datetime(2026, 11, 21, tzinfo=UTC)
TOPICS_OF_PAGE = 3


class Refusal(NamedTuple):
    """A problem to answer with."""

    status: int
    code: str
    retry_after: int | None = None


Bodies: TypeAlias = Callable[[int], bytes]
"""Returns the body of the message at a queue offset."""


@dataclass(slots=True)
class Fault:
    """The fault of one answer of records; everything else in it is right."""

    refusal: Refusal | None = None
    cut_after_batches: int | None = None  # and the connection is closed
    cut_in_batch: bool = False  # in the middle of the next one, then
    end_after_batches: int | None = None  # and the answer ends as if that were all
    shift: int = 0  # how far the rows lie behind those asked for
    repeat_first: bool = False


@dataclass(slots=True)
class ExportService:
    """Queues and what is to go wrong, and what has been asked."""

    queues: dict[Queue, tuple[int, int]] = field(default_factory=dict)  # min and max offsets
    batch_rows: int = 100
    faults: deque[Fault | None] = field(default_factory=deque)
    plan_faults: deque[Refusal] = field(default_factory=deque)
    requests: list[str] = field(default_factory=list)
    away: Sequence[str | None] = ()  # brokers that nobody can find; None: nobody knows of any
    deleted: set[str] = field(default_factory=set)  # topics whose deletion is certain
    topic_ids: dict[str, str] = field(default_factory=dict)  # where it is not TOPIC_ID
    epoch: int | None = 0
    log_offset: int | None = 4_096
    broker_started_at: str = "2026-11-21T00:00:00.000Z"
    damaged: set[tuple[Queue, int]] = field(default_factory=set)  # messages, by their offsets
    lost: dict[Queue, tuple[str, int]] = field(default_factory=dict)  # starts that do not hold
    on_plan: Callable[[], None] | None = None
    on_records: Callable[[], None] | None = None
    url: str = ""
    key: str | None = None  # that every request must carry; None: nobody needs one
    on_stranger: Callable[[], None] | None = None  # before a request without the key is refused
    tls: ssl.SSLContext | None = None

    def hold(self, topic: str, sizes: dict[int, int], *, broker_name: str = "broker-a") -> Self:
        """Hold queues of so many messages, by number."""
        self.deleted.discard(topic)
        for queue_id, size in sizes.items():
            self.queues[Queue(topic, broker_name, queue_id)] = (0, size)
        return self

    def plan(self, topic: str, query: dict[str, list[str]]) -> dict[str, Any]:
        """Return a plan's JSON."""
        queues: list[dict[str, Any]] = []
        for queue, (least, most) in sorted(self.queues.items()):
            if queue.topic != topic:
                continue
            start = max(least, _offset(query.get("since"), least))
            end = min(most, _offset(query.get("until"), most))
            queues.append(
                {
                    "broker_name": queue.broker_name,
                    "queue_id": queue.queue_id,
                    "from_offset": min(start, most),
                    "to_offset": max(min(start, most), end),
                    "min_offset": least,
                    "max_offset": most,
                    "missing_rows": 0,
                    "topic_id": self.topic_id(topic),
                    "broker_started_at": self.broker_started_at,
                    "latest_stored_at": _stored_at(most - 1) if least < most else None,
                    "lost": None,
                }
            )
        starts = json.loads(query.get("start", ["{}"])[0])
        for told in queues:
            queue = Queue(topic, told["broker_name"], told["queue_id"])
            if f"{queue.broker_name}/{queue.queue_id}" in starts and queue in self.lost:
                told["lost"], told["from_offset"] = self.lost[queue]
        missing = [
            {"broker_name": name, "reason": "broker_unreachable", "detail": "nobody knows it"}
            for name in self.away
        ]
        return {
            "topic": topic,
            "schema_version": SCHEMA_VERSION,
            "queues": queues,
            "brokers": [
                {"broker_name": name, "epoch": self.epoch, "log_offset": self.log_offset}
                for name in sorted({queue["broker_name"] for queue in queues})
            ],
            "partitions": [],
            "incomplete": missing,
        }

    def topic_page(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """Return a page of the topics."""
        [after] = query.get("cursor", [""])
        topics = sorted({queue.topic for queue in self.queues if queue.topic > after})
        page = topics[:TOPICS_OF_PAGE]
        has_more = len(topics) > TOPICS_OF_PAGE
        return {"topics": page, "next_cursor": page[-1] if has_more else None}

    def delete(self, topic: str) -> Self:
        """Delete a topic."""
        self.queues = {queue: size for queue, size in self.queues.items() if queue.topic != topic}
        self.deleted.add(topic)
        return self

    def topic_id(self, topic: str) -> str:
        """Return a topic's id."""
        return self.topic_ids.get(topic, TOPIC_ID)

    def create_again(self, topic: str, sizes: dict[int, int], *, topic_id: str = "9f2c-77") -> Self:
        """Delete a topic and create it again, with queues of so many messages."""
        self.queues = {queue: size for queue, size in self.queues.items() if queue.topic != topic}
        self.topic_ids[topic] = topic_id
        return self.hold(topic, sizes)

    def refusal(self, topic: str, ranges: list[Range], *, marks_damage: bool) -> Refusal | None:
        """Return why ranges cannot be read; None: they can."""
        if all(queue.topic != topic for queue in self.queues):
            return Refusal(404, "topic-not-found")
        if any(one.topic_id not in (None, self.topic_id(topic)) for one in ranges):
            return Refusal(410, "range-deleted")
        if any(one.queue not in self.queues for one in ranges):
            return Refusal(404, "queue-not-found")
        if any(one.start < self.queues[one.queue][0] for one in ranges):
            return Refusal(410, "range-deleted")
        if any(one.end > self.queues[one.queue][1] for one in ranges):
            return Refusal(422, "validation-failed")
        if (ranges[0].queue, ranges[0].start) in self.damaged and not marks_damage:
            return Refusal(410, "message-damaged")
        return None

    def batches(
        self, ranges: list[Range], columns: list[str], fault: Fault, *, marks_damage: bool
    ) -> Iterator[tuple[pa.RecordBatch, str]]:
        """Yield record batches and where they lie, up to one that must not be handed out."""
        for one in ranges:
            start = one.start + fault.shift
            while start < one.end + fault.shift:
                end = min(start + self.batch_rows, one.end + fault.shift)
                rotten = [n for queue, n in self.damaged if queue == one.queue and start <= n < end]
                if start in rotten and not marks_damage:
                    return
                end = start + 1 if start in rotten else min([*rotten, end])
                made = Range(one.queue, start, end)
                batch = damaged_row(made, columns) if start in rotten else batch_of(made, columns)
                yield batch, made.text
                if fault.repeat_first:
                    yield batch, made.text
                    fault.repeat_first = False
                start = end


def _stored_at(offset: int) -> str:
    moment = BEGAN + timedelta(milliseconds=offset)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _offset(moments: list[str] | None, default: int) -> int:
    if not moments:
        return default
    since = datetime.fromisoformat(moments[0]) - BEGAN
    return max(0, -(-since // timedelta(milliseconds=1)))


def batch_of(one: Range, columns: list[str]) -> pa.RecordBatch:
    """Return the rows of a range."""
    queue = one.queue
    offsets = range(one.start, one.end)
    count = len(offsets)
    times = [BEGAN + timedelta(milliseconds=n) for n in offsets]
    made: dict[str, list[Any]] = {
        "topic": [queue.topic] * count,
        "broker_name": [queue.broker_name] * count,
        "queue_id": [queue.queue_id] * count,
        "queue_offset": list(offsets),
        "log_offset": [n * 200 for n in offsets],
        "stored_at": times,
        "born_at": times,
        "message_id": [f"{queue.queue_id:08X}{n:024X}" for n in offsets],
        "offset_message_id": [f"{n:032X}" for n in offsets],
        "tag": ["even" if n % 2 == 0 else None for n in offsets],
        "keys": [[f"key-{n % 10}"] for n in offsets],
        "sharding_key": [f"shard-{n % 3}" for n in offsets],
        "body": [f"{queue.text}/{n}".encode() for n in offsets],
        "properties": [[("colour", "red")] for _ in offsets],
        "reconsume_times": [0] * count,
        "sys_flag": [0] * count,
        "flag": [0] * count,
        "prepared_offset": [0] * count,
        "size": [200] * count,
        "damage": [None] * count,
    }
    schema = arrow_schema(columns)
    arrays = [pa.array(made[name], schema.field(name).type) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def damaged_row(one: Range, columns: list[str]) -> pa.RecordBatch:
    """Return the row of a message that is damaged."""
    place = batch_of(one, ["topic", "broker_name", "queue_id", "queue_offset", "log_offset"])
    [row] = place.to_pylist()
    row |= {"size": 200, "damage": "the record does not match its checksum"}
    schema = arrow_schema(columns)
    return pa.RecordBatch.from_pylist([{n: row.get(n) for n in columns}], schema=schema)


@contextmanager
def serving_exports(service: ExportService) -> Iterator[ExportService]:
    """Serve it on a free port of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _answer(self, service)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            _answer(self, service)

        def log_message(self, *_: Any) -> None:  # noqa: ANN401
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if service.tls is not None:  # each connection's own thread shakes hands
        server.socket = service.tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, name="exports", daemon=True)
    thread.start()
    scheme = "http" if service.tls is None else "https"
    service.url = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(handler: BaseHTTPRequestHandler, service: ExportService) -> None:
    service.requests.append(handler.path)
    if service.key and handler.headers["authorization"] != f"Bearer {service.key}":
        if service.on_stranger is not None:
            service.on_stranger()
        _refuse(handler, Refusal(401, "unauthenticated"))
        return
    target = urlsplit(handler.path)
    query = parse_qs(target.query)
    if target.path == "/v1/exports/topics":
        page = json.dumps(service.topic_page(query)).encode()
        _send(handler, 200, "application/json", page)
        return
    topic = unquote(target.path.split("/")[3])
    if target.path.startswith("/v1/topics/"):  # it is the target of replays, and their name server
        answer = _route(service.url) if target.path.endswith("/route") else {"messages": []}
        _send(handler, 200, "application/json", json.dumps(answer).encode())
        return
    if target.path.endswith("/plan"):
        if service.on_plan is not None:
            service.on_plan()
        if service.plan_faults:
            _refuse(handler, service.plan_faults.popleft())
        elif topic in service.deleted:
            _refuse(handler, Refusal(404, "topic-not-found"))
        else:
            body = json.dumps(service.plan(topic, query)).encode()
            _send(handler, 200, "application/json", body)
        return
    if service.on_records is not None:
        service.on_records()
    fault = (service.faults.popleft() if service.faults else None) or Fault()
    if fault.refusal is not None:
        _refuse(handler, fault.refusal)
        return
    ranges = [_range(topic, text) for text in query["range"]]
    marks_damage = query.get("damaged") == ["mark"]
    refusal = service.refusal(topic, ranges, marks_damage=marks_damage)
    if refusal is not None:
        _refuse(handler, refusal)
        return
    columns = query["columns"][0].split(",") if "columns" in query else list(COLUMNS)
    _stream(
        handler,
        service.batches(ranges, columns, fault, marks_damage=marks_damage),
        columns,
        fault,
    )


def _route(url: str) -> dict[str, Any]:
    queues = {"broker_name": "broker-a", "permission": "rw", "write_queue_count": 1}
    broker = {"broker_name": "broker-a", "urls": {"0": {"default": url}}}
    return {"brokers": [broker], "queues": [queues]}


def _stream(
    handler: BaseHTTPRequestHandler,
    batches: Iterator[tuple[pa.RecordBatch, str]],
    columns: list[str],
    fault: Fault,
) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "application/vnd.apache.arrow.stream")
    handler.end_headers()
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, arrow_schema(columns)) as stream:
        for number, (batch, text) in enumerate(batches):
            if number == fault.end_after_batches:
                break
            if number == fault.cut_after_batches:
                if fault.cut_in_batch:
                    before = sink.tell()
                    stream.write_batch(batch, custom_metadata={b"eruca.range": text.encode()})
                    sink.truncate(before + (sink.tell() - before) // 2)
                handler.wfile.write(sink.getvalue())
                return
            stream.write_batch(batch, custom_metadata={b"eruca.range": text.encode()})
    handler.wfile.write(sink.getvalue())


def _refuse(handler: BaseHTTPRequestHandler, refusal: Refusal) -> None:
    body = json.dumps({"code": refusal.code, "detail": "as told"}).encode()
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    _send(handler, refusal.status, "application/problem+json", body, headers)


def _send(
    handler: BaseHTTPRequestHandler,
    status: int,
    media_type: str,
    body: bytes,
    headers: dict[str, str] | None = None,
) -> None:
    handler.send_response(status)
    handler.send_header("content-type", media_type)
    handler.send_header("content-length", str(len(body)))
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def _range(topic: str, text: str) -> Range:
    place, _, offsets = text.rpartition(":")
    broker_name, _, queue_id = place.rpartition("/")
    offsets, _, topic_id = offsets.partition("@")
    start, _, end = offsets.partition("-")
    return Range(Queue(topic, broker_name, int(queue_id)), int(start), int(end), topic_id or None)
