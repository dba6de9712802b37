"""A member of a consumer group as a process of its own, which writes down everything it does.

``python group_member.py NAMESRV_URLS TOPIC GROUP FILE SETTINGS``: SETTINGS are those of
``push_consumer``, in JSON. Each line of FILE is one event: a message that was handled, or queues
that were assigned, revoked or lost. At a message ``block NAME SECONDS`` the member whose FILE is
``NAME.jsonl`` blocks its event loop for so long; that it begins is an event, too. SIGTERM stops it
as an operator would.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

import eruca

_STOP_SECONDS: Final = 60.0  # the tests' patience, which a program of its own cannot import


class Event(msgspec.Struct):
    """An action of a member, with its time by the clock of this machine."""

    kind: str  # handled, blocked, assigned, revoked, lost
    at: float
    queues: list[eruca.MessageQueue]
    offset: int = -1
    text: str = ""


class Handling(NamedTuple):
    """One message, handled once."""

    member: int
    at: float
    queue: eruca.MessageQueue
    offset: int
    text: str


class MemberProcess:
    """A running member.

    Args:
        number: Of this member, for the test.
        file: What it writes.
        arguments: Name servers, topic, group.
        settings: Of its consumer.
    """

    def __init__(
        self, number: int, file: Path, arguments: Sequence[str], settings: dict[str, Any]
    ) -> None:
        self.number = number
        self.killed_at: float | None = None
        self._file = file
        self._read_bytes = 0
        self._events: list[Event] = []
        url, topic, group = arguments
        text = msgspec.json.encode(settings).decode()
        self._process = subprocess.Popen(
            [sys.executable, __file__, url, topic, group, str(file), text]
        )

    def block_text(self, seconds: float) -> str:
        """Return the text of a message that blocks its event loop."""
        return block_text(self._file, seconds)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def events(self) -> list[Event]:
        """Return what it has done so far."""
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._read_bytes)
                whole, end, _ = file.read().rpartition(b"\n")  # behind it may be half of a line
            if end:
                self._events += [msgspec.json.decode(line, type=Event) for line in whole.split(end)]
                self._read_bytes += len(whole) + len(end)
        return list(self._events)

    def queues(self, topic: str) -> set[eruca.MessageQueue]:
        """Return the queues of a topic it holds, by its own word."""
        held: set[eruca.MessageQueue] = set()
        for event in self.events():
            if event.kind == "assigned":
                held |= set(event.queues)
            elif event.kind in ("revoked", "lost"):
                held -= set(event.queues)
        return {queue for queue in held if queue.topic == topic}

    def handled(self) -> list[Handling]:
        """Return the messages it has handled."""
        return [
            Handling(self.number, event.at, event.queues[0], event.offset, event.text)
            for event in self.events()
            if event.kind == "handled"
        ]

    def stop(self) -> None:
        """Stop it as an operator would."""
        self._process.send_signal(signal.SIGTERM)
        assert self._process.wait(_STOP_SECONDS) == 0

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self.killed_at = time.time()
            self._process.wait()


def block_text(file: Path, seconds: object) -> str:
    """Return the text of a message that blocks the event loop of the member that writes *file*."""
    return f"block {file.stem} {seconds}"


async def consume(url: str, topic: str, group: str, file: str, settings: dict[str, Any]) -> None:
    """Be a member until told to stop."""
    # One write per line: what was written is there however the process ends.
    output = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(event: Event) -> None:
        os.write(output, msgspec.json.encode(event) + b"\n")

    block = block_text(Path(file), "")

    def listener(kind: str) -> Any:  # noqa: ANN401  (a function of queues)
        return lambda queues: note(Event(kind, time.time(), queues))

    async with eruca.AsyncClient(url) as client:
        consumer = client.push_consumer(
            group,
            listeners=eruca.Listeners(
                on_assigned=listener("assigned"),
                on_revoked=listener("revoked"),
                on_lost=listener("lost"),
            ),
            membership=eruca.Membership(**settings.pop("membership", {})),
            offsets=eruca.Offsets(**settings.pop("offsets", {})),
            **settings,
        )

        @consumer.on(topic)
        async def handle(message: eruca.ReceivedMessage) -> None:
            text = message.text()
            if text.startswith(block):
                note(Event("blocked", time.time(), [message.queue], message.queue_offset, text))
                time.sleep(float(text.removeprefix(block)))  # noqa: ASYNC251  (it is what is meant)
            else:
                await asyncio.sleep(0.001)  # the work's pace
            note(Event("handled", time.time(), [message.queue], message.queue_offset, text))

        loop = asyncio.get_running_loop()
        stopping: list[asyncio.Task[None]] = []
        loop.add_signal_handler(
            signal.SIGTERM, lambda: stopping.append(loop.create_task(consumer.stop()))
        )
        await consumer.run()


if __name__ == "__main__":
    _url, _topic, _group, _file, _settings = sys.argv[1:]
    asyncio.run(consume(_url, _topic, _group, _file, msgspec.json.decode(_settings)))
