"""Warnings that a start position is not used, because the group began before."""

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

_SAME: Final = timedelta(milliseconds=1)  # brokers keep times in whole milliseconds

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
    """Warn if *start* means nothing, because the group exists and was told another.

    Asked of brokers before the member joins, which makes the group. One that does not answer is
    left out: joining says so.
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
                "start=%s is not used: group %s exists already. It goes on where it stands, and"
                " begins a topic that is new to it at %s. To have it begin again at %s, stop its"
                " consumers and run: eruca group reset %s --topic %s --to %s",
                *(asked, group, config.start, asked, group, topic, asked),
            )
            return


def warn_of_offsets_before_start(
    group: str, queue: MessageQueue, offset: int, start: StartPosition | datetime
) -> None:
    """Warn that a pull consumer goes on at a committed offset, and not at *start*."""
    asked = start.isoformat() if isinstance(start, datetime) else start
    _logger.warning(
        "start=%s is not used: group %s has offsets already. It goes on where it stands, at offset"
        " %d of %s. To have it begin again at %s, stop its consumers and run: eruca group reset %s"
        " --topic %s --to %s",
        *(asked, group, offset, queue, asked, group, queue.topic, asked),
    )


def _is_same(one: str | datetime, other: str | datetime) -> bool:
    if isinstance(one, datetime) and isinstance(other, datetime):
        return abs(one - other) <= _SAME
    return one == other
