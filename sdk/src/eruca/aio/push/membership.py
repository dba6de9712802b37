"""Membership of the group at every broker that has queues of its topics.

A separate task sends each broker's heartbeats, so an unreachable broker delays no other. A
heartbeat joins the group or renews the session. Its answer lists the lost locks. When a session
ends by our own clock, all queues of that broker are lost. The session cannot have ended earlier at
the broker.

A heartbeat names the locks that we believe to hold, and its answer names those that are lost. If
there are more locks than one heartbeat can name, several consecutive heartbeats name them.

The last answered heartbeat of each broker is kept, so that a thread can repeat it while the event
loop is blocked; see :mod:`eruca.aio.push.standby`. It is withdrawn when the session ends, is
refused or is left.

A cancelled heartbeat may still arrive, and later than the requests sent after it. So leaving waits
for a heartbeat under way, and also leaves brokers that have not answered one. Otherwise a member
that has left would join again and receive queues that nobody reads.

A group's coordinators know when the group first met each topic. Brokers that meet the topic later
start where the coordinator did. So joining visits the brokers in the order of their names,
coordinators first. Each heartbeat passes on the times from the earlier answers.

A broker of an earlier version refuses a heartbeat with a field that it does not know. The field
``handling`` only informs, so it is left out for such a broker, and the session is kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.cluster.outages import Outages
from eruca.aio.http.transport import ConnectTimeoutError, NotConnectedError
from eruca.aio.push.background import Background
from eruca.aio.push.standby import Renewal
from eruca.contract.errors import ErucaError, RefusedError, RequestError
from eruca.contract.groups import Heartbeat, LockToken, MemberAnswer, MemberHandling
from eruca.contract.limits import LOCK_COUNT_MAX
from eruca.core.consuming.session import BEATS_PER_SESSION, Session
from eruca.core.messages.message_queue import MessageQueue

AGAIN_SECONDS: Final = 1.0  # after an unanswered heartbeat
LATE_SECONDS: Final = 1.0  # timer delay above which a warning is logged
LEAVE_SECONDS: Final = 3.0  # for a broker's answer to leaving
UNTOLD_SECONDS: Final = 600.0  # until a broker that refused `handling` may have been upgraded

_HANDLING: Final = "/body/handling"  # JSON pointer in a refusal
_NOT_JOINED: Final = (RequestError, RefusedError, NotConnectedError, ConnectTimeoutError)

_logger = logging.getLogger(__name__)


class Membership:
    """One member's sessions.

    Args:
        api: The member's requests.
        url_of: Returns a broker's URL; raises ErucaError if there is none.
        heartbeat: The content of every heartbeat, except locks and the times of first meetings.
        locks_at: Returns the locks held at a broker, by queue.
        on_beat: Called when a broker has answered.
        on_locks_gone: Called with queues whose locks, with these tokens, are lost.
        on_over: Called with a broker whose session has ended.
        on_refused: Called with an error that a retry does not fix.
        tasks: Runs background tasks.
        handling: Returns what the member's handlers did lately; None: heartbeats do not tell.
    """

    def __init__(
        self,
        api: GroupApi,
        url_of: Callable[[str], str],
        heartbeat: Heartbeat,
        *,
        locks_at: Callable[[str], Mapping[MessageQueue, int]],
        on_beat: Callable[[], None],
        on_locks_gone: Callable[[Mapping[MessageQueue, int]], None],
        on_over: Callable[[str], None],
        on_refused: Callable[[ErucaError], None],
        tasks: Background,
        handling: Callable[[], MemberHandling] | None = None,
    ) -> None:
        self._api = api
        self._url_of = url_of
        self._heartbeat = heartbeat
        self._locks_at = locks_at
        self._on_beat = on_beat
        self._on_locks_gone = on_locks_gone
        self._on_over = on_over
        self._on_refused = on_refused
        self._tasks = tasks
        self._handling = handling
        self._sessions: dict[str, Session] = {}
        self._beating: dict[str, asyncio.Task[MemberAnswer]] = {}  # heartbeats under way
        self._unanswered: set[str] = set()  # brokers that may have received a heartbeat
        self._renewals: dict[str, Renewal] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._hurry: dict[str, asyncio.Event] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._topics_since: dict[str, datetime] = {}
        self._disabled: set[str] = set()
        # brokers that refused `handling`, and until when heartbeats to them omit it
        self._untold_until: dict[str, float] = {}
        self._outages = Outages(
            _logger,
            failed="broker %s did not answer a heartbeat; retrying: %s",
            over="broker %s answers heartbeats again",
            # the program has no other sign that its consumer receives nothing
            level=logging.WARNING,
        )

    @property
    def brokers(self) -> list[str]:
        """The brokers at which this consumer is a member, or tries to join."""
        return list(self._sessions)

    @property
    def disabled(self) -> frozenset[str]:
        """The brokers where consumption is switched off for the group."""
        return frozenset(self._disabled)

    def renewals(self) -> list[Renewal]:
        """Return the data to renew each live session; may be called in any thread."""
        return list(self._renewals.values())

    def session(self, broker_name: str) -> Session:
        """Return the session at a broker."""
        session = self._sessions.get(broker_name)
        if session is None:
            session = self._sessions[broker_name] = Session(self._heartbeat.session_seconds)
        return session

    def is_alive(self, broker_name: str) -> bool:
        """Tell whether we are a member at a broker, as far as we know."""
        session = self._sessions.get(broker_name)
        return session is not None and not session.is_over(time.monotonic())

    async def join(self, broker_names: Collection[str]) -> None:
        """Join at all of these brokers; retry unanswered ones in the background.

        Raises:
            SubscriptionConflictError: The group has other subscriptions.
            ClientIdInUseError: Another process uses our client id.
            ErucaError: A broker refuses this member, or none answered.
        """
        failures: list[ErucaError] = []
        for name in sorted(broker_names):
            try:
                await self._beat(name)
            except (RequestError, RefusedError):
                raise
            except ErucaError as error:
                _logger.info("broker %s did not answer when joining: %s", name, error)
                failures.append(error)
        if failures and len(failures) == len(broker_names):
            raise failures[0]
        self.keep(broker_names)

    def keep(self, broker_names: Collection[str]) -> None:
        """Be a member at these brokers, and at no others."""
        for name in sorted(broker_names):
            if name not in self._keepers:
                self._hurry[name] = asyncio.Event()
                self._keepers[name] = self._tasks.start(
                    self._keep(name), f"eruca heartbeats to {name}"
                )
        for name in set(self._keepers) - set(broker_names):
            self._keepers.pop(name).cancel()
            self._forget(name)

    def beat_soon(self, broker_name: str) -> None:
        """Send a heartbeat to a broker at once."""
        if (event := self._hurry.get(broker_name)) is not None:
            event.set()

    async def leave(self) -> None:
        """Leave the group everywhere; at a broker that does not answer, the session expires."""
        names = {name for name in self._sessions if self.is_alive(name)} | self._unanswered
        await self._end_keeping()
        await asyncio.gather(*map(self._leave, sorted(names)))
        await self.close()

    async def close(self) -> None:
        """Send no more heartbeats, and wait for no answer."""
        await self._end_keeping()
        beating = list(self._beating.values())
        for task in beating:
            task.cancel()
        await asyncio.gather(*beating, return_exceptions=True)

    async def _end_keeping(self) -> None:
        self._renewals.clear()
        keepers, self._keepers = list(self._keepers.values()), {}
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        for timer in self._timers.values():
            timer.cancel()

    async def _keep(self, name: str) -> None:
        hurry = self._hurry[name]
        pause = 0.0
        if self.is_alive(name):  # joined just now
            pause = self.session(name).seconds / BEATS_PER_SESSION
        while True:
            due = time.monotonic() + pause
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await hurry.wait()
            hurry.clear()
            self._warn_if_late(time.monotonic() - due)
            session = self.session(name)
            try:
                await self._beat(name)
            except (RequestError, RefusedError) as error:
                self._renewals.pop(name, None)
                self._on_refused(error)
                return
            except ErucaError as error:
                self._outages.failed(name, error)
                pause = min(AGAIN_SECONDS, session.seconds / BEATS_PER_SESSION)
            else:
                pause = session.seconds / BEATS_PER_SESSION

    async def _beat(self, name: str) -> None:
        for locks in _parts(self._locks_at(name)):
            await self._beat_naming(name, locks)
        self._on_beat()

    async def _beat_naming(
        self, name: str, locks: Mapping[MessageQueue, int], *, tells: bool = True
    ) -> None:
        session = self.session(name)
        tokens = [
            LockToken(topic=queue.topic, queue_id=queue.queue_id, token=token)
            for queue, token in locks.items()
        ]
        heartbeat = self._heartbeat.model_copy(
            update={
                "locks": tokens,
                "topics_since": dict(self._topics_since),
                "handling": self._handling_for(name) if tells else None,
            }
        )
        renewal = Renewal(name, session, self._url_of(name), heartbeat, locks)
        sent_at = time.monotonic()
        try:
            answer = await self._answer(name, renewal)
        except RequestError as error:
            if heartbeat.handling is None or not _is_about_handling(error):
                raise
            _logger.info(
                "broker %s is of an earlier version: heartbeats do not tell it of handlers", name
            )
            self._untold_until[name] = sent_at + UNTOLD_SECONDS
            await self._beat_naming(name, locks, tells=False)
            return
        self._end_if_over(name)  # a late answer does not restore a session that we had to end
        session.renew(sent_at, answer.session_seconds)
        self._outages.answered(name)
        self._renewals[name] = renewal
        self._set_timer(name)
        for topic, since in answer.topics_since.items():
            self._topics_since.setdefault(topic, since)
        (self._disabled.discard if answer.consume_enabled else self._disabled.add)(name)
        if lost := renewal.lost(answer):
            self._on_locks_gone(lost)

    def _handling_for(self, name: str) -> MemberHandling | None:
        if self._handling is None or time.monotonic() < self._untold_until.get(name, 0.0):
            return None
        return self._handling()

    async def _answer(self, name: str, renewal: Renewal) -> MemberAnswer:
        """Send a heartbeat; cancelling the caller does not cancel it."""
        seconds = renewal.session.seconds / BEATS_PER_SESSION
        beating = asyncio.create_task(
            self._api.beat(renewal.url, renewal.heartbeat, timeout=seconds)
        )
        self._beating[name] = beating
        self._unanswered.add(name)
        beating.add_done_callback(lambda _: self._on_beaten(name, beating))
        return await asyncio.shield(beating)

    def _on_beaten(self, name: str, beating: asyncio.Task[MemberAnswer]) -> None:
        if self._beating.get(name) is beating:
            del self._beating[name]
        error = None if beating.cancelled() else beating.exception()
        if not beating.cancelled() and (error is None or isinstance(error, _NOT_JOINED)):
            self._unanswered.discard(name)

    def _set_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        session = self._sessions[name]
        delay = max(session.expires_at - time.monotonic(), 0.0)
        self._timers[name] = asyncio.get_running_loop().call_later(delay, self._on_timer, name)

    def _on_timer(self, name: str) -> None:
        if not self._end_if_over(name) and self._sessions[name].is_begun:
            self._set_timer(name)

    def _end_if_over(self, name: str) -> bool:
        session = self._sessions[name]
        if not (session.is_begun and session.is_over(time.monotonic())):
            return False
        session.end()
        self._renewals.pop(name, None)
        _logger.warning("the session at broker %s has ended: its queues are lost", name)
        self._on_over(name)
        return True

    def _warn_if_late(self, seconds: float) -> None:
        if seconds > LATE_SECONDS:
            _logger.warning(
                "the event loop was blocked for %.1f s: nothing was pulled or committed"
                " meanwhile, and queues are lost if this takes longer than"
                " consume_timeout_seconds; make a handler that blocks a plain function, which"
                " runs in a thread",
                seconds,
            )

    def _forget(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
        self._sessions.pop(name, None)
        self._renewals.pop(name, None)
        self._hurry.pop(name, None)
        self._disabled.discard(name)
        self._untold_until.pop(name, None)
        self._outages.forget(name)

    async def _leave(self, name: str) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                if (beating := self._beating.get(name)) is not None:
                    await asyncio.wait((beating,))
                await self._api.leave(self._url_of(name))
        except (ErucaError, TimeoutError) as error:
            _logger.info("could not tell broker %s that this member leaves: %s", name, error)


def _is_about_handling(error: RequestError) -> bool:
    return any(entry.get("pointer", "").startswith(_HANDLING) for entry in error.errors)


def _parts(locks: Mapping[MessageQueue, int]) -> Iterator[dict[MessageQueue, int]]:
    """Yield *locks* in parts that fit one heartbeat; one empty part if there are no locks."""
    items = list(locks.items())
    for start in range(0, max(len(items), 1), LOCK_COUNT_MAX):
        yield dict(items[start : start + LOCK_COUNT_MAX])
