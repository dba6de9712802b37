"""The thread that renews the sessions while a handler blocks the event loop.

An async handler that blocks stops everything else on the loop, heartbeats included. This thread
sends only heartbeats. No message is pulled, committed or sent back until the loop runs again. If
the loop has not run for a sixth of a session, the thread repeats the loop's last heartbeat to each
broker. It stores the renewal where the session's own clock reads it.

A hanging process must not hold its queues for ever. If a handler has blocked the loop for longer
than ``consume_timeout_seconds``, the thread stops renewing. Then the sessions expire, here earlier
than at the brokers, and other members take over.

Invariants:

1. A session never lasts longer here than at its broker: its time starts when an answered heartbeat
   was sent. A session that has ended by its own clock, for example after SIGSTOP, is not renewed. A
   late answer does not restore it.
2. If a queue's lock turns out to be lost, no further batch of that queue begins. Threads may take
   batches while the loop is blocked.
3. After :meth:`Standby.close` has returned, no heartbeat is under way and none will be sent. A
   heartbeat after leaving would join the group again.

Crash rule: the thread is a daemon. It ends with the process, and when its event loop is closed. It
cannot help if a handler also holds the interpreter's lock.

Concurrency rule: the thread shares three things with the event loop: a copy of the last renewals,
the sessions' numbers, and the queues' flags. Each is stored atomically. If both renew at once, the
session may count from the earlier renewal, which is safe. The thread's connections are its own and
last for one round. They do not use a transport that the program gave the client.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from eruca.aio.cluster.following import FollowingTransport
from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.http.clients import http1_transport
from eruca.aio.http.credentials import Credentials
from eruca.contract.errors import ErucaError
from eruca.contract.groups import Heartbeat, MemberAnswer
from eruca.core.consuming.session import BEATS_PER_SESSION, Session
from eruca.core.loop_watch import LoopState, LoopWatch
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.master_book import MasterBook

LOOKS_PER_SESSION: Final = 6
ANSWER_SECONDS_MAX: Final = 3.0  # for a heartbeat; leaving waits for those under way

_logger = logging.getLogger(__name__)


class Renewal(NamedTuple):
    """The last heartbeat that a broker answered."""

    broker_name: str
    session: Session
    url: str
    heartbeat: Heartbeat
    tokens: Mapping[MessageQueue, int]  # of the locks it named

    def lost(self, answer: MemberAnswer) -> dict[MessageQueue, int]:
        """Return its locks that are lost according to the answer."""
        gone = {
            MessageQueue(ref.topic, self.broker_name, ref.queue_id) for ref in answer.lost_locks
        }
        return {queue: token for queue, token in self.tokens.items() if queue in gone}


class Standby:
    """One consumer's thread.

    Args:
        api: The member's requests.
        credentials: For its requests; used in the thread, by its own event loop.
        book: The masters that the client knows.
        session_seconds: The intended length of sessions.
        limit: Seconds for which a handler may block the event loop.
        renewals: Returns the sessions and the data to renew them; called in the thread.
        begun_at: Returns when the event loop last began a handler; called in the thread.
        on_locks_gone: Called, in the thread, with queues whose locks, with these tokens, are lost.
        on_failure: Called, by the event loop, with an internal error.
    """

    def __init__(
        self,
        api: GroupApi,
        *,
        credentials: Credentials,
        book: MasterBook,
        session_seconds: float,
        limit: float,
        renewals: Callable[[], list[Renewal]],
        begun_at: Callable[[], float],
        on_locks_gone: Callable[[Mapping[MessageQueue, int]], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._api = api
        self._credentials = credentials
        self._book = book
        self._look_seconds = session_seconds / LOOKS_PER_SESSION
        self._limit = limit
        self._watch = LoopWatch(limit)
        self._renewals = renewals
        self._begun_at = begun_at
        self._on_locks_gone = on_locks_gone
        self._on_failure = on_failure
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = threading.Event()
        self._ended = asyncio.Event()
        self._is_given_up = False  # and that was logged

    def start(self) -> None:
        """Start to watch the running event loop."""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._run, name="eruca-heartbeats", daemon=True).start()

    async def close(self) -> None:
        """Return when no heartbeat is under way and none will be sent."""
        self._is_closing.set()
        if self._loop is not None:
            await self._ended.wait()

    def _run(self) -> None:
        try:
            while not self._is_closing.wait(self._look_seconds) and self._look():
                pass
        except Exception as error:  # the outermost frame of a thread
            self._tell(self._on_failure, error)
        finally:
            self._tell(self._ended.set)

    def _look(self) -> bool:
        """Do the work that is due; return whether to continue."""
        now = time.monotonic()
        state = self._watch.look(now, self._begun_at())
        if state is LoopState.TURNING:
            self._is_given_up = False
            self._watch.ask(now)
            return self._tell(self._watch.answer)
        if state is LoopState.LATE:
            if due := [renewal for renewal in self._renewals() if _is_due(renewal.session, now)]:
                asyncio.run(self._renew_all(due))
        elif not self._is_given_up:
            self._is_given_up = True
            _logger.error(
                "a handler has blocked the event loop for longer than %g s: the sessions are"
                " not renewed any more, and their queues go to other members",
                self._limit,
            )
        return True

    async def _renew_all(self, renewals: list[Renewal]) -> None:
        """Renew each session in its time, independent of the other brokers."""
        # A copy for the round: the client's book belongs to another thread.
        transport = FollowingTransport(
            http1_transport(self._credentials), self._book.copy(), on_redirect=_ignored
        )
        api = self._api.over(transport)
        try:
            await asyncio.gather(*(self._renew(api, renewal) for renewal in renewals))
        finally:
            await transport.close()

    async def _renew(self, api: GroupApi, renewal: Renewal) -> None:
        session = renewal.session
        sent_at = time.monotonic()
        try:
            answer = await api.beat(
                renewal.url,
                renewal.heartbeat,
                timeout=min(self._look_seconds, ANSWER_SECONDS_MAX),
            )
        except ErucaError as error:
            _logger.info("broker %s did not renew the session: %s", renewal.broker_name, error)
            return
        if lost := renewal.lost(answer):
            self._on_locks_gone(lost)
        if not session.is_over(time.monotonic()):
            session.renew(sent_at, answer.session_seconds)

    def _tell(self, callback: Callable[..., object], *arguments: Any) -> bool:  # noqa: ANN401
        """Schedule a call in the event loop; return whether the loop still exists."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            return False
        return True


def _ignored(_url: str) -> None:
    """Leave a redirect to the event loop, whose next request finds it as well."""


def _is_due(session: Session, now: float) -> bool:
    return not session.is_over(now) and session.age(now) >= session.seconds / BEATS_PER_SESSION
