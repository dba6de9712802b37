"""Wake held requests when the group that they wait for has changed, through any controller.

Controllers do not know each other. While requests are held here, the store is asked for the current
versions of their groups: at once after a notice, and periodically. PostgreSQL sends notices, and is
then polled rarely; etcd and a file are polled ten times a second.

Invariant: a request that knows an older version than the store's is woken by the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from eruca.contract.errors import ArbiterUnavailableError
from eruca_chassis.admission.held import HeldPlace, Waking
from eruca_chassis.loops import BackgroundLoop
from eruca_controller.store.seam import GroupStore

POLL_SECONDS: Final = 0.1  # between two looks; the longest delay of a change without a notice
NOTICED_POLL_SECONDS: Final = 5.0  # the same while notices arrive
REST_SECONDS: Final = 0.005  # many notices at once cost one look
IDLE_SECONDS: Final = 3_600.0  # while no request is held

_log = structlog.get_logger()


class GroupWatch:
    """Watches the groups that held requests wait for.

    Args:
        store: Tells the current versions.
        poll_seconds: Returns the time between two looks.
    """

    def __init__(self, store: GroupStore, *, poll_seconds: Callable[[], float]) -> None:
        self.woken_count = 0  # requests, since the start
        self._store = store
        self._poll_seconds = poll_seconds
        self._waiting: dict[str, dict[HeldPlace, str | None]] = {}
        self._waking = Waking()
        self._is_blind = False  # the store was out of reach at the last look
        self._loop = BackgroundLoop(
            "watch", self.step, period_seconds=IDLE_SECONDS, rest_seconds=REST_SECONDS
        )

    def start(self) -> None:
        """Start looking."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop looking."""
        await self._loop.stop()

    def wake(self) -> None:
        """Look now: something has changed, or may have."""
        self._loop.wake()

    def add(self, broker_name: str, place: HeldPlace, version: str | None) -> None:
        """Wake *place* once the group has another version than *version*; None: no row."""
        self._waiting.setdefault(broker_name, {})[place] = version
        self._loop.wake()  # it may have changed since it was read, and a notice may have come

    def remove(self, broker_name: str, place: HeldPlace) -> None:
        """Watch for *place* no longer."""
        places = self._waiting[broker_name]
        del places[place]
        if not places:
            del self._waiting[broker_name]

    async def step(self) -> float:
        """Look once, and wake the requests that have news; return the time to the next look."""
        if not self._waiting:
            return IDLE_SECONDS
        try:
            versions = await self._store.versions(list(self._waiting))
        except ArbiterUnavailableError as error:
            if not self._is_blind:  # log it once, not with every look
                _log.warning("changes of groups are not seen", why=error.detail)
            self._is_blind = True
            return self._poll_seconds()
        self._is_blind = False
        news = [
            place
            for name, places in self._waiting.items()
            for place, version in places.items()
            if version != versions.get(name)
        ]
        self.woken_count += len(news)
        self._waking.wake(news)
        return self._poll_seconds()
