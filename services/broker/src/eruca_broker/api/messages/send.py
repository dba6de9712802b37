"""Sending to a topic, as JSON, as octets or as records: hot routes.

A request that can be refused without its body is refused before the body is read. The answer comes
once the messages are as durable as the broker promises. If a client disconnects earlier, its
messages are stored all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from fastapi import Header, Path, Query
from pydantic import Field

from eruca.contract.access import Right
from eruca.contract.errors import (
    ConflictError,
    DerivedTopicError,
    DiskFullError,
    ErucaError,
    IdempotencyKeyReusedError,
    LaneGapError,
    MalformedBatchError,
    MalformedBodyError,
    MisdirectedError,
    NotAcceptableError,
    NotEnoughReplicasError,
    NotMasterError,
    NotMasterForSureError,
    NotReadyError,
    OutcomeUnknownError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    StoreFailedError,
    SystemTopicError,
    TooLargeError,
    TopicNotFoundError,
    UnavailableError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca.contract.fields import QueueId, TopicName
from eruca.contract.limits import (
    BATCH_COUNT_MAX,
    BODY_SIZE_MAX,
    DELAY_LEVEL_MAX,
    DELAY_SECONDS_MAX,
    IDEMPOTENCY_KEY_SIZE_MAX,
    JSON_BODY_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    QUEUE_ID_MAX,
    REPLICA_COUNT_MAX,
)
from eruca.contract.messages import (
    BatchReceipt,
    NewMessage,
    NewMessages,
    SendReceipt,
    SendReceipts,
)
from eruca.contract.records import IPV4_HOST_SIZE
from eruca.contract.wire import (
    BATCH_BODY_SIZE_MAX,
    JSON_MEDIA_TYPE,
    OCTETS_MEDIA_TYPE,
    RECORDS_MEDIA_TYPE,
    batch_position,
)
from eruca.core.messages.idempotency_keys import REPLAYED_HEADER, decode_key
from eruca_access.needs import to
from eruca_broker.api.bodies import StructBody
from eruca_broker.api.examples import messages as examples
from eruca_broker.api.messages.octets import described_message, with_body
from eruca_broker.api.peers import born_address, born_host
from eruca_broker.api.tracing import traced
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.batches.delayed_batch import may_be_delayed
from eruca_broker.core.batches.gathered import SINGLE_BEGIN, Single, gather, is_single
from eruca_broker.processors.budgets import SendBudget
from eruca_broker.processors.idempotent_send import IdempotentSender, Replayed
from eruca_broker.processors.scheduled import StoredLater, StoredWaiting
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.singles import Gathering, Singles
from eruca_broker.store.log.appended import Appended
from eruca_chassis.admission.needs import in_path
from eruca_chassis.connections.exchange import (
    JSON_CREATED,
    AnswerHead,
    BodyLimit,
    Exchange,
    RequestHead,
)
from eruca_chassis.connections.gathered import (
    GATHERED_BODY_SIZE_MAX,
    Gathered,
    GatheredRequest,
    Gathers,
    Taker,
    answer_together,
    fail_together,
    give_back_together,
)
from eruca_chassis.documents.openapi import answer
from eruca_chassis.documents.problems import problems
from eruca_chassis.documents.schemas import Alternatives, in_json_as, in_octets
from eruca_chassis.requests.heads import fault
from eruca_chassis.requests.negotiation import choose
from eruca_chassis.routes.hot_router import HotEndpoint, HotRouter

router = HotRouter(prefix="/v1/topics/{topic}", tags=["messages"])

_IS_BATCH: Final = re.compile(rb'\s*\{\s*"messages"\s*:')
_ONE_EXAMPLE: Final = {"body": {"text": "hello"}, "tag": "greeting", "keys": ["greeting-1"]}
_ONE: Final = StructBody(NewMessage, _ONE_EXAMPLE)
_MANY: Final = StructBody(NewMessages, {"messages": [_ONE_EXAMPLE]})
_REQUEST: Final = Alternatives(
    "SendMessagesRequest", "One message, or a batch.", (NewMessage, NewMessages)
)
_ANSWER: Final = Alternatives(
    "SendMessagesAnswer", "One message's receipt, or a batch's.", (SendReceipt, SendReceipts)
)
_ENCODER: Final = msgspec.json.Encoder()
_JSON_REPLAYED: Final = AnswerHead(
    JSON_CREATED.status, *JSON_CREATED.headers, (REPLAYED_HEADER.encode(), b"true")
)
_ANSWERED_IN: Final = (JSON_MEDIA_TYPE,)

_SEND_ERRORS: Final[tuple[type[ErucaError], ...]] = (
    PermissionDeniedError,
    DerivedTopicError,
    SystemTopicError,
    TopicNotFoundError,
    QueueNotFoundError,
    ConflictError,
    NotAcceptableError,
    TooLargeError,
    UnsupportedMediaTypeError,
    ValidationError,
    IdempotencyKeyReusedError,
    OverloadedError,
    NotReadyError,
    DiskFullError,
    StoreFailedError,
    NotMasterError,
    NotMasterForSureError,
    NotEnoughReplicasError,
    OutcomeUnknownError,
    UnavailableError,
)
_REPLAYED: Final = {
    "Idempotent-Replayed": {
        "description": (
            "`true` if the same was sent under this key before. Nothing was stored now; the "
            "receipts name the places of the first send. Otherwise the header is missing."
        ),
        "schema": {"type": "string", "enum": ["true"]},
        "examples": {examples.AGAIN: {"summary": "the same was sent before", "value": "true"}},
    }
}

Topic = Annotated[TopicName, Path()]
_BARE: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~:/=@-]"
_QUOTED: Final = r'([!#-\[\]-~]|\\["\\])'
_SIZES: Final = f"{{1,{IDEMPOTENCY_KEY_SIZE_MAX}}}"
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description=(
            "Names this send, so that repeating it stores nothing twice: as a string in quotation "
            "marks, or as a plain word. Visible ASCII, no blanks."
        ),
        max_length=2 * IDEMPOTENCY_KEY_SIZE_MAX + 2,  # each character escaped, and in quotes
        pattern=f'^({_BARE}{_SIZES}|"{_QUOTED}{_SIZES}")$',
        examples=["order-17"],
    ),
]
Copies = Annotated[
    int,
    Query(
        ge=1,
        le=REPLICA_COUNT_MAX,
        description="Number of replicas in sync, the master included, without which nothing is "
        "stored. All replicas in sync hold a message when it is acknowledged.",
    ),
]
_IN_OCTETS: Final = f"Only for `{OCTETS_MEDIA_TYPE}`: in JSON it is in the body."
_MESSAGE_SCHEMA: Final = msgspec.json.schema_components([NewMessage])[1]["NewMessage"]


def _field(name: str, description: str) -> Any:  # noqa: ANN401 - as FastAPI's Query returns it
    """Return the declaration of a message's field in the query, by the message's own schema."""
    schema = _MESSAGE_SCHEMA["properties"][name]
    kinds = [kind for kind in schema.get("anyOf", (schema,)) if kind != {"type": "null"}]
    field = {key: value for key, value in kinds[0].items() if key != "default"}
    if field["type"] == "string" and "format" not in field:
        field = {"maxLength": PROPERTIES_SIZE_MAX, **field}
    return Query(description=f"{description} {_IN_OCTETS}", json_schema_extra=field)


class _Wanted(NamedTuple):
    """The destination of messages, from the head of a request."""

    topic: str
    queue_id: int | None  # None: a sharding key selects it, or the queues take turns
    key: str | None  # the request's idempotency key
    copies: int  # fewer replicas in sync are not enough
    described: NewMessage | None  # by the query, if the body is one message's octets


@router.hot(
    "POST",
    "/messages",
    operation_id="sendMessages",
    needs=to(Right.PRODUCE, topic=in_path("topic")),
    summary="Send one message, or a batch",
    status_code=HTTPStatus.CREATED,
    takes=(in_json_as(_REQUEST, examples.SENDS), in_octets(OCTETS_MEDIA_TYPE)),
    responses=answer(
        examples.RECEIPT,
        HTTPStatus.CREATED,
        model=_ANSWER,
        description="Stored. The answer to a batch is a list, in its order.",
        headers=_REPLAYED,
    )
    | problems(MalformedBodyError, *_SEND_ERRORS, MisdirectedError),
)
class SendMessages(HotEndpoint):
    """Append a message, or `{"messages": [...]}`, which is stored as a whole or not at all.

    A batch goes to one queue. The answer comes once the messages are as durable as `durability`
    says. `flushed` survives a power failure. `written` survives the broker's death but not the
    machine's, which may leave the beginning of a batch. A client that gets no answer cannot know
    whether the message is stored, and sends again. So consumers must expect duplicates, unless the
    client uses an idempotency key.

    With `application/octet-stream` the body is one message's body as it is. The query then contains
    the other fields of the JSON form, under the same names.

    A body sent as `json` is stored without white space between its tokens, and is returned as
    `json`. The request's `traceparent` and `tracestate` become properties of its messages, unless
    these have their own.

    If the `Idempotency-Key` was used before, nothing is stored again. The same content (JSON is
    compared by value) gets the first receipts and `Idempotent-Replayed: true`. Any other content
    gets 422 `idempotency-key-reused`. A second send waits while the first is in progress. A key is
    valid on one broker, for one topic, within the broker's `idempotency_window_seconds` (a day by
    default), and never longer than retention keeps the messages. The key becomes the message's id;
    the messages of a batch get `KEY-0`, `KEY-1` … If they have ids, the first one's must be the
    key.

    Messages with the same `sharding_key` always go to the same queue. Without one the topic's
    queues take turns, or `queue_id` selects the queue. If the topic has an `order_config`, a key
    has one queue among those of all brokers, and any broker but that queue's answers 421. An
    unknown topic is created, unless the broker's settings forbid it.
    """

    def __init__(
        self,
        sender: Sender,
        gathering: Gathering,
        idempotent: IdempotentSender,
        in_flight: SendBudget,
    ) -> None:
        self._sender = sender
        self._idempotent = idempotent
        self._singles: Singles[bytes, tuple[Exchange, str]] = Singles(
            gathering,
            together=batch_of_records,
            settled=self._answer_singles,
            send_alone=self._send_alone,
        )
        self._json_limit = BodyLimit(in_flight, JSON_BODY_SIZE_MAX, "json_body_size_max")
        self._octets_limit = BodyLimit(in_flight, BODY_SIZE_MAX, "body_bytes_max")

    @staticmethod
    def read(
        head: RequestHead,
        topic: Topic,
        *,
        queue_id: Annotated[
            int | None,
            Query(
                ge=0,
                le=QUEUE_ID_MAX,
                description="The queue; by default a sharding key selects it, or the queues take "
                "turns.",
            ),
        ] = None,
        tag: Annotated[str | None, _field("tag", "The message's tag.")] = None,
        keys: Annotated[
            list[str] | None, _field("keys", "A key of the message; may be given several times.")
        ] = None,
        sharding_key: Annotated[
            str | None,
            _field("sharding_key", "Selects the queue: the same key goes to the same queue."),
        ] = None,
        message_id: Annotated[str | None, _field("message_id", "The message's unique id.")] = None,
        flag: Annotated[
            int | None,
            Query(
                ge=-(2**31),
                le=2**31 - 1,
                description=f"The application's own number. {_IN_OCTETS}",
            ),
        ] = None,
        deliver_at: Annotated[
            str | None, _field("deliver_at", "The time of its delivery (RFC 3339).")
        ] = None,
        delay_seconds: Annotated[
            float | None,
            Query(
                ge=0,
                le=DELAY_SECONDS_MAX,
                description=f"The delay before its delivery. {_IN_OCTETS}",
            ),
        ] = None,
        delay_level: Annotated[
            int | None,
            Query(
                ge=1,
                le=DELAY_LEVEL_MAX,
                description=f"The same delay, by RocketMQ's levels. {_IN_OCTETS}",
            ),
        ] = None,
        properties: Annotated[
            list[Annotated[str, Field(pattern="^[^=]+=.+$")]] | None,
            Query(
                description="A property of the message, as `NAME=VALUE`; may be given several "
                f"times. {_IN_OCTETS}"
            ),
        ] = None,
        copies: Copies = 1,
        idempotency_key: IdempotencyKey = None,
    ) -> _Wanted:
        """Return the destination of the messages, and the fields that the query has for octets."""
        choose(head.headers.get(b"accept"), _ANSWERED_IN)
        given = {
            "tag": tag,
            "keys": keys,
            "sharding_key": sharding_key,
            "message_id": message_id,
            "flag": flag,
            "deliver_at": deliver_at,
            "delay_seconds": delay_seconds,
            "delay_level": delay_level,
            "properties": properties,
        }
        described = _described(
            head.media_type, {name: value for name, value in given.items() if value is not None}
        )
        return _Wanted(topic, queue_id, _key(idempotency_key), copies, described)

    def admit(self, exchange: Exchange) -> None:
        """Refuse the request if the head is enough to refuse it."""
        topic, queue_id, key, copies, described = exchange.request.meaning
        self._sender.admit(topic, queue_id, copies=copies, may_be_stored=key is not None)
        exchange.expect_body(self._json_limit if described is None else self._octets_limit)

    def handle(self, exchange: Exchange) -> None:
        """Store the messages; :meth:`_answer` or :meth:`_answer_singles` answers."""
        topic, queue_id, key, _, _ = exchange.request.meaning
        messages, pointers, is_batch = _messages(exchange)
        peer = born_host(exchange.client)
        done = partial(exchange.resume, self._answer, exchange, is_batch)
        if key is not None:
            self._idempotent.send(
                topic, queue_id, key, messages, pointers, peer, done, is_batch=is_batch
            )
            return
        draft = self._sender.draft(topic, queue_id, messages, pointers, peer)
        if is_batch or not draft.is_single or peer.is_v6:
            self._sender.send_draft(draft, pointers, peer, done)
            return
        [record], [unique_id] = draft.records, draft.unique_ids
        self._singles.add(draft.destination, record, len(record), (exchange, unique_id))

    def _send_alone(self, callers: Sequence[tuple[Exchange, str]]) -> None:
        for exchange, _ in callers:
            exchange.resume(self._send, exchange)

    def _send(self, exchange: Exchange) -> None:
        topic, queue_id, _, _, _ = exchange.request.meaning
        messages, pointers, is_batch = _messages(exchange)
        peer = born_host(exchange.client)
        done = partial(exchange.resume, self._answer, exchange, is_batch)
        self._sender.send(topic, queue_id, messages, pointers, peer, done)

    def _answer(
        self,
        exchange: Exchange,
        is_batch: bool,  # noqa: FBT001 - bound by position
        unique_ids: Sequence[str],
        outcome: Appended | StoredLater | Replayed | Exception,
    ) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        head = JSON_CREATED
        if isinstance(outcome, Replayed):
            head, receipts = _JSON_REPLAYED, self._idempotent.receipts_of(outcome)
        else:
            receipts = self._sender.receipts_of(outcome, unique_ids)
        said = SendReceipts(receipts) if is_batch else receipts[0]
        exchange.answer(head, _ENCODER.encode(said))

    def _answer_singles(
        self, callers: Sequence[tuple[Exchange, str]], outcome: Appended | Exception
    ) -> None:
        if isinstance(outcome, Exception):
            for exchange, _ in callers:
                exchange.fail(outcome)
            return
        receipts = self._sender.receipts_of(outcome, [unique_id for _, unique_id in callers])
        for (exchange, _), receipt in zip(callers, receipts, strict=True):
            exchange.resume(exchange.answer, JSON_CREATED, _ENCODER.encode(receipt))


@router.hot(
    "POST",
    "/queues/{queue_id}/records",
    operation_id="sendRecords",
    needs=to(Right.PRODUCE, topic=in_path("topic")),
    summary="Send a batch of encoded records",
    status_code=HTTPStatus.CREATED,
    takes=(in_octets(RECORDS_MEDIA_TYPE, f"At most {BATCH_COUNT_MAX} messages."),),
    responses=answer(
        examples.BATCH_RECEIPT,
        HTTPStatus.CREATED,
        model=BatchReceipt,
        description="Stored.",
        headers=_REPLAYED,
    )
    | problems(MalformedBatchError, LaneGapError, *_SEND_ERRORS),
)
class SendRecords(HotEndpoint):
    """Append a batch that the client has encoded as the log stores it; the SDK's fast way.

    The broker's fields must be zero. The batch is verified as a whole. It is stored as a whole, at
    consecutive offsets, or refused. The answer comes once it is as durable as `durability` says.

    An `Idempotency-Key` must be the first record's unique id; it works as for sending messages.

    A producer may send the batches of a queue in order on one connection, without waiting for each
    answer. Each batch then has a position in its lane. It is stored only if the one before it is;
    otherwise the answer is 409 `lane-gap`, and nothing is stored.

    A batch of the form for it may contain messages that are delivered later. Then `scheduled` has
    the place of each.

    The SDK's `eruca.contract.wire` and `eruca.contract.records` describe the layout of a batch.
    """

    def __init__(
        self,
        sender: Sender,
        gathering: Gathering,
        idempotent: IdempotentSender,
        in_flight: SendBudget,
    ) -> None:
        self._sender = sender
        self._idempotent = idempotent
        self._in_flight = in_flight
        self._singles: Singles[Single, Gathered] = Singles(
            gathering,
            together=partial(gather, sender.store_host),
            settled=self._answer_singles,
            send_alone=self._send_alone,
        )
        self._limit = BodyLimit(in_flight, BATCH_BODY_SIZE_MAX, "batch_body_size_max")

    @staticmethod
    def read(
        head: RequestHead,
        topic: Topic,
        queue_id: Annotated[QueueId, Path(examples=[0])],
        *,
        copies: Copies = 1,
        idempotency_key: IdempotencyKey = None,
    ) -> tuple[str, int, str | None, int]:
        """Return the destination of the records, their idempotency key, and the copies wanted."""
        choose(head.headers.get(b"accept"), _ANSWERED_IN)
        return topic, queue_id, _key(idempotency_key), copies

    def admit(self, exchange: Exchange) -> None:
        """Refuse the request if the head is enough to refuse it."""
        topic, queue_id, key, copies = exchange.request.meaning
        self._sender.admit(topic, queue_id, copies=copies, may_be_stored=key is not None)
        exchange.expect_body(self._limit)

    def handle(self, exchange: Exchange) -> None:
        """Store the batch; :meth:`_answer` or :meth:`_answer_singles` answers."""
        topic, queue_id, key, _ = exchange.request.meaning
        body = exchange.body
        if key is None and is_single(body):
            address = born_address(exchange.client)
            if len(address) == IPV4_HOST_SIZE:
                self._singles.add((topic, queue_id), (body, 0, address), len(body), exchange)
                return
        self._send(exchange)

    def gathers(self, head: RequestHead) -> Gathers | None:
        """Gather small batches of one record that need nothing but their place."""
        topic, queue_id, key, copies = head.meaning
        if key is not None or copies > 1 or (head.body_size or 0) > GATHERED_BODY_SIZE_MAX:
            return None
        return Gathers(SINGLE_BEGIN, self._in_flight, partial(self._taker, (topic, queue_id)))

    def _taker(
        self, queue: tuple[str, int], client: tuple[str, int] | None, head_size: int
    ) -> Taker | None:
        address = born_address(client)
        if len(address) != IPV4_HOST_SIZE:
            return None
        add = self._singles.add

        def take(request: GatheredRequest, data: bytes) -> None:
            add(queue, (data, head_size, address), len(data), request)

        return take

    def _send_alone(self, requests: Sequence[Gathered]) -> None:
        give_back_together(requests)
        for request in requests:
            exchange = request.begun() if isinstance(request, GatheredRequest) else request
            if exchange is not None:
                exchange.resume(self._send, exchange)

    def _send(self, exchange: Exchange) -> None:
        topic, queue_id, key, _ = exchange.request.meaning
        peer = born_host(exchange.client)
        done = partial(exchange.resume, self._answer, exchange)
        buffer = exchange.buffer
        if may_be_delayed(buffer):
            if key is not None:
                raise fault(
                    "header", "idempotency-key", "a batch of delayed records has no idempotency key"
                )
            told = partial(exchange.resume, self._answer_requests, exchange)
            self._sender.send_requests(topic, queue_id, buffer, peer, told)
            return
        position = batch_position(buffer)
        if position is not None:
            if key is not None:
                raise fault(
                    "header",
                    "idempotency-key",
                    "a batch at a position of a lane has no idempotency key",
                )
            self._sender.send_in_lane(position, topic, queue_id, buffer, peer, done)
        elif key is None:
            self._sender.send_records(topic, queue_id, buffer, peer, done)
        else:
            self._idempotent.send_records(topic, queue_id, key, buffer, peer, done)

    def _answer(self, exchange: Exchange, outcome: Appended | Replayed | Exception) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, Replayed):
            receipt = self._idempotent.receipt_of(outcome)
            exchange.answer(_JSON_REPLAYED, _ENCODER.encode(receipt))
        else:
            exchange.answer(JSON_CREATED, _ENCODER.encode(self._sender.receipt_of(outcome)))

    def _answer_requests(
        self, exchange: Exchange, outcome: StoredWaiting | StoredLater | Exception
    ) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        receipt = self._sender.receipt_of_requests(outcome)
        exchange.answer(JSON_CREATED, _ENCODER.encode(receipt))

    def _answer_singles(self, requests: Sequence[Gathered], outcome: Appended | Exception) -> None:
        if isinstance(outcome, Exception):
            fail_together(requests, outcome)
        else:
            receipts = self._sender.single_receipts_of(outcome)
            answer_together(requests, JSON_CREATED, receipts)


def _described(media_type: str | None, given: Mapping[str, Any]) -> NewMessage | None:
    """Return the message that the query describes; None if the body contains everything."""
    if media_type == OCTETS_MEDIA_TYPE:
        return described_message(given)
    for name in given:
        raise fault(
            "query",
            name,
            f"only {OCTETS_MEDIA_TYPE} has this field in the query; in JSON it is in the body",
        )
    return None


def _messages(exchange: Exchange) -> tuple[list[NewMessage], list[str], bool]:
    """Return the messages of a request, the place of each in it, and whether they are a batch."""
    described, body = exchange.request.meaning.described, exchange.body
    is_batch = described is None and _IS_BATCH.match(body) is not None
    messages: list[NewMessage]
    if described is not None:
        messages, pointers = [with_body(described, bytes(body))], ["/query"]
    elif is_batch:
        messages = _MANY.read(body).messages
        pointers = [f"/body/messages/{index}" for index in range(len(messages))]
    else:
        messages, pointers = [_ONE.read(body)], ["/body"]
    return traced(messages, exchange.request), pointers, is_batch


def _key(value: str | None) -> str | None:
    return None if value is None else decode_key(value)
