"""RocketMQ's client, driven through our Java program: one JSON line per request and answer."""

from __future__ import annotations

import json
import subprocess
import threading
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from interop.messages import Message, NewMessage, Receipt, message_of_row, receipts_of_batch
from interop.side import By
from interop.toolchain import Toolchain

_ANSWER_SECONDS_MAX: Final = 180
_CONSUME_SECONDS_MAX: Final = 40

Decision: TypeAlias = Literal["COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"]
"""A transaction's state, in the words of RocketMQ's client."""


class DriverError(Exception):
    """RocketMQ's client reported a failure, or did not answer."""


class Driver:
    """A session of RocketMQ's client with one name server."""

    name = "RocketMQ"

    def __init__(self, toolchain: Toolchain, name_server: str, home: Path, *, broker: str) -> None:
        self._broker = broker
        home.mkdir(parents=True, exist_ok=True)
        with (home / "driver.log").open("ab") as log:
            self._process = subprocess.Popen(
                toolchain.command("eruca.interop.Driver", name_server, home=home, heap="256m"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                cwd=home,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.kill()
        self._process.communicate()

    def create_topic(self, topic: str, queue_count: int) -> None:
        """Create *topic*."""
        self._ask("create_topic", topic=topic, queues=queue_count, broker=self._broker)

    def send(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send the messages one by one."""
        rows = self._ask("send", messages=[message.as_json() for message in messages])
        return [receipt for row in rows for receipt in receipts_of_batch(row)]

    def send_batch(self, messages: Sequence[NewMessage]) -> list[Receipt]:
        """Send all messages at once to one queue."""
        [row] = self._ask("send_batch", messages=[message.as_json() for message in messages])
        return receipts_of_batch(row)

    def send_in_transaction(self, message: NewMessage, *, group: str, decision: Decision) -> str:
        """Send a half message, and decide it at once or never; return the transaction's id."""
        [row] = self._ask("transaction", group=group, decision=decision, message=message.as_json())
        if row["status"] != "SEND_OK":
            raise DriverError(f"RocketMQ did not store a half message: {row}")
        return str(row["message_id"])

    def send_later(self, topic: str, body: bytes, *, seconds: float = 0, level: int = 0) -> str:
        """Send a delayed message; return its recall handle (empty with a delay level)."""
        message = NewMessage(topic, body, delay_level=level).as_json()
        [row] = self._ask("send_later", message=message, delay_ms=int(seconds * 1_000))
        return str(row["recall_handle"])

    def recall(self, topic: str, handle: str) -> None:
        """Recall a delayed message."""
        self._ask("recall", topic=topic, handle=handle)

    def fail_one(self, topic: str, group: str, body: bytes, *, retries_max: int) -> None:
        """Send a message, and let it fail in *group*."""
        self.send([NewMessage(topic, body)])
        seconds = _CONSUME_SECONDS_MAX
        text = b64encode(body).decode()
        self._ask(
            "fail", topic=topic, group=group, body=text, retries_max=retries_max, seconds=seconds
        )

    def consume_retries(self, topic: str, *, group: str, count: int) -> list[bytes]:
        """Return the bodies of *count* messages of a group, including its retries."""
        return [message.body for message in self.consume(topic, group=group, count=count)]

    def queue_ranges(self, topic: str) -> dict[int, tuple[int, int]]:
        """Return each queue's first and next offset."""
        rows = self._ask("queues", topic=topic)
        return {row["queue_id"]: (row["min_offset"], row["max_offset"]) for row in rows}

    def read_topic(self, topic: str) -> list[Message]:
        """Return every message of every queue."""
        return [message_of_row(row) for row in self._ask("read_topic", topic=topic)]

    def consume(
        self, topic: str, *, group: str, count: int, expression: str = "*"
    ) -> list[Message]:
        """Consume with a group until it has *count* messages or times out; return them."""
        rows = self._ask(
            "subscribe",
            topic=topic,
            expression=expression,
            group=group,
            count=count,
            seconds=_CONSUME_SECONDS_MAX,
        )
        return [message_of_row(row) for row in rows]

    def find(self, by: By, topic: str, values: Sequence[str]) -> dict[str, list[Message]]:
        """Look up each key or id; return the messages found."""
        rows = self._ask("find", by=by, topic=topic, values=list(values))
        return {row["value"]: [message_of_row(found) for found in row["found"]] for row in rows}

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return a group's committed offsets above 0, by queue."""
        rows = self._ask("group_offsets", group=group, topic=topic, broker=self._broker)
        return {row["queue_id"]: row["offset"] for row in rows if row["offset"] > 0}

    def offsets_by_time(self, topic: str, queue_id: int, times_ms: Sequence[int]) -> list[int]:
        """Return the first offset stored at or after each time."""
        rows = self._ask(
            "offsets_by_time", topic=topic, queue_id=queue_id, timestamps=list(times_ms)
        )
        return [row["offset"] for row in rows]

    def _ask(self, operation: str, **fields: object) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watchdog = threading.Timer(_ANSWER_SECONDS_MAX, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps({"do": operation, **fields}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise DriverError(f"RocketMQ's client ended during {operation!r}")
        answer = json.loads(line)
        if "error" in answer:
            raise DriverError(f"{operation}: {answer['error']}")
        rows: list[dict[str, Any]] = answer["rows"]
        return rows
