"""The hot routes' part of the OpenAPI document, declared by hand.

Schemas come from the very structs that decode and encode the bodies; limits of the query are those
the handlers check. A test holds the declared operations equal to the dispatched ones.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from eruca.contract.deliveries import DeliveryAnswer
from eruca.contract.errors import (
    ConflictError,
    DerivedTopicError,
    DiskFullError,
    ErucaError,
    FilterSyntaxError,
    IdempotencyKeyReusedError,
    MalformedBatchError,
    MalformedBodyError,
    MisdirectedError,
    NotAcceptableError,
    NotReadyError,
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
from eruca.contract.fields import OFFSET_MAX
from eruca.contract.limits import (
    BATCH_COUNT_MAX,
    DERIVED_TOPIC_SIZE_MAX,
    FILTER_SIZE_MAX,
    IDEMPOTENCY_KEY_SIZE_MAX,
    PROPERTIES_SIZE_MAX,
    PULL_COUNT_DEFAULT,
    PULL_COUNT_MAX,
    PULL_SIZE_DEFAULT,
    PULL_SIZE_MAX,
    WAIT_SECONDS_MAX,
)
from eruca.contract.messages import (
    BatchReceipt,
    FoundMessages,
    LogAnswer,
    LogRecordView,
    MultiPullAnswer,
    NewMessage,
    NewMessages,
    PullAnswer,
    SendReceipt,
    SendReceipts,
)
from eruca.contract.names import NAME_PATTERN
from eruca.contract.wire import OCTETS_MEDIA_TYPE, RECORDS_MEDIA_TYPE
from eruca_broker.api.examples import messages as examples
from eruca_broker.api.hot.pull import MultiPullRequest
from eruca_broker.api.hot.query import QUEUE_ID_MAX
from eruca_broker.api.hot.routes import MULTI_PULL_PATH, PULL_PATH, RECORDS_PATH, SEND_PATH
from eruca_broker.api.hot.transaction_openapi import TRANSACTION_OPERATIONS, TRANSACTION_STRUCTS
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE
from eruca_broker.core.consuming.message_filter import FILTER_TYPES
from eruca_chassis.documents.problems import problems

Json: TypeAlias = dict[str, Any]

_STRUCTS: Final = (
    NewMessage,
    NewMessages,
    SendReceipt,
    SendReceipts,
    BatchReceipt,
    PullAnswer,
    MultiPullRequest,
    MultiPullAnswer,
    FoundMessages,
    LogAnswer,
    LogRecordView,
    DeliveryAnswer,
    *TRANSACTION_STRUCTS,
)
_REF: Final = "#/components/schemas/"
# Alternatives have names: of one without, Go's generator makes a type that encodes as nothing.
_ALTERNATIVES: Final[Json] = {
    "SendMessagesRequest": {
        "description": "One message, or a batch.",
        "anyOf": [{"$ref": _REF + "NewMessage"}, {"$ref": _REF + "NewMessages"}],
    },
    "SendMessagesAnswer": {
        "description": "One message's receipt, or a batch's.",
        "anyOf": [{"$ref": _REF + "SendReceipt"}, {"$ref": _REF + "SendReceipts"}],
    },
}
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}

_SEND_ERRORS: Final[tuple[type[ErucaError], ...]] = (
    MalformedBodyError,
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
    UnavailableError,
)
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

_RECEIPT_EXAMPLE: Final = {
    "topic": "flights",
    "broker_name": "broker-a",
    "queue_id": 3,
    "queue_offset": 1041,
    "log_offset": 8_201_544,
    "message_id": "7F00000100002A9F000000000134F1F5",
    "offset_message_id": "7F00000100002A9F00000000007D2548",
    "stored_at": "2026-11-21T08:00:00.123Z",
    "durability": "written",
    "deliver_at": None,
    "recall_handle": None,
}
_MESSAGE_EXAMPLE: Final = {
    "body": {"json": {"flight": 1545, "origin": "EWR"}},
    "tag": "UA",
    "keys": ["UA1545"],
    "sharding_key": "N14228",
}
_PULL_EXAMPLE: Final = {
    "status": "found",
    "messages": [examples.MESSAGE],
    "next_offset": 1042,
    "min_offset": 0,
    "max_offset": 1042,
}

_TOPIC: Final = {
    "name": "topic",
    "in": "path",
    "required": True,
    "description": "Letters, digits, %, |, _ and -; up to 127 of them (255 when derived).",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": DERIVED_TOPIC_SIZE_MAX,
        "pattern": NAME_PATTERN,
        "examples": ["flights"],
    },
}


def _integer(least: int, most: int, **more: object) -> Json:
    return {"type": "integer", "format": "int64", "minimum": least, "maximum": most, **more}


_QUEUE_ID: Final = {
    "name": "queue_id",
    "in": "path",
    "required": True,
    "schema": _integer(0, QUEUE_ID_MAX, examples=[0]),
}


def _parameter(name: str, description: str, schema: Json, *, required: bool = False) -> Json:
    return {
        "name": name,
        "in": "query",
        "required": required,
        "description": description,
        "schema": schema,
    }


def _schema_of(name: str) -> Json:
    """Return the schema of a message's field, as a parameter that is there has it."""
    schema: Json = _MESSAGE_SCHEMA["properties"][name]
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    found = kinds[0] if kinds else {key: schema[key] for key in schema if key != "default"}
    if found["type"] == "string" and "format" not in found:
        found = {"maxLength": PROPERTIES_SIZE_MAX} | found
    return found


_MESSAGE_SCHEMA: Final = msgspec.json.schema_components([NewMessage])[1]["NewMessage"]
_DESCRIBED: Final = [
    _parameter(name, f"{what} Only of `{OCTETS_MEDIA_TYPE}`: JSON says it in the body.", schema)
    for name, what, schema in (
        *(
            (name, what, _schema_of(name))
            for name, what in (
                ("tag", "The message's tag."),
                ("keys", "A key of the message; may be given several times."),
                ("sharding_key", "What selects the queue: same key, same queue."),
                ("message_id", "Its unique id."),
                ("flag", "The application's own number."),
                ("deliver_at", "When it is to be delivered (RFC 3339)."),
                ("delay_seconds", "How long it waits before it is delivered."),
                ("delay_level", "The same, by RocketMQ's levels."),
            )
        ),
        (
            "properties",
            "A property of its own, as `NAME=VALUE`; may be given several times.",
            {"type": "array", "items": {"type": "string", "pattern": "^[^=]+=.+$"}},
        ),
    )
]
_BARE: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~:/=@-]"
_QUOTED: Final = r'([!#-\[\]-~]|\\["\\])'
_SIZES: Final = f"{{1,{IDEMPOTENCY_KEY_SIZE_MAX}}}"
_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": (
        "Names this send, so that repeating it stores nothing twice: as a string in quotation "
        "marks, or as a plain word. Visible ASCII, no blanks."
    ),
    "schema": {
        "type": "string",
        "maxLength": 2 * IDEMPOTENCY_KEY_SIZE_MAX + 2,  # each character escaped, and in quotes
        "pattern": f'^({_BARE}{_SIZES}|"{_QUOTED}{_SIZES}")$',
        "examples": ["order-17"],
    },
}
_AGAIN: Final = "again"  # what the examples of a repeated send are called
_REPLAYED: Final = {
    "Idempotent-Replayed": {
        "description": (
            "`true` where the same was sent under this key before: nothing was stored now, and the "
            "receipts say where it lies. Else the header is not there."
        ),
        "schema": {"type": "string", "enum": ["true"]},
        "examples": {_AGAIN: {"summary": "the same was sent before", "value": "true"}},
    }
}
_UNDER_A_KEY: Final = (
    "With an `Idempotency-Key` that was used before, nothing is stored again: the same content, of "
    "JSON the same value, is answered with the first receipts and `Idempotent-Replayed: true`, any "
    "other with 422 `idempotency-key-reused`. While the first is on its way, a second waits for "
    "it. This holds on one broker, for one topic, within the broker's "
    "`idempotency_window_seconds` (a day by default), and never longer than "
    "retention keeps the messages."
)


def _responses(status: int, success: Json, errors: tuple[type[ErucaError], ...]) -> Json:
    declared = {str(code): response for code, response in problems(*errors).items()}
    return {str(status): success, **declared}


def _json(schema: Json, example: object) -> Json:
    return {JSON_MEDIA_TYPE: {"schema": schema, "example": example}}


_OPERATIONS: Final[dict[str, dict[str, Json]]] = {
    SEND_PATH: {
        "post": {
            "operationId": "sendMessages",
            "tags": ["messages"],
            "summary": "Send one message, or a batch",
            "description": (
                'Append a message, or `{"messages": [...]}`, which is stored as a whole or not '
                "at all, in one queue. The answer comes once they are as durable as `durability` "
                "says: `flushed` survives power loss, `written` survives the broker's death but "
                "not the machine's, which may leave the beginning of a batch. A client that gets "
                "no answer cannot know, and sends again: consumers must expect duplicates, unless "
                "it sends under a key.\n\n"
                f"As `{OCTETS_MEDIA_TYPE}` the body is one message's body as it is, and what JSON "
                "has beside it is said in the query, under the same names.\n\n"
                "A body sent as `json` is stored without the white space between its tokens, and "
                "comes back as `json`. A `traceparent` of the request, with its `tracestate`, "
                "becomes a property of its messages, unless they have one.\n\n"
                f"{_UNDER_A_KEY} The key becomes the message's id; the messages of a batch get "
                "`KEY-0`, `KEY-1` … Where they bring ids, the first one's must be the key.\n\n"
                "Messages of one `sharding_key` always go to the same queue; without one the "
                "topic's queues take turns, or `queue_id` says which. Where the topic has an "
                "`order_config`, a key has one queue among those of all brokers, and another "
                "broker than that queue's answers 421. A topic that does not exist is created, "
                "unless the broker is set not to."
            ),
            "parameters": [
                _TOPIC,
                _parameter(
                    "queue_id",
                    "The queue; by default a sharding key selects it, or the queues take turns.",
                    _integer(0, QUEUE_ID_MAX),
                ),
                *_DESCRIBED,
                _KEY,
            ],
            "requestBody": {
                "required": True,
                "content": {
                    JSON_MEDIA_TYPE: {
                        "schema": {"$ref": _REF + "SendMessagesRequest"},
                        "examples": {
                            "one": {"summary": "one message", "value": _MESSAGE_EXAMPLE},
                            "batch": {
                                "summary": "a batch",
                                "value": {
                                    "messages": [
                                        {"body": {"text": "first"}},
                                        {"body": {"base64": "c2Vjb25k"}, "tag": "AA"},
                                    ]
                                },
                            },
                            _AGAIN: {
                                "summary": "the same again, under its `Idempotency-Key`",
                                "value": _MESSAGE_EXAMPLE,
                            },
                        },
                    },
                    OCTETS_MEDIA_TYPE: _BINARY,
                },
            },
            "responses": _responses(
                201,
                {
                    "description": "Stored. A batch is answered with a list, in its order.",
                    "headers": _REPLAYED,
                    "content": _json(
                        {"$ref": _REF + "SendMessagesAnswer"},
                        _RECEIPT_EXAMPLE,
                    ),
                },
                (*_SEND_ERRORS, MisdirectedError),
            ),
        }
    },
    RECORDS_PATH: {
        "post": {
            "operationId": "sendRecords",
            "tags": ["messages"],
            "summary": "Send a batch of encoded records",
            "description": (
                "Append a batch that the client has encoded as the log stores it, with the "
                "broker's fields left zero: the fast way, which the SDK uses. The batch is checked "
                "as a whole and stored as a whole, at consecutive offsets, or refused. The answer "
                "comes once it is as durable as `durability` says.\n\n"
                f"{_UNDER_A_KEY} The key is the first record's unique id.\n\n"
                f"At most {BATCH_COUNT_MAX} messages; the layout is in the SDK's "
                "`eruca.contract.wire` and `eruca.contract.records`."
            ),
            "parameters": [_TOPIC, _QUEUE_ID, _KEY],
            "requestBody": {"required": True, "content": {RECORDS_MEDIA_TYPE: _BINARY}},
            "responses": _responses(
                201,
                {
                    "description": "Stored.",
                    "headers": _REPLAYED,
                    "content": _json(
                        {"$ref": _REF + "BatchReceipt"},
                        {
                            "queue_id": 3,
                            "queue_offset": 1041,
                            "log_offset": 8_201_544,
                            "count": 1000,
                            "store_timestamp_ms": 1_795_248_000_123,
                            "durability": "flushed",
                            "born_host_is_ipv6": False,
                        },
                    ),
                },
                (MalformedBatchError, *_SEND_ERRORS[1:]),
            ),
        }
    },
    PULL_PATH: {
        "get": {
            "operationId": "pullMessages",
            "tags": ["messages"],
            "summary": "Pull messages from a queue",
            "description": (
                "Read messages from `offset` on, in queue order; no session is needed, and nothing "
                "is taken out of the queue. At the queue's end the request is held for up to "
                "`wait_seconds` and answered as soon as a message arrives that the filter lets "
                "pass, or at the end of that time with `no_new_message`, which is no error: pull "
                "again from `next_offset`.\n\n"
                f"With `Accept: {RECORDS_MEDIA_TYPE}` the answer is the log's own bytes behind a "
                "preamble. There a filter of tags compares their hashes alone, as the client must "
                "know; in JSON the tags themselves are compared. A filter of type `sql92` is "
                "decided here in both forms.\n\n"
                "A filter that lets little through is answered after a bounded look at messages, "
                "with `no_matched_message` and the `next_offset` it got to: pull again from there."
            ),
            "parameters": [
                _TOPIC,
                _QUEUE_ID,
                _parameter(
                    "offset",
                    "Queue offset of the first message wanted.",
                    _integer(0, OFFSET_MAX, examples=[0]),
                    required=True,
                ),
                _parameter(
                    "max_count",
                    "Messages in the answer, at most.",
                    _integer(1, PULL_COUNT_MAX, default=PULL_COUNT_DEFAULT),
                ),
                _parameter(
                    "max_bytes",
                    "Bytes of records, at most; the first message always comes.",
                    _integer(1, PULL_SIZE_MAX, default=PULL_SIZE_DEFAULT),
                ),
                _parameter(
                    "wait_seconds",
                    "How long to wait at the end of the queue.",
                    {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX, "default": 0},
                ),
                _parameter(
                    "filter",
                    "Tags, as in `AA || UA`, or, with `filter_type=sql92`, a condition over "
                    "properties, as in `delay > 15 AND origin = 'JFK'`; `*` is all.",
                    {"type": "string", "maxLength": FILTER_SIZE_MAX, "default": "*"},
                ),
                _parameter(
                    "filter_type",
                    "What `filter` is.",
                    {"type": "string", "enum": list(FILTER_TYPES), "default": FILTER_TYPES[0]},
                ),
                _parameter(
                    "include_system",
                    "The topic may be one that the system keeps for itself, to be read and no "
                    "more: `RMQ_SYS_TRANS_HALF_TOPIC` …",
                    {"type": "boolean", "default": False},
                ),
            ],
            "responses": _responses(
                200,
                {
                    "description": "What was found; `status` says why where that is nothing.",
                    "content": _json({"$ref": _REF + "PullAnswer"}, _PULL_EXAMPLE)
                    | {RECORDS_MEDIA_TYPE: _BINARY},
                },
                _PULL_ERRORS,
            ),
        }
    },
    MULTI_PULL_PATH: {
        "post": {
            "operationId": "pullManyQueues",
            "tags": ["messages"],
            "summary": "Pull messages from many queues",
            "description": (
                "Read from several queues in one request, as if each were pulled by itself; only "
                "queues with something to say are in the answer. Where none has anything the "
                "request is held for up to `wait_seconds`, on all of them at once. The limits are "
                "of the whole answer, shared out among the queues that have messages."
            ),
            "parameters": [],
            "requestBody": {
                "required": True,
                "content": _json(
                    {"$ref": _REF + "MultiPullRequest"},
                    {
                        "queues": [
                            {"topic": "flights", "queue_id": 0, "offset": 1200},
                            {"topic": "flights", "queue_id": 1, "offset": 977, "filter": "AA"},
                            {
                                "topic": "flights",
                                "queue_id": 2,
                                "offset": 1044,
                                "filter": "delay > 15 AND origin = 'JFK'",
                                "filter_type": "sql92",
                            },
                        ],
                        "max_count": 256,
                        "wait_seconds": 15,
                    },
                ),
            },
            "responses": _responses(
                200,
                {
                    "description": "What was found, by queue.",
                    "content": _json(
                        {"$ref": _REF + "MultiPullAnswer"},
                        {"queues": [{"topic": "flights", "queue_id": 3, "answer": _PULL_EXAMPLE}]},
                    )
                    | {RECORDS_MEDIA_TYPE: _BINARY},
                },
                (
                    MalformedBodyError,
                    TooLargeError,
                    UnsupportedMediaTypeError,
                    *_PULL_ERRORS,
                ),
            ),
        }
    },
}


def add_hot_operations(document: Json) -> None:
    """Add the hot routes and every schema made of structs to an OpenAPI document."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template=_REF + "{name}")
    schemas.update(components)
    schemas.update(_ALTERNATIVES)
    paths = document.setdefault("paths", {})
    for path, item in (_OPERATIONS | TRANSACTION_OPERATIONS).items():
        paths.setdefault(path, {}).update(item)
