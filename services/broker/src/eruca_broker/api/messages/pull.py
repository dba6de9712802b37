"""Pulling from one queue or many, as records or as JSON: hot routes.

Records are the log's own bytes behind a preamble. JSON is rendered in portions, so that other
requests get their turn. It ends early if decompressed bodies would exceed the requested size, and
``next_offset`` says where to continue.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from fastapi import Path, Query

from eruca.contract.access import Right
from eruca.contract.errors import (
    ErucaError,
    FilterSyntaxError,
    MalformedBodyError,
    NotAcceptableError,
    NotReadyError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    TooLargeError,
    TopicNotFoundError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca.contract.fields import Offset, QueueId, TopicName, WaitSeconds
from eruca.contract.limits import (
    FILTER_SIZE_MAX,
    JSON_BODY_SIZE_MAX,
    PULL_COUNT_DEFAULT,
    PULL_COUNT_MAX,
    PULL_SIZE_DEFAULT,
    PULL_SIZE_MAX,
)
from eruca.contract.messages import (
    MultiPullAnswer,
    MultiPullQueueAnswer,
    MultiPullRequest,
    PullAnswer,
    PulledMessage,
)
from eruca.contract.wire import (
    JSON_MEDIA_TYPE,
    RECORDS_MEDIA_TYPE,
    PullStatus,
    encode_multi_pull_heads,
    encode_pull_head,
)
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL
from eruca_access.needs import on_topic, to
from eruca_broker.api.answers import held_size
from eruca_broker.api.bodies import StructBody
from eruca_broker.api.examples import messages as examples
from eruca_broker.api.parameters import IncludeSystem
from eruca_broker.core.consuming.held_pulls import Position
from eruca_broker.core.consuming.message_filter import (
    FilterType,
    MessageFilter,
    parse_filter,
)
from eruca_broker.core.records.rendering import render, render_damage
from eruca_broker.processors.budgets import ConsumeBudget
from eruca_broker.processors.pull_message import (
    Puller,
    PullLimits,
    QueuePull,
    Section,
    position_of,
)
from eruca_broker.store.pulling.queue_read import QueueRead
from eruca_chassis.admission.budget import client_of
from eruca_chassis.admission.needs import in_body, in_path
from eruca_chassis.connections.exchange import (
    JSON_OK,
    AnswerHead,
    BodyLimit,
    Exchange,
    RequestHead,
)
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.documents.schemas import in_octets
from eruca_chassis.requests.heads import fault
from eruca_chassis.requests.negotiation import choose
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter

router = HotRouter(prefix="/v1", tags=["messages"])

_OFFERED: Final = (JSON_MEDIA_TYPE, RECORDS_MEDIA_TYPE)
_RECORDS_OK: Final = AnswerHead(200, (b"content-type", RECORDS_MEDIA_TYPE.encode()))
_RECORDS: Final = in_octets(RECORDS_MEDIA_TYPE)
_MULTI_PULL: Final = StructBody(MultiPullRequest, examples.PULL_OF_ONE, examples=examples.PULLS)
_ENCODER: Final = msgspec.json.Encoder()
_RENDER_STRETCH: Final = 256  # messages rendered before others get their turn; about 3 ms
_T = TypeVar("_T")
Rendering: TypeAlias = Generator[None, None, _T]  # each step is a stretch of work

_PULL_ERRORS: Final[tuple[type[ErucaError], ...]] = (
    PermissionDeniedError,
    TopicNotFoundError,
    QueueNotFoundError,
    NotAcceptableError,
    ValidationError,
    FilterSyntaxError,
    OverloadedError,
    NotReadyError,
)


class _Pull(NamedTuple):
    """A pull of one queue: the content of its head."""

    media_type: str  # of the answer
    queue: QueuePull
    limits: PullLimits


@router.hot(
    "GET",
    "/topics/{topic}/queues/{queue_id}/messages",
    operation_id="pullMessages",
    needs=to(Right.CONSUME, topic=in_path("topic")),
    summary="Pull messages from a queue",
    responses=answer(
        examples.PULLED,
        model=PullAnswer,
        description="The messages found; if there are none, `status` says why.",
        beside=(_RECORDS,),
    )
    | problems(*_PULL_ERRORS),
)
class PullMessages(HotEndpoint):
    """Read messages from `offset` on, in queue order.

    This needs no session and removes nothing from the queue. At the queue's end the request is held
    for up to `wait_seconds`. It is answered as soon as a message arrives that passes the filter, or
    at the end of that time with `no_new_message`. That is not an error: pull again from
    `next_offset`.

    With `Accept: application/vnd.eruca.records` the answer is the log's own bytes behind a
    preamble. In that form a filter by tags compares only their hashes, so the client must compare
    the tags. In JSON the broker compares the tags themselves. It evaluates filters of type `sql92`
    in both forms.

    A filter that few messages pass is answered after a bounded number of messages, with
    `no_matched_message` and the `next_offset` that it reached: pull again from there.
    """

    def __init__(self, puller: Puller, in_flight: ConsumeBudget) -> None:
        self._puller = puller
        self._in_flight = in_flight

    @staticmethod
    def read(
        head: RequestHead,
        topic: Annotated[TopicName, Path()],
        queue_id: Annotated[QueueId, Path(examples=[0])],
        *,
        offset: Annotated[
            Offset, Query(description="Queue offset of the first message to return.", examples=[0])
        ],
        count_max: Annotated[
            int,
            Query(ge=1, le=PULL_COUNT_MAX, description="Maximum number of messages in the answer."),
        ] = PULL_COUNT_DEFAULT,
        bytes_max: Annotated[
            int,
            Query(
                ge=1,
                le=PULL_SIZE_MAX,
                description="Maximum bytes of records; the first message is always returned.",
            ),
        ] = PULL_SIZE_DEFAULT,
        wait_seconds: Annotated[
            WaitSeconds, Query(description="The time to wait at the end of the queue.")
        ] = 0,
        expression: Annotated[
            str,
            Query(
                alias="filter",
                max_length=FILTER_SIZE_MAX,
                description="Tags, as in `AA || UA`, or, with `filter_type=sql92`, a condition "
                "on properties, as in `delay > 15 AND origin = 'JFK'`; `*` is all messages.",
            ),
        ] = SUBSCRIBE_ALL,
        filter_type: Annotated[FilterType, Query(description="The type of `filter`.")] = "tag",
        include_system: IncludeSystem = False,
    ) -> _Pull:
        """Return the requested messages and the requested form."""
        wanted = _filter(expression, filter_type, "query")
        return _Pull(
            choose(head.headers.get(b"accept"), _OFFERED),
            QueuePull(topic, queue_id, offset, wanted, include_system),
            PullLimits(count_max, bytes_max, wait_seconds),
        )

    def handle(self, exchange: Exchange) -> None:
        """Answer with the available messages, or once there are some."""
        media_type, queue, limits = exchange.request.meaning
        read = self._puller.pull(queue, limits, client_of(exchange.client))
        if read is not None:
            self._answer(exchange, media_type, queue, limits, read)
            return
        position = position_of(queue)
        again = partial(self._pull_again, exchange, media_type, queue, limits, position)
        wake = partial(exchange.resume, again)
        exchange.on_lost = self._puller.hold([position], limits, wake)

    def _pull_again(
        self,
        exchange: Exchange,
        media_type: str,
        queue: QueuePull,
        limits: PullLimits,
        position: Position,
    ) -> None:
        read = self._puller.pull_after(position, queue, limits, client_of(exchange.client))
        self._answer(exchange, media_type, queue, limits, read)

    def _answer(
        self,
        exchange: Exchange,
        media_type: str,
        queue: QueuePull,
        limits: PullLimits,
        read: QueueRead,
    ) -> None:
        if media_type == RECORDS_MEDIA_TYPE:
            exchange.take(self._in_flight, _held_size([read]))
            exchange.answer(_RECORDS_OK, *_block(read))
        else:
            exchange.take(self._in_flight, read.size)
            exchange.drive(_render(exchange, limits, queue, read))


@router.hot(
    "POST",
    "/pull",
    operation_id="pullManyQueues",
    needs=to(Right.CONSUME, topic=in_body("queues.topic")),
    summary="Pull messages from many queues",
    takes=(_MULTI_PULL.content,),
    responses=answer(
        examples.PULLED_MANY,
        model=MultiPullAnswer,
        description="The messages found, by queue.",
        beside=(_RECORDS,),
    )
    | problems(MalformedBodyError, TooLargeError, UnsupportedMediaTypeError, *_PULL_ERRORS),
)
class PullManyQueues(HotEndpoint):
    """Read from several queues in one request, as if each were pulled by itself.

    The answer contains only queues with messages or news. If there is none, the request is held for
    up to `wait_seconds`, on all queues at once. The limits apply to the whole answer and are
    divided among the queues that have messages.
    """

    def __init__(self, puller: Puller, in_flight: ConsumeBudget) -> None:
        self._puller = puller
        self._in_flight = in_flight
        self._limit = BodyLimit(self._in_flight, JSON_BODY_SIZE_MAX, "json_body_size_max")

    @staticmethod
    def read(head: RequestHead) -> str:
        """Return the media type of the answer."""
        return choose(head.headers.get(b"accept"), _OFFERED)

    def admit(self, exchange: Exchange) -> None:
        """Request the body."""
        exchange.expect_body(self._limit)

    def handle(self, exchange: Exchange) -> None:
        """Answer with the available messages, or once there are some."""
        request = _MULTI_PULL.read(exchange.body)
        exchange.chunks.clear()
        if not exchange.access.is_open:
            exchange.access.require(
                *(on_topic(position.topic, Right.CONSUME) for position in request.queues)
            )
        queues = [
            QueuePull(
                position.topic,
                position.queue_id,
                position.offset,
                _filter(position.filter, position.filter_type, f"body/queues/{index}"),
            )
            for index, position in enumerate(request.queues)
        ]
        limits = PullLimits(request.count_max, request.bytes_max, request.wait_seconds)
        exchange.give_back()  # before the answer takes its budget, or waits
        exchange.resume(self._pull, exchange, queues, limits)

    def _pull(self, exchange: Exchange, queues: list[QueuePull], limits: PullLimits) -> None:
        sections = self._puller.pull_many(queues, limits, client_of(exchange.client))
        if sections is not None:
            self._answer(exchange, queues, limits, sections)
            return
        positions = [position_of(queue) for queue in queues]
        again = partial(self._pull_again, exchange, queues, limits, positions)
        exchange.on_lost = self._puller.hold(positions, limits, partial(exchange.resume, again))

    def _pull_again(
        self,
        exchange: Exchange,
        queues: list[QueuePull],
        limits: PullLimits,
        positions: list[Position],
    ) -> None:
        sections = self._puller.pull_many_after(
            positions, queues, limits, client_of(exchange.client)
        )
        self._answer(exchange, queues, limits, sections)

    def _answer(
        self,
        exchange: Exchange,
        queues: list[QueuePull],
        limits: PullLimits,
        sections: list[Section],
    ) -> None:
        size = sum(section.read.size for section in sections)
        if exchange.request.meaning == RECORDS_MEDIA_TYPE:
            exchange.take(self._in_flight, _held_size([read for _, read in sections]))
            exchange.answer(_RECORDS_OK, *_blocks(sections))
        else:
            exchange.take(self._in_flight, size)
            exchange.drive(_render_many(exchange, limits, queues, sections))


def _held_size(reads: Sequence[QueueRead]) -> int:
    """Return the bytes of memory that sending *reads* takes at a time."""
    copied = sum(read.copied_size for read in reads)
    return copied + held_size(sum(read.size for read in reads) - copied)


def _block(read: QueueRead) -> list[bytes | memoryview]:
    """Return one queue's answer: its head, and its records or the fault of one."""
    told = b"" if read.damage is None else str(read.damage).encode()
    head = encode_pull_head(
        read.status,
        next_offset=read.next_offset,
        min_offset=read.min_offset,
        max_offset=read.max_offset,
        sizes=read.sizes,
        records_size=read.size + len(told),
    )
    return [head + told, *read.slices]


def _blocks(sections: list[Section]) -> Iterator[bytes | memoryview]:
    blocks = [_block(read) for _, read in sections]
    preamble, section_heads = encode_multi_pull_heads(
        (index, len(block[0]) + read.size)
        for (index, read), block in zip(sections, blocks, strict=True)
    )
    yield preamble
    for section_head, (head, *slices) in zip(section_heads, blocks, strict=True):
        yield section_head + bytes(head)
        yield from slices


def _render(
    exchange: Exchange, limits: PullLimits, queue: QueuePull, read: QueueRead
) -> Rendering[None]:
    answer = yield from _Renderer(limits.bytes_max).answer(read, queue)
    exchange.answer(JSON_OK, _ENCODER.encode(answer))


def _render_many(
    exchange: Exchange,
    limits: PullLimits,
    queues: list[QueuePull],
    sections: list[Section],
) -> Rendering[None]:
    answers = []
    renderer = _Renderer(limits.bytes_max)
    for place, read in sections:
        if renderer.is_full:
            break
        queue = queues[place]
        answer = yield from renderer.answer(read, queue)
        answers.append(
            MultiPullQueueAnswer(topic=queue.topic, queue_id=queue.queue_id, answer=answer)
        )
    exchange.answer(JSON_OK, _ENCODER.encode(MultiPullAnswer(answers)))


class _Renderer:
    """Renders one answer's messages, which share the room for decompressed bodies."""

    def __init__(self, bytes_max: int) -> None:
        self._room = bytes_max
        self._has_messages = False

    @property
    def is_full(self) -> bool:
        """Return True if the answer ends here."""
        return self._room <= 0

    def answer(self, read: QueueRead, queue: QueuePull) -> Rendering[PullAnswer]:
        """Return the messages read from one queue; end early if there is no more room.

        Tags are compared here: a client of JSON has no SDK to do it.
        """
        messages: list[PulledMessage] = []
        next_offset = read.next_offset
        wanted = queue.filter
        if read.damage is not None:
            messages.append(render_damage(read.damage, queue.topic, queue.queue_id))
        for index, record in enumerate(read.records(), 1):
            if self.is_full:
                next_offset = record.queue_offset
                break
            room = self._room if self._has_messages else PULL_SIZE_MAX
            message, body_size = render(record, body_room=room)
            if wanted.matches_tag(message.tag):
                messages.append(message)
                self._has_messages = True
                self._room -= body_size
            if index % _RENDER_STRETCH == 0:
                yield
        status = read.status
        if status is PullStatus.FOUND and not messages:
            status = PullStatus.NO_MATCHED_MESSAGE  # only the tags' hashes were equal
        return PullAnswer(
            status=status,
            messages=messages,
            next_offset=next_offset,
            min_offset=read.min_offset,
            max_offset=read.max_offset,
        )


def _filter(expression: str, filter_type: FilterType, part: str) -> MessageFilter:
    """Return the parsed filter; *part* is its place in the request."""
    if len(expression) > FILTER_SIZE_MAX:
        raise fault(part, "filter", f"it has more than {FILTER_SIZE_MAX} characters")
    try:
        return parse_filter(expression, filter_type)
    except FilterSyntaxError as error:
        error.errors = [{"pointer": f"/{part}/filter", "detail": error.detail}]
        raise
