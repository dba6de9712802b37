"""Watch the group's members with requests that coordinators hold until a change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.cluster.outages import Outages
from eruca.aio.push.background import Background
from eruca.contract.errors import ErucaError
from eruca.contract.groups import Member

HOLD_SECONDS: Final = 25.0  # one held request; within WAIT_SECONDS_MAX
_AGAIN_SECONDS: Final = 1.0  # after a failure, or a request that was not held

_logger = logging.getLogger(__name__)


class MembersWatch:
    """The latest member lists of some brokers.

    Args:
        api: The member's requests.
        url_of: Returns a broker's URL; raises ErucaError if there is none.
        on_change: Called when a list is new or has changed.
        background: Runs the requests.
    """

    def __init__(
        self,
        api: GroupApi,
        url_of: Callable[[str], str],
        on_change: Callable[[], None],
        background: Background,
    ) -> None:
        self._api = api
        self._url_of = url_of
        self._on_change = on_change
        self._background = background
        self._lists: dict[str, list[Member]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._outages = Outages(
            _logger,
            failed="the members at broker %s are unknown now: %s",
            over="the members at broker %s are known again",
        )

    def members(self, broker_name: str) -> list[Member] | None:
        """Return the group's members from a broker's last answer; None before its first one."""
        return self._lists.get(broker_name)

    def follow(self, broker_names: Collection[str]) -> None:
        """Watch the lists of these brokers, and no others."""
        for name in broker_names:
            if name not in self._tasks:
                self._tasks[name] = self._background.start(
                    self._watch(name), f"eruca members at {name}"
                )
        for name in set(self._tasks) - set(broker_names):
            self._tasks.pop(name).cancel()
            self._lists.pop(name, None)
            self._outages.forget(name)

    async def _watch(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        etag: str | None = None
        while True:
            asked_at = loop.time()
            try:
                found = await self._api.members(
                    self._url_of(name), etag=etag, wait=HOLD_SECONDS if etag else 0.0
                )
            except ErucaError as error:
                # Its last answer still counts, because there is no better one.
                self._outages.failed(name, error)
                etag = None
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            self._outages.answered(name)
            if found is not None:
                answer, etag = found
                self._lists[name] = answer.members
                self._on_change()
            else:  # held for the full time, unless a proxy answered
                await asyncio.sleep(asked_at + _AGAIN_SECONDS - loop.time())
