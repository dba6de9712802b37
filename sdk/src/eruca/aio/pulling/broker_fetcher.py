"""Prefetch from one broker: one held request for all queues, if possible.

One request pulls all queues that have room. If another queue gets room while that request is held,
a further request pulls it at once. When both have returned, one request pulls all of them again. So
there are never more requests than queues. There is only one while the consumer keeps up.

A failed request is retried after a pause that doubles. Meanwhile the consumer reads from other
brokers. If the broker refuses some queues, for example because their topic was deleted, these are
set aside and retried from time to time, and the others are pulled without them. So are those whose
start is unknown while there is no master. Only if it refuses all queues has the broker failed. If a
topic with that name is created again, it is a different topic and is read from its beginning.

Messages far behind are pulled from a standby that is in sync, if there is one: the master must read
them from its disk, and is busy with new ones. While there is no master, all are pulled from another
replica. Starts, and that messages are deleted, damaged or not there yet, are the word of a master
that is certain of its term: another replica may lack what the master has. So what a standby does
not have, or does not answer, is pulled from the master, and waits for one if there is none.

Source: RocketMQ 5.3, ``PullMessageService``, ``DefaultLitePullConsumerImpl.PullTaskImpl``,
``GetMessageResult.suggestPullingFromSlave``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from eruca.aio.cluster.outages import Outages
from eruca.aio.http.transport import JSON_HEADER, HttpResponse, HttpTransport, problem_error
from eruca.aio.pulling.queues_aside import QueuesAside
from eruca.contract.errors import (
    ClosedError,
    ErucaError,
    NotMasterForSureError,
    TopicNotFoundError,
    TransportError,
)
from eruca.contract.limits import PULL_COUNT_MAX, PULL_QUEUE_COUNT_MAX, PULL_SIZE_MAX
from eruca.contract.messages import MultiPullRequest, QueuePosition
from eruca.contract.wire import (
    RECORDS_MEDIA_TYPE,
    MalformedRecordsError,
    PulledRecords,
    PullStatus,
    decode_multi_pull,
    is_masters_word,
)
from eruca.core.call_statistics import Sums, topic_counts
from eruca.core.consuming.pull_flow import QueueFlow
from eruca.core.consuming.pull_positions import offset_after_miss
from eruca.core.consuming.pull_settings import PullSettings
from eruca.core.consuming.refused_queues import UNREADABLE_ERRORS, refused_places
from eruca.core.filters.subscription_filter import filter_type
from eruca.core.filters.tag_expression import Subscription
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage
from eruca.core.messages.record_batch import decode_messages
from eruca.core.pauses import doubled

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

HOLD_SECONDS: Final = 15.0  # RocketMQ's BROKER_SUSPEND_MAX
ANSWER_SECONDS: Final = 5.0  # for the answer, on top of the hold
PAUSE_SECONDS: Final = 0.1  # after a failure; doubles
PAUSE_SECONDS_MAX: Final = 3.0
MASTER_SECONDS: Final = 30.0  # before a standby is asked again after one failed
_HEADERS: Final = (JSON_HEADER, ("accept", RECORDS_MEDIA_TYPE))
_OUT_OF_RANGE: Final = (PullStatus.OFFSET_TOO_SMALL, PullStatus.OFFSET_TOO_LARGE)
_MASTERS_WORD: Final = (*_OUT_OF_RANGE, PullStatus.DAMAGED)

_logger = logging.getLogger(__name__)


class Prefetch:
    """A consumer's limits of prefetched messages and bytes, shared by its fetchers."""

    __slots__ = ("count_max", "size", "size_max")

    def __init__(self, count_max: int, size_max: int) -> None:
        self.count_max = count_max  # messages of one queue
        self.size_max = size_max  # bytes of all queues
        self.size = 0


class BrokerFetcher:
    """Keeps the queues of one broker filled.

    Args:
        context: The client's; it provides routes and transports.
        broker_name: The broker.
        settings: The consumer's.
        prefetch: The limits of prefetched messages and bytes.
        on_news: Called when a poll has something to return or raise: messages, a fault, a failure.
        on_begun_before: Called with a queue that begins at its group's offset and not at the start
            in *settings*.
    """

    def __init__(
        self,
        context: ClientContext,
        broker_name: str,
        settings: PullSettings,
        prefetch: Prefetch,
        *,
        on_news: Callable[[], None],
        on_begun_before: Callable[[QueueFlow], None] | None = None,
    ) -> None:
        self.broker_name = broker_name
        self.failure: ErucaError | None = None  # of the last request; None after a success
        self.failure_count = 0  # consecutive failures
        self.raised_count = 0  # the number of the failure that a poll has raised last
        self._outages = Outages(
            _logger, failed="pulling from %s failed: %s", over="pulling from %s works again"
        )
        self._context = context
        self._settings = settings
        self._prefetch = prefetch
        self._on_news = on_news
        self._on_begun_before = on_begun_before
        self._flows: dict[MessageQueue, QueueFlow] = {}
        self._requests: dict[asyncio.Task[None], Sequence[QueueFlow]] = {}
        self._pause: asyncio.TimerHandle | None = None
        self._aside = QueuesAside(self.kick)
        # queues that are not read, with the error's code
        self._warned: dict[MessageQueue, str] = {}
        self._master_until = 0.0  # time by the loop's clock before which no standby is asked
        self._is_kicked = False
        self._is_closed = False

    @property
    def flows(self) -> Mapping[MessageQueue, QueueFlow]:
        """The queues that are pulled."""
        return self._flows

    def add(self, flow: QueueFlow) -> None:
        """Pull from another queue."""
        self._flows[flow.queue] = flow

    def remove(self, queue: MessageQueue) -> QueueFlow:
        """Stop pulling from a queue."""
        flow = self._flows.pop(queue)
        self._aside.queues.discard(queue)
        self._warned.pop(queue, None)
        flow.epoch += 1  # invalidates an answer under way
        return flow

    def kick(self) -> None:
        """Pull every queue that has room and is not being pulled, in the event loop's next turn.

        So one request pulls all queues that get room in a turn.
        """
        if not self._is_kicked:
            self._is_kicked = True
            asyncio.get_running_loop().call_soon(self.pull)

    def pull(self) -> None:
        """Pull every queue that has room and is not being pulled, now."""
        self._is_kicked = False
        prefetch = self._prefetch
        if self._is_closed or self._pause is not None or prefetch.size >= prefetch.size_max:
            return
        ready = [
            flow
            for queue, flow in self._flows.items()
            if queue not in self._aside.queues and flow.has_room(prefetch.count_max)
        ]
        # Starts may be long in coming, for example while there is no master.
        known = [flow for flow in ready if flow.fetch_offset is not None]
        unknown = [flow for flow in ready if flow.fetch_offset is None]
        for flows in (known, unknown):
            for start in range(0, len(flows), PULL_QUEUE_COUNT_MAX):
                self._start(flows[start : start + PULL_QUEUE_COUNT_MAX])

    def restart(self, queues: Sequence[MessageQueue]) -> None:
        """Cancel requests that hold *queues* at an old position, and pull again."""
        moved = {self._flows[queue] for queue in queues if queue in self._flows}
        for task, flows in tuple(self._requests.items()):
            if not moved.isdisjoint(flows):
                task.cancel()
        self.kick()

    async def close(self) -> None:
        """Cancel every request."""
        self._is_closed = True
        self._aside.close()
        if self._pause is not None:
            self._pause.cancel()
        tasks = list(self._requests)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self, flows: Sequence[QueueFlow]) -> None:
        for flow in flows:
            flow.is_pulling = True
        task = asyncio.get_running_loop().create_task(self._pull(flows))
        self._requests[task] = flows
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        for flow in self._requests.pop(task):
            flow.is_pulling = False
        error = None if task.cancelled() else task.exception()
        if error is not None:
            for topic in {queue.topic for queue in self._flows}:
                self._context.statistics.add(
                    "pull", topic, self._settings.group, Sums(call_count=1, failed_count=1)
                )
        if isinstance(error, ErucaError):
            self._note_failure(error)
        elif error is not None:
            # A defect; raise it in the program's next poll.
            self._note_failure(ClosedError(f"the fetcher of {self.broker_name} failed: {error!r}"))
            _logger.error("the fetcher of %s failed", self.broker_name, exc_info=error)
        self.kick()

    def _note_failure(self, error: ErucaError) -> None:
        self.failure = error
        self.failure_count += 1
        self._outages.failed(self.broker_name, error)
        for topic in {queue.topic for queue in self._flows}:
            self._context.routes.refresh_soon(topic)
        seconds = doubled(PAUSE_SECONDS, self.failure_count - 1, PAUSE_SECONDS_MAX)
        seconds = max(seconds, error.retry_after_seconds or 0.0)
        if self._pause is None and not self._is_closed:
            self._pause = asyncio.get_running_loop().call_later(seconds, self._end_pause)
        self._on_news()

    def _end_pause(self) -> None:
        self._pause = None
        self.kick()

    async def _pull(self, flows: Sequence[QueueFlow]) -> None:
        url = self._url()
        unknown = [flow for flow in flows if flow.fetch_offset is None]
        if unknown:
            await self._find_starts(url, unknown)
            self._on_news()  # the positions are known now
        flows = self._only_those_to_pull(flows)
        if not flows:
            return
        epochs = [flow.epoch for flow in flows]
        if (standby := self._standby(flows)) is not None:
            await self._pull_from_standby(standby, flows, epochs)
            return
        begun_at = time.monotonic()
        # After a failure, a request must return at once to show that the broker works again.
        hold_seconds = HOLD_SECONDS if self.failure is None else 0.0
        answer = await self._ask(self._context.held_transport, url, flows, hold_seconds)
        if answer.status != 200:
            error = problem_error(answer, f"POST {url}/v1/pull")
            places = refused_places(error, len(flows))
            if not places:
                raise error
            self._set_aside([flows[place] for place in places], error)
            return
        told = _sections(url, answer, len(flows))
        is_sure = is_masters_word(answer.headers)
        sections = told if is_sure else _without_masters_word(told)
        if told and not sections:
            raise NotMasterForSureError(
                f"a replica of {self.broker_name} lacks messages, and is not the master for sure"
            )
        for index, pulled in sections:
            self._take_in(flows[index], answer.body, pulled, epochs[index])
        self._account(begun_at, _counts(flows, sections))
        self.failure, self.failure_count, self.raised_count = None, 0, 0
        self._outages.answered(self.broker_name)
        for flow in flows:
            self._warned.pop(flow.queue, None)
        if sections:
            self._on_news()

    async def _pull_from_standby(
        self, url: str, flows: Sequence[QueueFlow], epochs: Sequence[int]
    ) -> None:
        """Pull what the standby at *url* has; leave it if that is nothing."""
        begun_at = time.monotonic()
        try:
            # it is not held: there is much to read
            answer = await self._ask(self._context.standby_transport, url, flows, 0.0)
            if answer.status != 200:
                raise problem_error(answer, f"POST {url}/v1/pull")
            sections = _sections(url, answer, len(flows))
        except ErucaError as error:
            _logger.info("standby of %s is left: %s", self.broker_name, error)
            sections = []
        found = _without_masters_word(sections)
        for index, pulled in found:
            self._take_in(flows[index], answer.body, pulled, epochs[index])
        self._account(begun_at, _counts(flows, found))
        if found:
            self._on_news()
        if not found or len(found) < len(sections):  # it is behind, or has deleted more
            self._master_until = asyncio.get_running_loop().time() + MASTER_SECONDS

    def _account(self, begun_at: float, counts: Mapping[str, int]) -> None:
        for topic, count in counts.items():
            if count:  # the time of an empty answer is that of waiting for messages
                self._context.statistics.add_call(
                    "pull", topic, self._settings.group, count, begun_at
                )

    async def _ask(
        self, transport: HttpTransport, url: str, flows: Sequence[QueueFlow], hold_seconds: float
    ) -> HttpResponse:
        """Return the answer to a pull of *flows*."""
        room = sum(self._prefetch.count_max - flow.count for flow in flows)
        request = MultiPullRequest(
            queues=[self._position(flow) for flow in flows],
            count_max=max(1, min(room, PULL_COUNT_MAX)),
            bytes_max=max(1, min(self._prefetch.size_max - self._prefetch.size, PULL_SIZE_MAX)),
            wait_seconds=hold_seconds,
        )
        return await transport.request(
            "POST",
            url,
            "/v1/pull",
            headers=_HEADERS,
            body=(msgspec.json.encode(request),),
            timeout=hold_seconds + ANSWER_SECONDS,
        )

    def _only_those_to_pull(self, flows: Sequence[QueueFlow]) -> Sequence[QueueFlow]:
        """Release the flows that the running request must not hold; return the others."""
        chosen: list[QueueFlow] = []
        for flow in flows:
            is_readable = flow.fault is None and flow.fetch_offset is not None
            flow.is_pulling = is_readable and not flow.is_paused
            if flow.is_pulling:
                chosen.append(flow)
        task = asyncio.current_task()
        assert task is not None
        self._requests[task] = chosen
        return chosen

    async def _find_starts(self, url: str, flows: Sequence[QueueFlow]) -> None:
        from eruca.aio.pulling.start_offsets import find_start_offsets  # needs the pydantic models

        for topic in sorted({flow.queue.topic for flow in flows}):
            its = [flow for flow in flows if flow.queue.topic == topic]
            try:
                begun_before = await find_start_offsets(
                    self._context.broker_api, url, self._settings.group, its
                )
            except (*UNREADABLE_ERRORS, NotMasterForSureError) as error:
                self._set_aside(its, error)
            else:
                if begun_before and self._on_begun_before is not None:
                    self._on_begun_before(begun_before[0])

    def _set_aside(self, flows: Sequence[QueueFlow], error: ErucaError) -> None:
        """Set *flows* aside until the next look; raise *error* if no other flow is left."""
        flows = [flow for flow in flows if self._flows.get(flow.queue) is flow]
        if not flows:
            return  # they were released meanwhile
        if isinstance(error, TopicNotFoundError):
            for flow in flows:
                flow.start_over()
        refused = {flow.queue for flow in flows}
        if self._flows.keys() <= self._aside.queues | refused:
            self._aside.queues.clear()  # all are pulled again after the pause of a failure
            raise error
        self._aside.add(refused)
        # Each retry fails alike: only a queue's first error is logged above debug level.
        is_news = any(self._warned.get(queue) != error.code for queue in refused)
        self._warned |= dict.fromkeys(refused, error.code)
        _logger.log(
            logging.WARNING if is_news else logging.DEBUG,
            "broker %s refuses %d queues now: %s",
            *(self.broker_name, len(flows), error),
        )
        for topic in {flow.queue.topic for flow in flows}:
            self._context.routes.refresh_soon(topic)

    def _take_in(self, flow: QueueFlow, answer: bytes, pulled: PulledRecords, epoch: int) -> None:
        if epoch != flow.epoch:
            return
        if pulled.status in _OUT_OF_RANGE:
            assert flow.fetch_offset is not None
            try:
                flow.fetch_offset = offset_after_miss(
                    self._settings.on_offset_out_of_range,
                    pulled.status,
                    flow.queue,
                    flow.fetch_offset,
                    min_offset=pulled.min_offset,
                    max_offset=pulled.max_offset,
                )
            except ErucaError as error:
                flow.fault = error
            return
        if pulled.status is PullStatus.DAMAGED:
            self._prefetch.size += flow.put_damaged(pulled.damage, pulled.next_offset, epoch)
            return
        subscription = self._settings.subscriptions[flow.queue.topic]
        count = len(pulled.sizes)
        size = sum(pulled.sizes) // count if count else 0
        flow.behind_bytes = (pulled.max_offset - pulled.next_offset) * size
        messages = decode_messages(
            flow.queue,
            answer,
            pulled.sizes,
            start=pulled.start,
            wanted=_tag_check(subscription) if subscription.tags else None,
        )
        self._prefetch.size += flow.put(messages, pulled.next_offset, epoch)

    def _position(self, flow: QueueFlow) -> QueuePosition:
        assert flow.fetch_offset is not None
        subscription = self._settings.subscriptions[flow.queue.topic]
        return QueuePosition(
            topic=flow.queue.topic,
            queue_id=flow.queue.queue_id,
            offset=flow.fetch_offset,
            filter=subscription.expression,
            filter_type=filter_type(subscription),
        )

    def _standby(self, flows: Sequence[QueueFlow]) -> str | None:
        """Return the URL of a standby to pull *flows* from; None: pull from the master."""
        limit = self._context.settings.standby_from_bytes
        if not limit or sum(flow.behind_bytes for flow in flows) < limit:
            return None
        if asyncio.get_running_loop().time() < self._master_until:
            return None
        view = self._context.routes.cached_subscribe_view(flows[0].queue.topic)
        standbys = () if view is None else view.standbys.get(self.broker_name, ())
        return random.choice(standbys) if standbys else None

    def _url(self) -> str:
        for queue in self._flows:
            view = self._context.routes.cached_subscribe_view(queue.topic)
            if view is not None and view.urls.get(queue.broker_name):
                return view.url_of(queue)
        raise TransportError(f"broker {self.broker_name} is in no route now")


def _sections(url: str, answer: HttpResponse, count: int) -> list[tuple[int, PulledRecords]]:
    """Return the parts of an answer, each with the index of its queue in the request.

    Raises:
        TransportError: The answer is invalid.
    """
    try:
        sections = [*decode_multi_pull(answer.body)]
    except MalformedRecordsError as error:
        raise TransportError(f"{url}: the answer to a pull is invalid: {error}") from error
    if any(index >= count for index, _ in sections):
        raise TransportError(f"{url}: the answer to a pull contains queues that were not requested")
    return sections


def _without_masters_word(
    sections: Sequence[tuple[int, PulledRecords]],
) -> list[tuple[int, PulledRecords]]:
    """Return the parts that also count from another replica than the master."""
    return [one for one in sections if one[1].status not in _MASTERS_WORD]


def _counts(
    flows: Sequence[QueueFlow], sections: Sequence[tuple[int, PulledRecords]]
) -> dict[str, int]:
    """Return the number of pulled messages by topic."""
    return topic_counts((flows[at].queue.topic, len(pulled.sizes)) for at, pulled in sections)


def _tag_check(subscription: Subscription) -> Callable[[ReceivedMessage], bool]:
    """Return the exact check: the broker compares hashes, and two tags may have the same hash."""
    tags = subscription.tags
    return lambda message: message.tag in tags
