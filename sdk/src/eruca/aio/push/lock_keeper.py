"""Asking one broker for queue locks, until they are granted or not wanted any more.

What is wanted is asked for in a request that the broker holds until something can be granted. When
what is wanted changes, requests that ask for too much are given up; but one that was given up, or
not answered, may have been granted all the same. So its queues are *uncertain*: they are asked for
again until an answer comes, and what is granted and not wanted is released at once. A lock that is
granted again to its holder stays the same lock. So nothing is asked for again before its release
has been answered: that may reach the broker late, and would take away what we believe to hold.

A queue that the broker cannot lock, its topic having been deleted, say, is set aside: the others
are asked for without it, and it is asked for again now and then.

Queues that were given up and not released are uncertain as well. By our own clock a session ends
before it does at the broker; a heartbeat in between renews it there, with locks that nobody here
knows of any more. And a reset of the group's offsets gives a lock a new token: what is lost by the
old one is still ours. Were such locks left alone, they would keep everybody else out.

What was asked for in a session that is over is given up with it: a lock granted in it may be
somebody else's by the time that a late answer tells of it, when there may be another session.

What is uncertain stays so when the broker says that we are no member: one that has restarted says
it, too, though it has our locks of before, which our next heartbeat renews.
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
        broker_name: Which.
        api: The member's requests.
        url_of: Tells a broker's URL; raises ErucaError if there is none.
        is_member: Tells whether there is a session there; without one there are no locks.
        on_granted: Called with what was granted of what was wanted.
        on_doubt: Called with the broker if it says we are no member.
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
            failed="no locks at broker %s for now: %s",
            over="there are locks at broker %s again",
        )
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False

    def want(self, queues: Collection[MessageQueue]) -> None:
        """Ask for these, and for no others."""
        self._wanted = frozenset(queues)
        for task, asked in self._asking.items():
            if asked - self._wanted - self._uncertain:
                task.cancel()
        self._ask()

    def doubt(self, queues: Collection[MessageQueue]) -> None:
        """Find out whether the broker thinks we hold these, which were given up, not released."""
        self._uncertain |= set(queues)
        self._ask()

    def end_session(self) -> None:
        """Give up what was asked for: the session is over, and so are the locks granted in it."""
        for task in self._asking:
            task.cancel()
        if self._releasing is not None:
            self._releasing.cancel()
        self._uncertain |= self._unwelcome.keys()
        self._unwelcome.clear()

    def close(self) -> None:
        """Ask for nothing more; leaving the group releases what is uncertain."""
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
        """Ask for no more of these until the next look; the request has changed nothing."""
        _logger.info("%d queues at broker %s are refused: %s", len(queues), self._name, error)
        self._aside.add(queues)

    async def _release(self, locks: Sequence[GrantedLock]) -> None:
        releases = [
            QueueRelease(topic=lock.topic, queue_id=lock.queue_id, token=lock.token)
            for lock in locks
        ]
        queues = {MessageQueue(lock.topic, self._name, lock.queue_id) for lock in locks}
        try:
            await self._api.release(self._url_of(self._name), releases)
        except (RequestError, RefusedError) as error:  # these are not the tokens any more
            self._uncertain |= queues
            self._note_failure(error)
        except ErucaError as error:
            self._note_failure(error)
            return  # it is repeated after the pause
        for queue in queues:
            self._unwelcome.pop(queue, None)

    def _on_released(self, _task: asyncio.Task[None]) -> None:
        self._releasing = None
        if not self._is_closed:
            self._ask()
