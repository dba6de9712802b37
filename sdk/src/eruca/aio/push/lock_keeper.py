"""Request queue locks at one broker, until they are granted or not needed any more.

The broker holds a lock request until it can grant a lock. If the wanted queues change, requests for
too many queues are cancelled. But a cancelled or unanswered request may have been granted
nevertheless. So its queues are *uncertain*: they are requested again until an answer arrives, and
unneeded locks are released at once. A lock that is granted again to its holder stays the same lock.
So a queue is never requested while its release is unanswered: a late release would take away a lock
that we believe to hold.

A queue that the broker cannot lock is set aside, for example because its topic was deleted. The
others are requested without it, and it is retried from time to time.

Queues that were dropped without a release are uncertain as well, for two reasons:

- A session ends earlier by our own clock than at the broker. A heartbeat in between renews it
  there, with locks that no part of this client knows any more.
- A reset of the group's offsets gives a lock a new token. The queue is lost under its old token and
  still ours under the new one.

Such locks would exclude all other members.

When a session ends, the requests made in it are cancelled. A late answer may report a lock that
another member has since received, while we already have another session.

Uncertain queues stay uncertain if the broker says that we are not a member. A restarted broker says
so, too, although it still has our former locks, and our next heartbeat renews them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.cluster.outages import Outages
from eruca.aio.pulling.queues_aside import QueuesAside
from eruca.aio.push.background import Background
from eruca.contract.errors import (
    ErucaError,
    MemberNotFoundError,
    RefusedError,
    RequestError,
)
from eruca.contract.groups import GrantedLock, QueueRelease, WantedQueue
from eruca.contract.limits import LOCK_COUNT_MAX
from eruca.core.consuming.refused_queues import refused_places
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.pauses import doubled

HOLD_SECONDS: Final = 20.0  # one held request; within WAIT_SECONDS_MAX
PAUSE_SECONDS: Final = 0.2  # after a failure; doubles
PAUSE_SECONDS_MAX: Final = 3.0

_logger = logging.getLogger(__name__)


class LockKeeper:
    """The locks wanted at one broker.

    Args:
        broker_name: The broker.
        api: The member's requests.
        url_of: Returns a broker's URL; raises ErucaError if there is none.
        is_member: Returns whether there is a session; without one there are no locks.
        on_granted: Called with the granted locks that are wanted.
        on_doubt: Called with the broker if it says we are not a member.
        background: Runs the requests.
    """

    def __init__(
        self,
        broker_name: str,
        api: GroupApi,
        url_of: Callable[[str], str],
        *,
        is_member: Callable[[str], bool],
        on_granted: Callable[[dict[MessageQueue, GrantedLock]], None],
        on_doubt: Callable[[str], None],
        background: Background,
    ) -> None:
        self._name = broker_name
        self._api = api
        self._url_of = url_of
        self._is_member = is_member
        self._on_granted = on_granted
        self._on_doubt = on_doubt
        self._background = background
        self._wanted: frozenset[MessageQueue] = frozenset()
        self._uncertain: set[MessageQueue] = set()
        self._unwelcome: dict[MessageQueue, GrantedLock] = {}  # to be released
        self._releasing: asyncio.Task[None] | None = None
        self._aside = QueuesAside(self._ask)
        self._asking: dict[asyncio.Task[None], frozenset[MessageQueue]] = {}
        self._failure_count = 0
        self._outages = Outages(
            _logger,
            failed="requesting locks at broker %s failed; retrying: %s",
            over="requesting locks at broker %s works again",
        )
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False

    def want(self, queues: Collection[MessageQueue]) -> None:
        """Request these queues, and no others."""
        self._wanted = frozenset(queues)
        for task, asked in self._asking.items():
            if asked - self._wanted - self._uncertain:
                task.cancel()
        self._ask()

    def doubt(self, queues: Collection[MessageQueue]) -> None:
        """Find out whether the broker still counts queues as ours that were dropped unreleased."""
        self._uncertain |= set(queues)
        self._ask()

    def end_session(self) -> None:
        """Cancel the requests of an ended session; its locks have ended as well."""
        for task in self._asking:
            task.cancel()
        if self._releasing is not None:
            self._releasing.cancel()
        self._uncertain |= self._unwelcome.keys()
        self._unwelcome.clear()

    def close(self) -> None:
        """Request nothing more; leaving the group releases uncertain locks."""
        self._is_closed = True
        self._aside.close()
        if self._pause is not None:
            self._pause.cancel()
        for task in self._asking:
            task.cancel()

    def _ask(self) -> None:
        if self._is_closed or self._pause is not None or not self._is_member(self._name):
            return
        if self._unwelcome and self._releasing is None:
            locks = list(self._unwelcome.values())[:LOCK_COUNT_MAX]
            self._releasing = self._background.start(self._release(locks), "eruca unwanted locks")
            self._releasing.add_done_callback(self._on_released)
        not_now = self._aside.queues.union(self._unwelcome, *self._asking.values())
        unwanted = self._uncertain - self._wanted - not_now
        for queues, wait in ((self._wanted - not_now, HOLD_SECONDS), (unwanted, 0.0)):
            asked = sorted(queues)
            for start in range(0, len(asked), LOCK_COUNT_MAX):
                part = frozenset(asked[start : start + LOCK_COUNT_MAX])
                task = self._background.start(self._request(part, wait), "eruca locks")
                self._asking[task] = part
                task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        asked = self._asking.pop(task)
        if task.cancelled():
            self._uncertain |= asked
        if not self._is_closed:
            self._ask()

    def _note_failure(self, error: ErucaError) -> None:
        self._outages.failed(self._name, error)
        if isinstance(error, MemberNotFoundError):
            self._on_doubt(self._name)
        if self._pause is None and not self._is_closed:
            seconds = doubled(PAUSE_SECONDS, self._failure_count, PAUSE_SECONDS_MAX)
            seconds = max(seconds, error.retry_after_seconds or 0.0)
            self._pause = asyncio.get_running_loop().call_later(seconds, self._end_pause)
        self._failure_count += 1

    def _end_pause(self) -> None:
        self._pause = None
        self._ask()

    async def _request(self, queues: frozenset[MessageQueue], wait: float) -> None:
        asked = sorted(queues)
        wanted = [WantedQueue(topic=queue.topic, queue_id=queue.queue_id) for queue in asked]
        try:
            answer = await self._api.lock(self._url_of(self._name), wanted, wait=wait)
        except ErucaError as error:
            if places := refused_places(error, len(asked)):
                self._set_aside([asked[place] for place in places], error)
            else:
                self._uncertain |= queues
                self._note_failure(error)
            return
        self._failure_count = 0
        self._outages.answered(self._name)
        self._uncertain -= queues
        granted = {
            MessageQueue(lock.topic, self._name, lock.queue_id): lock for lock in answer.locks
        }
        welcome = {queue: lock for queue, lock in granted.items() if queue in self._wanted}
        self._wanted -= frozenset(welcome)
        if welcome:
            self._on_granted(welcome)
        self._unwelcome |= {q: lock for q, lock in granted.items() if q not in welcome}

    def _set_aside(self, queues: Collection[MessageQueue], error: ErucaError) -> None:
        """Set queues aside until the next look; the refused request has changed nothing."""
        _logger.info("%d queues cannot be locked at broker %s: %s", len(queues), self._name, error)
        self._aside.add(queues)

    async def _release(self, locks: Sequence[GrantedLock]) -> None:
        releases = [
            QueueRelease(topic=lock.topic, queue_id=lock.queue_id, token=lock.token)
            for lock in locks
        ]
        queues = {MessageQueue(lock.topic, self._name, lock.queue_id) for lock in locks}
        try:
            await self._api.release(self._url_of(self._name), releases)
        except (RequestError, RefusedError) as error:  # these tokens are outdated
            self._uncertain |= queues
            self._note_failure(error)
        except ErucaError as error:
            self._note_failure(error)
            return  # retried after the pause
        for queue in queues:
            self._unwelcome.pop(queue, None)

    def _on_released(self, _task: asyncio.Task[None]) -> None:
        self._releasing = None
        if not self._is_closed:
            self._ask()
