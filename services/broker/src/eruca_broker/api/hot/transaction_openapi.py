"""The OpenAPI operations of the hot routes of transactions, declared by hand."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from eruca.contract.errors import (
    AlreadyDecidedError,
    CheckOutOfTurnError,
    ConflictError,
    DerivedTopicError,
    DiskFullError,
    ErucaError,
    MalformedBodyError,
    MisdirectedError,
    NotAcceptableError,
    NotReadyError,
    OtherProducerGroupError,
    OverloadedError,
    PermissionDeniedError,
    QueueNotFoundError,
    StoreFailedError,
    SystemTopicError,
    TooLargeError,
    TopicNotFoundError,
    TransactionIdInUseError,
    TransactionNotFoundError,
    UnavailableError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca.contract.limits import TRANSACTION_ID_SIZE_MAX
from eruca.contract.transactions import (
    TRANSACTION_ID_PATTERN,
    Decide,
    DecisionReceipt,
    NewTransaction,
    TransactionReceipt,
)
from eruca_broker.api.examples import transactions as examples
from eruca_broker.api.negotiation import JSON_MEDIA_TYPE
from eruca_chassis.documents.problems import problems

Json: TypeAlias = dict[str, Any]

TRANSACTION_STRUCTS: Final = (NewTransaction, TransactionReceipt, Decide, DecisionReceipt)
_REF: Final = "#/components/schemas/"
_WRITE_ERRORS: Final[tuple[type[ErucaError], ...]] = (
    MalformedBodyError,
    NotAcceptableError,
    TooLargeError,
    UnsupportedMediaTypeError,
    ValidationError,
    OverloadedError,
    NotReadyError,
    DiskFullError,
    StoreFailedError,
    UnavailableError,
)
_BEGIN_ERRORS: Final[tuple[type[ErucaError], ...]] = (
    PermissionDeniedError,
    DerivedTopicError,
    SystemTopicError,
    TopicNotFoundError,
    QueueNotFoundError,
    ConflictError,
    TransactionIdInUseError,
    AlreadyDecidedError,
    MisdirectedError,
    *_WRITE_ERRORS,
)
_DECIDE_ERRORS: Final[tuple[type[ErucaError], ...]] = (
    TransactionNotFoundError,
    TopicNotFoundError,
    AlreadyDecidedError,
    OtherProducerGroupError,
    CheckOutOfTurnError,
    *_WRITE_ERRORS,
)
_TRANSACTION_ID: Final = {
    "name": "transaction_id",
    "in": "path",
    "required": True,
    "description": "The unique id of the message.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": TRANSACTION_ID_SIZE_MAX,
        "pattern": TRANSACTION_ID_PATTERN,
        "examples": ["7F00000100002A9F000000000134F1F5"],
    },
}


def _content(name: str, example: object) -> Json:
    return {JSON_MEDIA_TYPE: {"schema": {"$ref": _REF + name}, "example": example}}


def _responses(successes: Json, errors: tuple[type[ErucaError], ...]) -> Json:
    return successes | {str(code): response for code, response in problems(*errors).items()}


def _decide(operation: str, summary: str, description: str, body: Json, answer: object) -> Json:
    return {
        "post": {
            "operationId": operation,
            "tags": ["transactions"],
            "summary": summary,
            "description": description,
            "parameters": [_TRANSACTION_ID],
            "requestBody": {
                "required": True,
                "content": {
                    JSON_MEDIA_TYPE: {"schema": {"$ref": _REF + "Decide"}, "examples": body}
                },
            },
            "responses": _responses(
                {
                    "200": {
                        "description": "Decided; `repeated` where it had been decided so before.",
                        "content": _content("DecisionReceipt", answer),
                    }
                },
                _DECIDE_ERRORS,
            ),
        }
    }


TRANSACTION_OPERATIONS: Final[dict[str, dict[str, Json]]] = {
    "/v1/transactions": {
        "post": {
            "operationId": "beginTransaction",
            "tags": ["transactions"],
            "summary": "Store a half message",
            "description": (
                "Store a message that no consumer sees until it is committed. Do the local work "
                "after the answer, then commit or roll back at this same broker. If neither "
                "happens, the transaction checker asks the producer group, and gives up in the "
                "end: the message is rolled back, and parked for an operator.\n\n"
                "The transaction's id is the message's `message_id`, or one that is made here. "
                "With an id of its own a request may be repeated: the answer is then 200 and "
                "`repeated`. A delay counts from the commit; `deliver_at` is a time all the same."
            ),
            "parameters": [],
            "requestBody": {"required": True, "content": _content("NewTransaction", examples.NEW)},
            "responses": _responses(
                {
                    "201": {
                        "description": "Stored.",
                        "content": _content("TransactionReceipt", examples.RECEIPT),
                    },
                    "200": {
                        "description": "It had been stored before, and is not decided.",
                        "content": _content(
                            "TransactionReceipt", examples.RECEIPT | {"repeated": True}
                        ),
                    },
                },
                _BEGIN_ERRORS,
            ),
        }
    },
    "/v1/transactions/{transaction_id}:commit": _decide(
        "commitTransaction",
        "Commit a transaction",
        "Let the message be seen: it is stored in its queue, in one write with the decision. The "
        "first decision wins; committing again is answered the same, with `repeated`, and "
        "committing what was rolled back is 409 `already-decided`, whose `decision` says when and "
        "by whom.\n\n"
        "A transaction that was given up on is `parked`: an operator may still commit it.",
        {
            "producer": {"summary": "by its producer", "value": examples.COMMIT},
            "check": {"summary": "in answer to a check", "value": examples.COMMIT_BY_CHECK},
            "operator": {"summary": "by an operator", "value": examples.COMMIT_BY_OPERATOR},
        },
        examples.COMMITTED,
    ),
    "/v1/transactions/{transaction_id}:rollback": _decide(
        "rollBackTransaction",
        "Roll back a transaction",
        "See to it that the message is never seen. The first decision wins, as for committing. An "
        "operator who rolls back a parked transaction discards it.",
        {"producer": {"summary": "by its producer", "value": examples.ROLLBACK}},
        examples.ROLLED_BACK,
    ),
}
