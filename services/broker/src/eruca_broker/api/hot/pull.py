"""Pulling from one queue or many, as records or as JSON: hot routes.

Records go out as the log's own bytes behind a preamble. JSON is rendered a stretch at a time, so
that other requests get their turn; it ends early where uncompressed bodies would make it larger
than asked for, and ``next_offset`` says where to go on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Struct

from eruca.contract.errors import FilterSyntaxError
from eruca.contract.fields import OFFSET_MAX
from eruca.contract.limits import (
    FILTER_SIZE_MAX,
    JSON_BODY_SIZE_MAX,
    PULL_COUNT_DEFAULT,
    PULL_COUNT_MAX,
    PULL_QUEUE_COUNT_MAX,
    PULL_SIZE_DEFAULT,
    PULL_SIZE_MAX,
    WAIT_SECONDS_MAX,
)
from eruca.contract.messages import (
    MultiPullAnswer,
    MultiPullQueueAnswer,
    PullAnswer,
    PulledMessage,
    QueuePosition,
)
from eruca.contract.wire import (
    RECORDS_MEDIA_TYPE,
    PullStatus,
    encode_multi_pull_heads,
    encode_pull_head,
)
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL
from eruca_broker.api.answers import held_size
from eruca_broker.api.bodies import decode_json
from eruca_broker.api.hot.query import (
    QUEUE_ID_MAX,
    fault,
    integer,
    one_of,
    parse_query,
    path_integer,
    seconds,
)
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE, check_body_type, choose
from eruca_broker.core.consuming.held_pulls import Position
from eruca_broker.core.consuming.message_filter import (
    FILTER_TYPES,
    FilterType,
    MessageFilter,
    parse_filter,
)
from eruca_broker.core.records.rendering import render, render_damage
from eruca_broker.processors.pull_message import (
    Puller,
    PullLimits,
    QueuePull,
    Section,
    position_of,
)
from eruca_broker.store.queue_reader import QueueRead
from eruca_chassis.budget import Budget
from eruca_chassis.connections.exchange import JSON_OK, AnswerHead, BodyLimit, Exchange

_OFFERED: Final = (JSON_MEDIA_TYPE, RECORDS_MEDIA_TYPE)
_RECORDS_OK: Final = AnswerHead(200, (b"content-type", RECORDS_MEDIA_TYPE.encode()))
_NO_PARAMETERS: Final[frozenset[str]] = frozenset()
PULL_PARAMETERS: Final = frozenset(
    (
        *("offset", "max_count", "max_bytes", "wait_seconds", "filter", "filter_type"),
        "include_system",
    )
)
_BOOLEANS: Final = ("false", "true")
_RENDER_STRETCH: Final = 256  # messages rendered before others get their turn; about 3 ms
_T = TypeVar("_T")
Rendering: TypeAlias = Generator[None, None, _T]  # each step is a stretch of work


class MultiPullRequest(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A pull of many queues in one request; the limits are of the answer as a whole."""

    queues: Annotated[list[QueuePosition], Meta(min_length=1, max_length=PULL_QUEUE_COUNT_MAX)]
    max_count: Annotated[int, Meta(ge=1, le=PULL_COUNT_MAX)] = PULL_COUNT_DEFAULT
    max_bytes: Annotated[int, Meta(ge=1, le=PULL_SIZE_MAX)] = PULL_SIZE_DEFAULT
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0


_MULTI_PULL: Final = msgspec.json.Decoder(MultiPullRequest)
_MULTI_PULL_EXAMPLE: Final = '{"queues": [{"topic": "flights", "queue_id": 0, "offset": 0}]}'
_ENCODER: Final = msgspec.json.Encoder()


class PullRoutes:
    """The handlers."""

    def __init__(self, puller: Puller, in_flight: Budget) -> None:
        self._puller = puller
        self._in_flight = in_flight
        self._json_limit = BodyLimit(in_flight, JSON_BODY_SIZE_MAX, "json_body_size_max")

    def pull(self, exchange: Exchange) -> None:
        """``GET /v1/topics/{topic}/queues/{queue_id}/messages``."""
        path = exchange.request.parameters
        parameters = parse_query(exchange.request.query, PULL_PARAMETERS)
        queue = QueuePull(
            path["topic"],
            path_integer(path["queue_id"], "queue_id", most=QUEUE_ID_MAX),
            integer(parameters, "offset", default=None, least=0, most=OFFSET_MAX),
            _filter(
                parameters.get("filter", SUBSCRIBE_ALL),
                one_of(parameters, "filter_type", FILTER_TYPES),
                "query",
            ),
            one_of(parameters, "include_system", _BOOLEANS) == "true",
        )
        limits = _limits(parameters)
        media_type = choose(exchange.request.headers.get(b"accept"), _OFFERED)
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

    def admit_many(self, exchange: Exchange) -> None:
        """``POST /v1/pull``: its head."""
        if exchange.request.query:
            parse_query(exchange.request.query, _NO_PARAMETERS)
        choose(exchange.request.headers.get(b"accept"), _OFFERED)
        check_body_type(exchange.request.headers, JSON_MEDIA_TYPE)
        exchange.expect_body(self._json_limit)

    def pull_many(self, exchange: Exchange) -> None:
        """``POST /v1/pull``: its body."""
        request = decode_json(_MULTI_PULL, exchange.body, _MULTI_PULL_EXAMPLE)
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
        limits = PullLimits(request.max_count, request.max_bytes, request.wait_seconds)
        exchange.give_back()  # before the answer is paid for, or waited for
        sections = self._puller.pull_many(queues, limits)
        if sections is not None:
            self._answer_many(exchange, queues, limits, sections)
            return
        positions = [position_of(queue) for queue in queues]
        again = partial(self._pull_many_again, exchange, queues, limits, positions)
        exchange.on_lost = self._puller.hold(positions, limits, partial(exchange.resume, again))

    def _pull_many_again(
        self,
        exchange: Exchange,
        queues: list[QueuePull],
        limits: PullLimits,
        positions: list[Position],
    ) -> None:
        sections = self._puller.pull_many_after(positions, queues, limits)
        self._answer_many(exchange, queues, limits, sections)

    def _answer_many(
        self,
        exchange: Exchange,
        queues: list[QueuePull],
        limits: PullLimits,
        sections: list[Section],
    ) -> None:
        size = sum(section.read.size for section in sections)
        if choose(exchange.request.headers.get(b"accept"), _OFFERED) == RECORDS_MEDIA_TYPE:
            exchange.take(self._in_flight, held_size(size))
            exchange.answer(_RECORDS_OK, *_blocks(sections))
        else:
            exchange.take(self._in_flight, size)
            exchange.drive(_render_many(exchange, limits, queues, sections))


def _limits(parameters: Mapping[str, str]) -> PullLimits:
    return PullLimits(
        max_count=integer(
            parameters, "max_count", default=PULL_COUNT_DEFAULT, least=1, most=PULL_COUNT_MAX
        ),
        max_bytes=integer(
            parameters, "max_bytes", default=PULL_SIZE_DEFAULT, least=1, most=PULL_SIZE_MAX
        ),
        wait_seconds=seconds(parameters, "wait_seconds", default=0, most=WAIT_SECONDS_MAX),
    )


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
    answer = yield from _Renderer(limits.max_bytes).answer(read, queue)
    exchange.answer(JSON_OK, _ENCODER.encode(answer))


def _render_many(
    exchange: Exchange,
    limits: PullLimits,
    queues: list[QueuePull],
    sections: list[Section],
) -> Rendering[None]:
    answers = []
    renderer = _Renderer(limits.max_bytes)
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

    def __init__(self, max_bytes: int) -> None:
        self._room = max_bytes
        self._has_messages = False

    @property
    def is_full(self) -> bool:
        """Whether the answer ends here."""
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
