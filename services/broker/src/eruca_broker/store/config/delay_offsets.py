"""``config/delayOffset.json``: RocketMQ's delivery progress of each delay level.

RocketMQ delivers a level's queue in order and stores its position. Eruca knows each pending
message, and writes the first one of each level for RocketMQ (:mod:`.handover`).

When read, the file records RocketMQ's deliveries: everything before those offsets. Eruca's own file
is marked and not read: the events contain all of it. Unlike the file, they are truncated with the
log, by a power failure or a restored backup. The file would then name offsets that have been
assigned to other messages. For the same reason RocketMQ's file is replaced once it is imported.

Source: RocketMQ 5.3, ``ScheduleMessageService``, ``DelayOffsetSerializeWrapper``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from eruca_broker.core.consume_queue_entry import Entries
from eruca_broker.core.offset_search import partition_point
from eruca_broker.store.config.config_snapshots import DELAY_OFFSETS, DIRECTORY, MARK
from eruca_broker.store.config.rocketmq_json import (
    UnreadableConfigError,
    read_object,
    read_object_or_backup,
)
from eruca_broker.store.queues.consume_queue import ConsumeQueue

logger = structlog.get_logger(__name__)

_PATH: Final = Path(DIRECTORY, DELAY_OFFSETS)
_ENTRIES_PER_STEP: Final = 65_536


def load(
    directory: Path, *, only_foreign: bool = False, was_rocketmqs: bool = True
) -> dict[int, int]:
    """Return the queue offset up to which each level has been delivered; omit unknown levels.

    Args:
        directory: The store's directory.
        only_foreign: Ignore a file that Eruca itself wrote.
        was_rocketmqs: Whether RocketMQ has used the store since Eruca did. The file's content then
            exists nowhere else, and damage is an error.

    Raises:
        UnreadableConfigError: The file is damaged, and may be RocketMQ's.
    """
    path = directory / _PATH
    try:
        content = read_object_or_backup(path) if was_rocketmqs else read_object(path)
        if not content or (only_foreign and content.items() >= MARK.items()):
            return {}
        try:
            return {int(level): int(offset) for level, offset in content["offsetTable"].items()}
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise UnreadableConfigError(f"{path}: not as RocketMQ writes it: {error!r}") from error
    except UnreadableConfigError as error:
        if was_rocketmqs:
            raise
        logger.warning("a config file is damaged and is rebuilt from the log", fault=str(error))
        return {}


def steps(queue: ConsumeQueue, first: int) -> Iterator[Entries]:
    """Yield a queue's entries from *first* on, in blocks."""
    while first < queue.max_offset:
        entries = queue.entries(first, _ENTRIES_PER_STEP)
        first += len(entries)
        yield entries


def first_since(queue: ConsumeQueue, log_offset: int) -> int:
    """Return the queue offset of the first entry whose record is at *log_offset* or later."""

    def is_before(queue_offset: int) -> bool:
        return queue.entry(queue_offset).log_offset < log_offset

    return partition_point(queue.min_offset, queue.max_offset, is_before)
