"""Rebalance: compute the queues that this member should read, and move to them.

A round (:mod:`.rounds`) computes the share of each topic (:mod:`eruca.core.consuming.rebalance`).
Then it requests locks, and hands over queues that now belong to other members. A round is scheduled
when a member list or a route changes, when a broker answers a heartbeat, and when a queue is
released or lost.

To hand over a queue, the consumer begins no further batch, waits for the running ones, and calls
``on_revoked``. Then one request commits the final offset and releases the lock. At that moment the
broker grants the lock to the next owner, whose request it holds.

Source: RocketMQ 5.3, ``RebalanceImpl``, ``RebalancePushImpl``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.cluster.routes import Routes
from eruca.aio.push.background import Background
from eruca.aio.push.held_queue import HeldQueue
from eruca.aio.push.lock_keeper import LockKeeper
from eruca.aio.push.members_watch import MembersWatch
from eruca.aio.push.membership import Membership
from eruca.aio.push.rounds import KnownQueues, Rounds
from eruca.aio.push.url_book import UrlBook
from eruca.contract.errors import (
    ErucaError,
    RefusedError,
    RequestError,
)
from eruca.contract.groups import GrantedLock, QueueRelease
from eruca.contract.names import retry_topic
from eruca.core.allocation import AllocationError
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.consuming.rebalance import TopicView, changes, coordinator_of, share_of
from eruca.core.consuming.session import Session
from eruca.core.messages.message_queue import MessageQueue

_AGAIN_SECONDS: Final = 0.2  # after an unanswered release; doubles
_AGAIN_SECONDS_MAX: Final = 3.0

_logger = logging.getLogger(__name__)


class Reading(Protocol):
    """A reader of queues that delivers their messages."""

    def hold(self, queue: MessageQueue, offset: int, token: int, session: Session) -> HeldQueue:
        """Return a granted queue, not being read yet."""
        ...

    async def begin(self, helds: list[HeldQueue]) -> None:
        """Notify the program, then read these queues, unless they are lost by then."""

    async def finish(self, held: HeldQueue) -> None:
        """End a queue's batches; return when none is running and the program is notified."""

    def drop(self, held: HeldQueue) -> None:
        """Stop reading a queue at once."""

    async def tell_lost(self, queues: list[MessageQueue]) -> None:
        """Notify the program that queues are lost."""


class Rebalancer:
    """The queues of one member of a clustering group.

    Args:
        settings: The consumer's.
        topics: Its subscribed topics, its retry topic included.
        client_id: The member.
        api: Its requests.
        routes: The client's.
        urls: The brokers' URLs.
        reading: Reads the queues.
        background: Runs background tasks.
    """

    def __init__(
        self,
        settings: PushSettings,
        topics: Iterable[str],
        client_id: str,
        *,
        api: GroupApi,
        routes: Routes,
        urls: UrlBook,
        reading: Reading,
        background: Background,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._api = api
        self._urls = urls
        self._reading = reading
        self._background = background
        self._membership: Membership | None = None
        self._watch = MembersWatch(api, urls.url_of, self.kick, background)
        self._keepers: dict[str, LockKeeper] = {}
        self._held: dict[MessageQueue, HeldQueue] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self._rounds = Rounds(topics, routes, self._round)

    @property
    def held(self) -> Mapping[MessageQueue, HeldQueue]:
        """The queues that are read or being handed over."""
        return self._held

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read, sorted."""
        # Other threads read this while queues come and go.
        return sorted(queue for queue in self._held.copy() if queue not in self._leaving)

    def start(self, membership: Membership) -> None:
        """Start as a member."""
        self._membership = membership
        self._rounds.start(self._background, "eruca rebalance")

    def kick(self) -> None:
        """Schedule a round."""
        self._rounds.ask()

    def locks_at(self, broker_name: str) -> dict[MessageQueue, int]:
        """Return the locks held at a broker."""
        return {
            queue: held.token
            for queue, held in self._held.items()
            if queue.broker_name == broker_name and held.token is not None
        }

    def lose_broker(self, broker_name: str) -> None:
        """Lose all queues of a broker whose session has ended; cancel the lock requests there."""
        if (keeper := self._keepers.get(broker_name)) is not None:
            keeper.end_session()
        self.lose([held for q, held in self._held.items() if q.broker_name == broker_name])

    def lose_locks(self, tokens: Mapping[MessageQueue, int]) -> None:
        """Lose queues if they are still held by these tokens."""
        gone = [self._held[queue] for queue in tokens if queue in self._held]
        self.lose([held for held in gone if held.token == tokens[held.queue]])

    def lose(self, lost: Collection[HeldQueue]) -> None:
        """Stop reading queues that another member may have, or this one by a newer token."""
        lost = [held for held in lost if self._held.get(held.queue) is held]
        if not lost:
            return
        for held in lost:
            del self._held[held.queue]
            self._reading.drop(held)
        for name in {held.queue.broker_name for held in lost}:
            self._keeper(name).doubt([h.queue for h in lost if h.queue.broker_name == name])
        queues = sorted(held.queue for held in lost)
        self._background.start(self._reading.tell_lost(queues), "eruca lost queues")
        self.kick()

    def give_up(self) -> None:
        """Begin no further batch and request nothing more: the consumer is about to leave."""
        self._ask_no_more()
        for held in self._held.values():
            held.is_draining = True

    async def stop(self) -> None:
        """Hand over all queues; return when that is done."""
        self._ask_no_more()
        for queue in self.queues:
            self._give_up(queue)
        if self._leaving:
            await asyncio.wait(self._leaving.values())

    def _ask_no_more(self) -> None:
        self._rounds.end()
        for keeper in self._keepers.values():
            keeper.close()

    # --- rounds -----------------------------------------------------------------------------------

    async def _round(self, known: KnownQueues) -> None:
        assert self._membership is not None
        brokers = {queue.broker_name for queues in known.queues.values() for queue in queues}
        brokers |= {queue.broker_name for queue in self._held}
        self._membership.keep(brokers)
        coordinators = {topic: coordinator_of(queues) for topic, queues in known.queues.items()}
        self._watch.follow({name for name in coordinators.values() if name is not None})
        views = [TopicView(topic, (), None) for topic in sorted(known.unknown)]
        for topic, queues in known.queues.items():
            views.append(TopicView(topic, queues, self._client_ids(topic, coordinators[topic])))
        self._go_to(self._share(views))

    def _client_ids(self, topic: str, coordinator: str | None) -> tuple[str, ...] | None:
        """Return the members that share a topic; None before its coordinator's first answer."""
        if coordinator is None:
            return (self._client_id,)  # it has no queues to share
        members = self._watch.members(coordinator)
        if members is None:
            return None
        is_retry = topic == retry_topic(self._settings.group)
        return tuple(
            member.client_id
            for member in members
            if member.message_model == "clustering"
            and (is_retry or any(s.topic == topic for s in member.subscriptions))
        )

    def _share(self, views: list[TopicView]) -> frozenset[MessageQueue]:
        assert self._membership is not None
        current = self.queues
        share: set[MessageQueue] = set()
        for view in views:
            try:
                share |= share_of(
                    self._settings.membership.strategy, self._client_id, view, current
                )
            except AllocationError as error:
                _logger.warning("the share of %s does not change: %s", view.topic, error)
                share |= {queue for queue in current if queue.topic == view.topic}
        disabled = self._membership.disabled
        return frozenset(queue for queue in share if queue.broker_name not in disabled)

    def _go_to(self, should: frozenset[MessageQueue]) -> None:
        to_acquire, to_give_up = changes(should, self.queues)
        for queue in sorted(to_give_up):
            self._give_up(queue)
        wanted: dict[str, list[MessageQueue]] = {name: [] for name in self._keepers}
        for queue in to_acquire - self._leaving.keys():
            wanted.setdefault(queue.broker_name, []).append(queue)
        for name, queues in wanted.items():
            self._keeper(name).want(queues)

    def _keeper(self, broker_name: str) -> LockKeeper:
        assert self._membership is not None
        keeper = self._keepers.get(broker_name)
        if keeper is None:
            keeper = self._keepers[broker_name] = LockKeeper(
                broker_name,
                self._api,
                self._urls.url_of,
                is_member=self._membership.is_alive,
                on_granted=self._take_over,
                on_doubt=self._membership.beat_soon,
                background=self._background,
            )
        return keeper

    # --- queues that come and go ------------------------------------------------------------------

    def _take_over(self, locks: dict[MessageQueue, GrantedLock]) -> None:
        assert self._membership is not None
        helds = []
        for queue, lock in locks.items():
            session = self._membership.session(queue.broker_name)
            held = self._reading.hold(queue, lock.next_offset, lock.token, session)
            self._held[queue] = held
            helds.append(held)
        self._background.start(self._reading.begin(helds), "eruca take over")

    def _give_up(self, queue: MessageQueue) -> None:
        task = self._background.start(self._hand_over(self._held[queue]), "eruca hand over")
        self._leaving[queue] = task
        task.add_done_callback(lambda _: self._gone(queue))

    def _gone(self, queue: MessageQueue) -> None:
        del self._leaving[queue]
        self.kick()

    async def _hand_over(self, held: HeldQueue) -> None:
        await self._reading.finish(held)
        if held.is_dropped:
            return
        is_released = await self._release(held)
        if self._held.get(held.queue) is held:
            del self._held[held.queue]
        self._reading.drop(held)
        if not is_released:
            self._keeper(held.queue.broker_name).doubt([held.queue])

    async def _release(self, held: HeldQueue) -> bool:
        """Commit a queue's final offset and release its lock; return whether the broker did so."""
        assert self._membership is not None
        assert held.token is not None
        release = QueueRelease(
            topic=held.queue.topic,
            queue_id=held.queue.queue_id,
            token=held.token,
            offset=held.process.commit_offset,
        )
        pause = _AGAIN_SECONDS
        while not held.is_lost():
            try:
                await self._api.release(self._urls.url_of(held.queue.broker_name), [release])
            except (RequestError, RefusedError) as error:  # a retry does not help
                _logger.warning("%s was lost while it was handed over: %s", held.queue, error)
                self._membership.beat_soon(held.queue.broker_name)
                return False
            except ErucaError as error:
                _logger.info("%s is not released yet: %s", held.queue, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, _AGAIN_SECONDS_MAX)
            else:
                return True
        return False  # no answer before the session ended
