"""Pulling from one queue or many, as records or as JSON: hot routes.

Records go out as the log's own bytes behind a preamble. JSON is rendered a stretch at a time, so
that other requests get their turn; it ends early where uncompressed bodies would make it larger
than asked for, and ``next_offset`` says where to go on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import Annotated, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from fastapi import Path, Query

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
from eruca_broker.api.answers import held_size
from eruca_broker.api.bodies import StructBody
from eruca_broker.api.dependencies import Broker, IncludeSystem
from eruca_broker.api.examples import messages as examples
from eruca_broker.core.consuming.held_pulls import Position
from eruca_broker.core.consuming.message_filter import (
    FilterType,
    MessageFilter,
    parse_filter,
)
from eruca_broker.core.records.rendering import render, render_damage
from eruca_broker.processors.pull_message import (
    PullLimits,
    QueuePull,
    Section,
    position_of,
)
from eruca_broker.store.queue_reader import QueueRead
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
from eruca_chassis.hot_router import HotEndpoint, HotRouter
from eruca_chassis.requests.heads import fault
from eruca_chassis.requests.negotiation import choose

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
    """A pull of one queue: all that its head says."""

    media_type: str  # of the answer
    queue: QueuePull
    limits: PullLimits


@router.hot(
    "GET",
    "/topics/{topic}/queues/{queue_id}/messages",
    operation_id="pullMessages",
    summary="Pull messages from a queue",
    responses=answer(
        examples.PULLED,
        model=PullAnswer,
        description="What was found; `status` says why where that is nothing.",
        beside=(_RECORDS,),
    )
    | problems(*_PULL_ERRORS),
)
class PullMessages(HotEndpoint[Broker]):
    """Read messages from `offset` on, in queue order.

    No session is needed, and nothing is taken out of the queue. At the queue's end the request is
    held for up to `wait_seconds`. It is answered as soon as a message arrives that the filter lets
    pass, or at the end of that time with `no_new_message`, which is no error: pull again from
    `next_offset`.

    With `Accept: application/vnd.eruca.records` the answer is the log's own bytes behind a
    preamble. There a filter of tags compares their hashes alone, as the client must know; in JSON
    the tags themselves are compared. A filter of type `sql92` is decided here in both forms.

    A filter that lets little through is answered after a bounded look at messages, with
    `no_matched_message` and the `next_offset` it got to: pull again from there.
    """

    def __init__(self, broker: Broker) -> None:
        self._puller = broker.puller
        self._in_flight = broker.consume_in_flight

    @staticmethod
    def read(
        head: RequestHead,
        topic: Annotated[TopicName, Path()],
        queue_id: Annotated[QueueId, Path(examples=[0])],
        *,
        offset: Annotated[
            Offset, Query(description="Queue offset of the first message wanted.", examples=[0])
        ],
        count_max: Annotated[
            int,
            Query(ge=1, le=PULL_COUNT_MAX, description="Messages in the answer, at most."),
        ] = PULL_COUNT_DEFAULT,
        bytes_max: Annotated[
            int,
            Query(
                ge=1,
                le=PULL_SIZE_MAX,
                description="Bytes of records, at most; the first message always comes.",
            ),
        ] = PULL_SIZE_DEFAULT,
        wait_seconds: Annotated[
            WaitSeconds, Query(description="How long to wait at the end of the queue.")
        ] = 0,
        expression: Annotated[
            str,
            Query(
                alias="filter",
                max_length=FILTER_SIZE_MAX,
                description="Tags, as in `AA || UA`, or, with `filter_type=sql92`, a condition "
                "over properties, as in `delay > 15 AND origin = 'JFK'`; `*` is all.",
            ),
        ] = SUBSCRIBE_ALL,
        filter_type: Annotated[FilterType, Query(description="What `filter` is.")] = "tag",
        include_system: IncludeSystem = False,
    ) -> _Pull:
        """Return which messages are wanted, and in which form."""
        wanted = _filter(expression, filter_type, "query")
        return _Pull(
            choose(head.headers.get(b"accept"), _OFFERED),
            QueuePull(topic, queue_id, offset, wanted, include_system),
            PullLimits(count_max, bytes_max, wait_seconds),
        )

    def handle(self, exchange: Exchange) -> None:
        """Answer with what is there, or once something is."""
        media_type, queue, limits = exchange.request.meaning
        read = self._puller.pull(queue, limits)
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
        read = self._puller.pull_after(position, queue, limits)
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
            exchange.take(self._in_flight, held_size(read.size))
            exchange.answer(_RECORDS_OK, *_block(read))
        else:
            exchange.take(self._in_flight, read.size)
            exchange.drive(_render(exchange, limits, queue, read))


@router.hot(
    "POST",
    "/pull",
    operation_id="pullManyQueues",
    summary="Pull messages from many queues",
    takes=(_MULTI_PULL.content,),
    responses=answer(
        examples.PULLED_MANY,
        model=MultiPullAnswer,
        description="What was found, by queue.",
        beside=(_RECORDS,),
    )
    | problems(MalformedBodyError, TooLargeError, UnsupportedMediaTypeError, *_PULL_ERRORS),
)
class PullManyQueues(HotEndpoint[Broker]):
    """Read from several queues in one request, as if each were pulled by itself.

    Only queues with something to say are in the answer. Where none has anything the request is held
    for up to `wait_seconds`, on all of them at once. The limits are of the whole answer, shared out
    among the queues that have messages.
    """

    def __init__(self, broker: Broker) -> None:
        self._puller = broker.puller
        self._in_flight = broker.consume_in_flight
        self._limit = BodyLimit(self._in_flight, JSON_BODY_SIZE_MAX, "json_body_size_max")

    @staticmethod
    def read(head: RequestHead) -> str:
        """Return the media type of the answer."""
        return choose(head.headers.get(b"accept"), _OFFERED)

    def admit(self, exchange: Exchange) -> None:
        """Ask for the body."""
        exchange.expect_body(self._limit)

    def handle(self, exchange: Exchange) -> None:
        """Answer with what is there, or once something is."""
        request = _MULTI_PULL.read(exchange.body)
        exchange.chunks.clear()
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
        exchange.give_back()  # before the answer is paid for, or waited for
        sections = self._puller.pull_many(queues, limits)
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
        sections = self._puller.pull_many_after(positions, queues, limits)
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
            exchange.take(self._in_flight, held_size(size))
            exchange.answer(_RECORDS_OK, *_blocks(sections))
        else:
            exchange.take(self._in_flight, size)
            exchange.drive(_render_many(exchange, limits, queues, sections))


def _block(read: QueueRead) -> list[bytes | memoryview]:
    """Return one queue's answer: its head, and its records or what is wrong with one."""
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
    """Renders one answer's messages, which share what room there is for uncompressed bodies."""

    def __init__(self, bytes_max: int) -> None:
        self._room = bytes_max
        self._has_messages = False

    @property
    def is_full(self) -> bool:
        """True if the answer ends here."""
        return self._room <= 0

    def answer(self, read: QueueRead, queue: QueuePull) -> Rendering[PullAnswer]:
        """Return what was read of one queue, ended early where there is no more room.

        Tags are compared here: with JSON there is no SDK that would do it.
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
            status = PullStatus.NO_MATCHED_MESSAGE  # the tags' hashes were alike, and nothing else
        return PullAnswer(
            status=status,
            messages=messages,
            next_offset=next_offset,
            min_offset=read.min_offset,
            max_offset=read.max_offset,
        )


def _filter(expression: str, filter_type: FilterType, part: str) -> MessageFilter:
    """Return what a filter lets through; *part* says where in the request it stands."""
    if len(expression) > FILTER_SIZE_MAX:
        raise fault(part, "filter", f"it has more than {FILTER_SIZE_MAX} characters")
    try:
        return parse_filter(expression, filter_type)
    except FilterSyntaxError as error:
        error.errors = [{"pointer": f"/{part}/filter", "detail": error.detail}]
        raise
