"""Warnings that a start position is ignored because the group already exists."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, Literal

from eruca.aio.cluster.group_api import group_path
from eruca.aio.cluster.requests import ask
from eruca.aio.http.transport import HttpTransport
from eruca.contract.groups import GroupConfig
from eruca.core.consuming.pull_positions import StartPosition
from eruca.core.messages.message_queue import MessageQueue

_SAME: Final = timedelta(milliseconds=1)  # brokers store times in whole milliseconds

_logger = logging.getLogger(__name__)


async def warn_of_unused_start(
    transport: HttpTransport,
    urls: Collection[str],
    group: str,
    topics: Collection[str],
    start: Literal["earliest", "latest"] | datetime | None,
    *,
    timeout: float,
) -> None:
    """Warn if *start* is ignored because the group exists and has another start.

    Call this before the member joins, because joining creates the group. A broker that does not
    answer is skipped: joining reports it.
    """
    if start is None:
        return
    asking = [
        ask(GroupConfig, transport, "GET", url, group_path(group), timeout=timeout) for url in urls
    ]
    for config in await asyncio.gather(*asking, return_exceptions=True):
        if isinstance(config, GroupConfig) and not _is_same(config.start, start):
            asked = start.isoformat() if isinstance(start, datetime) else start
            topic = min(topics)
            _logger.warning(
                "start=%s is ignored: group %s already exists. It continues at its offsets, and"
                " starts a new topic at %s. To start again at %s, stop its consumers and run:"
                " eruca group reset %s --topic %s --to %s",
                *(asked, group, config.start, asked, group, topic, asked),
            )
            return


def warn_of_offsets_before_start(
    group: str, queue: MessageQueue, offset: int, start: StartPosition | datetime
) -> None:
    """Warn that a pull consumer continues at a committed offset and ignores *start*."""
    asked = start.isoformat() if isinstance(start, datetime) else start
    _logger.warning(
        "start=%s is ignored: group %s already has offsets. It continues at offset %d of %s. To"
        " start again at %s, stop its consumers and run: eruca group reset %s --topic %s --to"
        " %s",
        *(asked, group, offset, queue, asked, group, queue.topic, asked),
    )


def _is_same(one: str | datetime, other: str | datetime) -> bool:
    if isinstance(one, datetime) and isinstance(other, datetime):
        return abs(one - other) <= _SAME
    return one == other
