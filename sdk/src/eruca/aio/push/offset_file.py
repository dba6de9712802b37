"""Broadcasting: the client's offsets, in a file of its own.

``DIRECTORY/CLIENT_ID/GROUP/offsets.json``::

    {"offsets": [{"topic": "flights", "broker_name": "broker-a", "queue_id": 0, "offset": 17,
                  "topic_id": "9f2c51d07ab3e846-1044"}, …]}

An offset is valid only for the topic id beside it. A topic that was deleted and created again, or
that is in another log, has other messages at the same offsets. Files of earlier versions contain no
topic id. Their offsets are used for the current topic, with a warning.

Crash rule: the new file is written and flushed beside the old one. Then the old one is renamed to
``.bak``, and the new one takes its place. If the file is unreadable, ``.bak`` is read. If both are
unreadable, the client starts like a new one.

Source: RocketMQ 5.3, ``LocalFileOffsetStore``; its file has Java objects for keys.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from urllib.parse import quote

import msgspec

from eruca.aio.http.transport import UNREADABLE
from eruca.aio.local_calls import to_its_end
from eruca.aio.push.held_queue import HeldQueue
from eruca.contract.errors import ClientError, ValidationError
from eruca.core.messages.message_queue import MessageQueue

_logger = logging.getLogger(__name__)


class _Entry(msgspec.Struct):
    topic: str
    broker_name: str
    queue_id: int
    offset: int
    topic_id: str | None = None  # None: unknown


class _Content(msgspec.Struct):
    offsets: list[_Entry]


def offsets_directory(given: str | None) -> Path:
    """Return the directory of offset files: *given*, else ``ERUCA_OFFSETS_DIR``, else at home."""
    return Path(given or os.environ.get("ERUCA_OFFSETS_DIR") or Path.home() / ".eruca" / "offsets")


class OffsetFile:
    """The offsets of one client in one group; the constructor reads the file."""

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        folder = directory / quote(client_id, safe="@") / quote(group, safe="")
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ValidationError(
                f"offsets.directory: {folder} cannot be created: {error}",
                fix="set offsets.directory or ERUCA_OFFSETS_DIR",
            ) from error
        self._lock = asyncio.Lock()
        self.path = folder / "offsets.json"
        self._backup = folder / "offsets.json.bak"
        entries = _read(self.path) or _read(self._backup) or []
        queues = [MessageQueue(one.topic, one.broker_name, one.queue_id) for one in entries]
        self.offsets = {queue: one.offset for queue, one in zip(queues, entries, strict=True)}
        self._topic_ids = {queue: one.topic_id for queue, one in zip(queues, entries, strict=True)}

    def forget_another(self, queue: MessageQueue, topic_id: str | None) -> bool:
        """Drop a queue's offset if it belongs to another topic id; return whether it was dropped.

        Args:
            queue: The queue.
            topic_id: The topic's current id; None: its broker does not provide it.
        """
        known, offset = self._topic_ids.get(queue), self.offsets.get(queue)
        if topic_id is None:
            return False
        self._topic_ids[queue] = topic_id
        if offset is None or known == topic_id:
            return False
        if known is None:
            _logger.warning(
                "%s does not contain the topic id for offset %d of %s: using the offset for the"
                " current topic",
                self.path,
                offset,
                queue,
            )
            return False
        _logger.warning(
            "the topic of %s was deleted and created again, or its broker has another log"
            " (topic id %s, expected %s): messages of the former topic from offset %d are lost;"
            " reading the current topic from its first message",
            queue,
            topic_id,
            known,
            offset,
        )
        del self.offsets[queue]
        return True

    def note(self, held: HeldQueue) -> None:
        """Keep the offset of a queue that is not read any more; the next store writes it."""
        if held.is_begun:
            self.offsets[held.queue] = held.process.commit_offset

    async def store(self, offsets: dict[HeldQueue, int]) -> None:
        """Store these offsets, and keep those that were stored before.

        Raises:
            ClientError: The file cannot be written.
        """
        async with self._lock:  # one complete write at a time: they use the same names
            self.offsets |= {held.queue: offset for held, offset in offsets.items()}
            entries = [
                _Entry(*queue, offset, self._topic_ids.get(queue))
                for queue, offset in sorted(self.offsets.items())
            ]
            try:
                content = msgspec.json.encode(_Content(entries))
                writing = asyncio.get_running_loop().run_in_executor(None, self._write, content)
                await to_its_end(writing)
            except OSError as error:
                raise ClientError(f"{self.path} cannot be written: {error}") from error
            for held, offset in offsets.items():
                held.committed = offset

    def _write(self, content: bytes) -> None:
        fresh = self.path.with_suffix(".new")
        with open(fresh, "wb", opener=_private) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            self.path.replace(self._backup)
        fresh.replace(self.path)


def _private(path: str, flags: int) -> int:
    """Open a file that only this user can read, because names of topics and groups are private."""
    return os.open(path, flags, 0o600)


def _read(path: Path) -> list[_Entry] | None:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_Content)
    except FileNotFoundError:
        return None
    except (OSError, *UNREADABLE) as error:
        _logger.warning("%s cannot be read: %s", path, error)
        return None
    return content.offsets
