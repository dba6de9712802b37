"""An Eruca cluster of one name server and one broker on a given store, spoken to over HTTP."""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import httpx

from eruca.contract.message_ids import decode_offset_id
from eruca.contract.records import decode_record
from eruca.contract.wire import RECORDS_MEDIA_TYPE, decode_pull
from interop.messages import Message, NewMessage, Origin, Place, Receipt
from interop.processes import LOOPBACK, Child, free_ports
from interop.rocketmq import BROKER, CLUSTER, SIZES
from interop.side import By
from interop.store_files import message_in_log

_PULL_COUNT: Final = 256
_FIND_COUNT: Final = 64


class Eruca:
    """Eruca on the store in *store*, its broker reachable at *port*; its logs go to *home*."""

    name = "Eruca"

    def __init__(self, store: Path, home: Path, *, port: int) -> None:
        self.url = f"http://{LOOPBACK}:{port}"
        self._store = store
        self._home = home
        self._port = port
        self._children = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            port = free_ports()
            self.name_server = f"http://{LOOPBACK}:{port}"
            settings = {"HOST": LOOPBACK, "PORT": port, "KV_FILE": self._home / "kv.json"}
            starting.enter_context(self._start("namesrv", self.name_server, settings))
            self.broker = starting.enter_context(
                self._start("broker", self.url, self._broker_settings())
            )
            self.http = starting.enter_context(httpx.Client(base_url=self.url, timeout=60))
            self._children = starting.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._children.close()

    def create_topic(self, topic: str, queue_count: int) -> None:
        """Create *topic*."""
        settings = {"read_queue_count": queue_count, "write_queue_count": queue_count}
        self._ask("PUT", f"/v1/topics/{quote(topic)}", json=settings)

    def queue_counts(self) -> dict[str, int]:
        """Return how many queues each topic has."""
        listed = self._ask("GET", "/v1/topics", params={"limit": 1000})
        return {row["topic"]: row["read_queue_count"] for row in listed["topics"]}

    def send(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send one after another, in JSON."""
        return [
            _receipt(self._ask("POST", _messages_of(message.topic), json=_as_json(message)))
            for message in messages
        ]

    def send_batch(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send all at once to one queue, in JSON."""
        batch = {"messages": [_as_json(message) for message in messages]}
        answer = self._ask("POST", _messages_of(messages[0].topic), json=batch)
        return [_receipt(row) for row in answer["messages"]]

    def queue_ranges(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return each queue's first and next offset."""
        answer = self._ask("GET", f"/v1/topics/{quote(topic)}/queues")
        return {row["queue_id"]: (row["min_offset"], row["max_offset"]) for row in answer["queues"]}

    def read_topic(self, topic: str) -> list[Message]:
        """Return every message of every queue, pulled in JSON."""
        return [
            _message(row)
            for queue_id, (first, end) in self.queue_ranges(topic).items()
            for answer in self._pulls(topic, queue_id, first, end)
            for row in answer["messages"]
        ]

    def read_topic_records(self, topic: str) -> list[Message]:
        """Return every message of every queue, pulled as the log's own records."""
        messages = []
        for queue_id, (first, end) in self.queue_ranges(topic).items():
            offset = first
            while offset < end:
                answer = self.http.get(
                    f"/v1/topics/{quote(topic)}/queues/{queue_id}/messages",
                    params={"offset": offset, "max_count": _PULL_COUNT},
                    headers={"accept": RECORDS_MEDIA_TYPE},
                )
                pulled = decode_pull(answer.raise_for_status().content)
                start = 0
                for size in pulled.sizes:
                    record = decode_record(pulled.records[start : start + size])
                    messages.append(message_in_log(record))
                    start += size
                offset = _advanced(offset, pulled.next_offset)
        return messages

    def find(self, by: By, topic: str, values: Sequence[str]) -> dict[str, list[Message]]:
        """Return what each key or id leads to."""
        one = self._at_offset_id if by == "offset_id" else self._with_key
        return {value: one(topic, value) for value in values}

    def offsets_by_time(self, topic: str, queue_id: int, times_ms: Sequence[int]) -> list[int]:
        """Return the first offset stored at or after each time."""
        path = f"/v1/topics/{quote(topic)}/queues/{queue_id}/offset"
        return [
            self._ask("GET", path, params={"timestamp": _time_text(time_ms)})["offset"]
            for time_ms in times_ms
        ]

    def consume(
        self, topic: str, *, group: str, count: int, expression: str = "*"
    ) -> list[Message]:
        """Return the messages from where the group is, and commit where it is then."""
        committed = self.group_offsets(group, topic)
        messages: list[Message] = []
        commits = []
        for queue_id, (first, end) in self.queue_ranges(topic).items():
            offset = committed.get(queue_id, first)
            for answer in self._pulls(topic, queue_id, offset, end, expression=expression):
                messages += map(_message, answer["messages"])
            commits.append({"topic": topic, "queue_id": queue_id, "offset": end})
        self._ask("PUT", f"/v1/groups/{quote(group)}/offsets", json={"offsets": commits})
        tags = {tag.strip() for tag in expression.split("||")}  # the broker compares hashes only
        return [message for message in messages if expression == "*" or message.tag in tags]

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offset in each queue where it has one above 0."""
        path = f"/v1/groups/{quote(group)}/offsets"
        answer = self._ask("GET", path, params={"topic": topic})
        rows = answer["offsets"]
        return {row["queue_id"]: row["committed_offset"] for row in rows if row["committed_offset"]}

    def _with_key(self, topic: str, key: str) -> list[Message]:
        answer = self._ask("GET", _messages_of(topic), params={"key": key, "limit": _FIND_COUNT})
        return [_message(row) for row in answer["messages"]]

    def _at_offset_id(self, topic: str, offset_id: str) -> list[Message]:
        log_offset = decode_offset_id(offset_id).log_offset
        message = _message(self._ask("GET", f"/v1/log/records/{log_offset}")["message"])
        return [message] if message.topic == topic else []

    def _pulls(
        self, topic: str, queue_id: int, offset: int, end: int, *, expression: str = "*"
    ) -> Iterator[Mapping[str, Any]]:
        path = f"/v1/topics/{quote(topic)}/queues/{queue_id}/messages"
        while offset < end:
            where = {"offset": offset, "max_count": _PULL_COUNT, "filter": expression}
            answer = self._ask("GET", path, params=where)
            yield answer
            offset = _advanced(offset, answer["next_offset"])

    def _ask(self, method: str, path: str, **request: Any) -> Any:  # noqa: ANN401 - JSON
        answer = self.http.request(method, path, **request)
        if answer.is_error:
            raise ValueError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json() if answer.content else None

    def _start(self, service: str, url: str, settings: Mapping[str, object]) -> Child:
        prefix = f"ERUCA_{service.upper()}_"
        child = Child(
            f"Eruca {service}",
            [sys.executable, "-m", f"eruca_{service}"],
            self._home / f"{service}.log",
            environment={prefix + name: str(value) for name, value in settings.items()},
        )
        child.wait_until(lambda: _is_ready(url))
        return child

    def _broker_settings(self) -> dict[str, object]:
        return {
            "NAME": BROKER,
            "CLUSTER": CLUSTER,
            "HOST": LOOPBACK,
            "PORT": self._port,
            "STORE_DIR": self._store,
            "NAMESRV_URLS": self.name_server,
            "SEGMENT_SIZE": SIZES.segment,
            "QUEUE_FILE_ENTRIES": SIZES.queue_file_entries,
            "INDEX_SLOTS": SIZES.index_slots,
            "INDEX_ENTRIES": SIZES.index_entries,
        }


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).is_success
    except httpx.TransportError:
        return False


def _advanced(offset: int, following: int) -> int:
    if following <= offset:
        raise ValueError(f"a pull from {offset} leads to {following}")
    return following


def _messages_of(topic: str) -> str:
    return f"/v1/topics/{quote(topic)}/messages"


def _as_json(message: NewMessage) -> dict[str, Any]:
    return {
        "body": {"base64": b64encode(message.body).decode()},
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "sharding_key": message.sharding_key,
        "flag": message.flag,
    }


def _time_text(time_ms: int) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)).isoformat()


def _time_ms(text: str) -> int:
    return (datetime.fromisoformat(text) - datetime.fromtimestamp(0, UTC)) // timedelta(
        milliseconds=1
    )


def _receipt(row: Mapping[str, Any]) -> Receipt:
    return Receipt(
        row["queue_id"], row["queue_offset"], row["message_id"], row["offset_message_id"]
    )


def _message(row: Mapping[str, Any]) -> Message:
    place: Place = (row["topic"], row["queue_id"], row["queue_offset"])
    body = row["body"]
    return Message(
        *place,
        message_id=row["message_id"],
        offset_message_id=row["offset_message_id"],
        tag=row["tag"],
        keys=tuple(row["keys"]),
        sharding_key=row["sharding_key"],
        properties=row["properties"],
        body=b64decode(body["base64"]) if "base64" in body else body.get("text", "").encode(),
        flag=row["flag"],
        origin=Origin(
            born_ms=_time_ms(row["born_at"]),
            born_host=row["born_host"],
            stored_ms=_time_ms(row["stored_at"]),
            store_host=row["store_host"],
            log_offset=row["log_offset"],
            size=row["size"],
        ),
    )
