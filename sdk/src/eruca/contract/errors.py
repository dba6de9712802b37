"""One tree of errors for both ends: services raise them, the SDK raises the same class again.

Over HTTP an error is an RFC 9457 problem document (``application/problem+json``)::

    type        "/problems/<code>"
    title       the class's one-line meaning
    status      the HTTP status
    detail      what happened here, with the names and values involved
    code        stable, kebab-case; what programs branch on
    request_id  to find it in the service's log
    retryable   whether the same request may succeed later, unchanged
    fix         what the caller can do about it; null where the detail says it by itself
    errors      [{"pointer", "detail"}] for each field that failed validation, else absent

The tree::

    ErucaError
    ├── RequestError              the request is wrong; repeating it is useless          4xx
    │   ├── ValidationError           422 validation-failed
    │   │   └── FilterSyntaxError         filter-syntax
    │   ├── IdempotencyKeyReusedError 422 idempotency-key-reused
    │   ├── MalformedBodyError        400 malformed-body
    │   ├── MalformedBatchError       400 malformed-records
    │   ├── TooLargeError             413 too-large
    │   ├── UnsupportedMediaTypeError 415 unsupported-media-type
    │   ├── NotAcceptableError        406 not-acceptable
    │   ├── MethodNotAllowedError     405 method-not-allowed
    │   └── NotFoundError             404 not-found
    │       ├── TopicNotFoundError        topic-not-found
    │       ├── QueueNotFoundError        queue-not-found
    │       ├── GroupNotFoundError        group-not-found
    │       ├── MemberNotFoundError       member-not-found
    │       ├── DeadLetterNotFoundError   dead-letter-not-found
    │       ├── ScheduledNotFoundError    scheduled-not-found
    │       ├── TransactionNotFoundError  transaction-not-found
    │       ├── CheckNotFoundError        check-not-found
    │       ├── WebhookNotFoundError      webhook-not-found
    │       ├── RecordNotFoundError       record-not-found
    │       ├── MessageNotFoundError      message-not-found
    │       ├── BrokerNotFoundError       broker-not-found
    │       └── KeyNotFoundError          key-not-found
    ├── RefusedError              understood, and not allowed in this state              4xx
    │   ├── PermissionDeniedError     403 permission-denied
    │   ├── SystemTopicError          403 system-topic-protected
    │   ├── CrossSiteError            403 cross-site
    │   ├── ConflictError             409 conflict
    │   │   ├── SubscriptionConflictError subscription-conflict
    │   │   ├── ClientIdInUseError        client-id-in-use
    │   │   ├── StaleLockError            stale-lock
    │   │   ├── AlreadyDeliveredError     already-delivered
    │   │   ├── AlreadyDecidedError       already-decided
    │   │   ├── CheckOutOfTurnError       check-out-of-turn
    │   │   ├── OtherProducerGroupError   other-producer-group
    │   │   ├── TransactionIdInUseError   transaction-id-in-use
    │   │   └── StaleHandleError          stale-handle
    │   ├── ExpiredHandleError        410 expired-handle
    │   └── RangeDeletedError         410 range-deleted
    ├── UnavailableError          may succeed later; carries retry_after_seconds         429, 503
    │   ├── OverloadedError           429 overloaded
    │   ├── NotReadyError             503 not-ready
    │   ├── DiskFullError             503 disk-full
    │   ├── DatabaseUnavailableError  503 database-unavailable
    │   ├── BrokerUnreachableError    503 broker-unreachable
    │   ├── SearchIncompleteError     503 search-incomplete
    │   └── StoreFailedError          503 store-failed
    ├── InternalError             a defect; logged under its request_id                  500
    └── ClientError               raised by the SDK itself, never sent
        ├── NameServersUnreachableError
        ├── NoRouteError
        ├── TransportError
        ├── TimeoutExpiredError
        ├── ClosedError
        ├── DamagedMessageError
        ├── OffsetOutOfRangeError
        ├── NoCommittedOffsetError
        └── SendFailedError
            └── PartialSendError

Source: RFC 9457; RocketMQ 5.3, ``ResponseCode``, ``ClientErrorCode``.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"


class ErucaError(Exception):
    """Anything Eruca reports. Subclasses fix ``code``, ``status``, ``title`` and ``default_fix``.

    A subclass has no ``default_fix`` where only the detail can say what to do about it.
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "The request failed"
    retryable: ClassVar[bool] = False
    default_fix: ClassVar[str | None] = None

    def __init__(
        self,
        detail: str,
        *,
        fix: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.fix = fix or self.default_fix
        self.errors = [dict(error) for error in errors]
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document."""
        document: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "request_id": request_id or self.request_id,
            "retryable": self.retryable,
            "fix": self.fix,
        }
        if self.errors:
            document["errors"] = self.errors
        return document

    def __str__(self) -> str:
        return f"{self.detail} ({self.fix})" if self.fix else self.detail

    def __reduce__(self) -> tuple[Any, ...]:
        # As it is, for other processes: an exception is made anew from its arguments otherwise,
        # and those that are given by name are not among them.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class RequestError(ErucaError):
    """The request is wrong: repeating it unchanged is useless."""

    code = "bad-request"
    status = 400
    title = "The request is wrong"


class ValidationError(RequestError):
    """A field's value is outside what the contract allows."""

    code = "validation-failed"
    status = 422
    title = "A value is not allowed"

    @classmethod
    def at(cls, pointer: str, detail: str, *, fix: str | None = None) -> Self:
        """Return the error of one value: *pointer* is its place in the request."""
        return cls(f"{pointer}: {detail}", errors=[{"pointer": pointer, "detail": detail}], fix=fix)


class FilterSyntaxError(ValidationError):
    """A filter cannot be understood; ``position`` and ``excerpt`` show where."""

    code = "filter-syntax"
    title = "The filter is not understood"

    def __init__(
        self,
        detail: str,
        *,
        position: int | None = None,
        excerpt: str | None = None,
        fix: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(
            detail,
            fix=fix,
            errors=errors,
            request_id=request_id,
            retry_after_seconds=retry_after_seconds,
        )
        self.position = position  # of the first character that is wrong, from 0
        self.excerpt = excerpt  # what stands there

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with where the filter is wrong."""
        where = {"position": self.position, "excerpt": self.excerpt}
        return super().problem(request_id) | {k: v for k, v in where.items() if v is not None}


class IdempotencyKeyReusedError(RequestError):
    """Something else was sent under this idempotency key; that stands, and this is not stored."""

    code = "idempotency-key-reused"
    status = 422
    title = "Something else was sent under this idempotency key"
    default_fix = "send it under another Idempotency-Key to store it as well"


class MalformedBodyError(RequestError):
    """The body is not JSON, or not of the shape the operation takes."""

    code = "malformed-body"
    status = 400
    title = "The body could not be read"
    default_fix = "send one JSON value, in UTF-8"


class MalformedBatchError(RequestError):
    """A body of the records media type is not a sound batch; nothing of it was stored."""

    code = "malformed-records"
    status = 400
    title = "The batch of records is not sound"
    default_fix = "lay the records out as the detail says, and send the batch again"


class TooLargeError(RequestError):
    """A body, batch or property exceeds its limit."""

    code = "too-large"
    status = 413
    title = "The message or batch is too large"
    default_fix = "make it smaller, or send less at a time; the detail names the limit"


class UnsupportedMediaTypeError(RequestError):
    """The operation does not take this Content-Type."""

    code = "unsupported-media-type"
    status = 415
    title = "The content type is not supported here"
    default_fix = "set the header Content-Type to what the operation takes; see /docs"


class NotAcceptableError(RequestError):
    """The operation cannot answer in any media type of the Accept header."""

    code = "not-acceptable"
    status = 406
    title = "The requested answer format is not supported here"
    default_fix = "set the header Accept to what the operation answers with; see /docs"


class MethodNotAllowedError(RequestError):
    """The path exists, but not with this method."""

    code = "method-not-allowed"
    status = 405
    title = "The method is not allowed here"
    default_fix = "use a method that the path takes; see /docs"


class NotFoundError(RequestError):
    """Nothing is there."""

    code = "not-found"
    status = 404
    title = "There is nothing at this path"
    default_fix = "check the URL; /docs lists the paths there are"


class TopicNotFoundError(NotFoundError):
    """The topic does not exist, and is not created by sending to it."""

    code = "topic-not-found"
    title = "The topic does not exist"

    @staticmethod
    def fix_of(topic: str) -> str:
        """Return how to create a topic of this name."""
        return f"create it: eruca topic create {topic}, or PUT /v1/topics/{topic}"

    default_fix = fix_of("NAME")


class QueueNotFoundError(NotFoundError):
    """The topic has no queue of this number here."""

    code = "queue-not-found"
    title = "The topic has no such queue on this broker"
    default_fix = "see the queues there are: eruca topic show NAME, or GET /v1/topics/NAME/queues"


class GroupNotFoundError(NotFoundError):
    """The consumer group does not exist."""

    code = "group-not-found"
    title = "The consumer group does not exist"
    default_fix = "create it: eruca group create NAME, or PUT /v1/groups/NAME"


class MemberNotFoundError(NotFoundError):
    """The client is no member of the group here: it never joined, left, or its session is over."""

    code = "member-not-found"
    title = "The client is not a member of the group"
    default_fix = "join: PUT /v1/groups/GROUP/members/CLIENT_ID; locks held before are gone"


class DeadLetterNotFoundError(NotFoundError):
    """The group has no such dead letter here, or retention has deleted it."""

    code = "dead-letter-not-found"
    title = "There is no such dead letter"
    default_fix = "see those there are: eruca dlq list GROUP, or GET /v1/groups/GROUP/dead-letters"


class ScheduledNotFoundError(NotFoundError):
    """No message of this id waits for its delivery here."""

    code = "scheduled-not-found"
    title = "There is no such scheduled message"
    default_fix = (
        "ask the broker that the receipt names; see those that wait: eruca scheduled list, or "
        "GET /v1/scheduled"
    )


class TransactionNotFoundError(NotFoundError):
    """No transaction of this id was begun here, or retention has deleted what was decided."""

    code = "transaction-not-found"
    title = "There is no such transaction"
    default_fix = "ask the broker that the receipt of the half message names"


class CheckNotFoundError(NotFoundError):
    """No such check is open: it was answered, or its time is over."""

    code = "check-not-found"
    title = "There is no such check"
    default_fix = "drop the answer; if the transaction is still open, it is checked again"


class WebhookNotFoundError(NotFoundError):
    """The producer group has no webhook."""

    code = "webhook-not-found"
    title = "The producer group has no webhook"
    default_fix = "set one: PUT /v1/producer-groups/GROUP/webhook"


class RecordNotFoundError(NotFoundError):
    """No record starts at this log offset, or retention has deleted it."""

    code = "record-not-found"
    title = "There is no record at this log offset"
    default_fix = (
        "use an offset that a receipt, an offset id or the log feed told; older ones may be gone"
    )


class MessageNotFoundError(NotFoundError):
    """No broker has stored a message of this id; every log has been looked through."""

    code = "message-not-found"
    title = "There is no message of this id"
    default_fix = "compare it with what sending returned; what is older than the retention is gone"


class BrokerNotFoundError(NotFoundError):
    """No broker of this name and id is registered."""

    code = "broker-not-found"
    title = "The broker is not registered"
    default_fix = "see those there are: eruca status, or GET /v1/brokers of a name server"


class KeyNotFoundError(NotFoundError):
    """The name server's key-value table has no such entry."""

    code = "key-not-found"
    title = "There is no such key"
    default_fix = "see the keys there are: GET /v1/kv/NAMESPACE"


class RefusedError(ErucaError):
    """Understood, and not allowed in this state."""

    code = "refused"
    status = 409
    title = "The request was refused"


class PermissionDeniedError(RefusedError):
    """The topic's or broker's permission forbids it."""

    code = "permission-denied"
    status = 403
    title = "The permission does not allow it"
    default_fix = (
        "change the topic's or the group's settings, which the detail names, or use another one"
    )


class SystemTopicError(RefusedError):
    """The topic belongs to the system."""

    code = "system-topic-protected"
    status = 403
    title = "The topic belongs to the system"
    default_fix = "use a topic of your own; system topics are written by the broker alone"


class CrossSiteError(RefusedError):
    """A browser sent it for a page of a site that may not call the service."""

    code = "cross-site"
    status = 403
    title = "Pages of other sites may not call the service"
    default_fix = "call it from a program; or name the site in the service's explorer_origins"


class ConflictError(RefusedError):
    """The state has changed, or already is otherwise."""

    code = "conflict"
    status = 409
    title = "The request conflicts with the current state"
    default_fix = "look at what there is now, and decide anew"


class SubscriptionConflictError(ConflictError):
    """The group subscribes to something else; the detail names the members and the difference."""

    code = "subscription-conflict"
    title = "The group has other subscriptions"
    default_fix = (
        "let all members of the group subscribe alike; or set the group's subscription_mode to "
        "per_member; or cut over: send replaces_subscription_version"
    )


class ClientIdInUseError(ConflictError):
    """Another process is a member under this client id, or has taken it over."""

    code = "client-id-in-use"
    title = "The client id belongs to another process"
    default_fix = "give each process a client id of its own"


class StaleLockError(ConflictError):
    """The queue is not locked by this token any more; nothing has been changed."""

    code = "stale-lock"
    title = "The lock is not held any more"
    default_fix = "stop reading the queue; lock it again, and read on where the answer says"


class AlreadyDeliveredError(ConflictError):
    """The scheduled message has been delivered: it cannot be recalled."""

    code = "already-delivered"
    title = "The message has been delivered already"
    default_fix = "tell its consumers by a further message, if they are not to act on it"


class AlreadyDecidedError(ConflictError):
    """The transaction was decided otherwise; ``decision`` says what, when and by whom."""

    code = "already-decided"
    title = "The transaction has been decided otherwise"
    default_fix = "take it as decided: `decision` says what, when and by whom"

    def __init__(
        self,
        detail: str,
        *,
        decision: Mapping[str, Any] | None = None,
        fix: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(
            detail,
            fix=fix,
            errors=errors,
            request_id=request_id,
            retry_after_seconds=retry_after_seconds,
        )
        self.decision = dict(decision or {})  # outcome, by, decided_at, reason …

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with what was decided."""
        document = super().problem(request_id)
        return document | {"decision": self.decision} if self.decision else document


class CheckOutOfTurnError(ConflictError):
    """The transaction's checks are not where the request says; nothing has been changed."""

    code = "check-out-of-turn"
    title = "It is not the turn of this check"
    default_fix = "read the transaction, or the log, and go on from there"


class OtherProducerGroupError(ConflictError):
    """The transaction was begun by another producer group."""

    code = "other-producer-group"
    title = "The transaction belongs to another producer group"
    default_fix = "name the producer group that began it"


class TransactionIdInUseError(ConflictError):
    """A transaction of this id has been begun with another message."""

    code = "transaction-id-in-use"
    title = "The id belongs to another transaction"
    default_fix = "give each message an id of its own, or none"


class StaleHandleError(ConflictError):
    """The delivery has been handed out anew since: this handle is not the latest."""

    code = "stale-handle"
    title = "The handle has been superseded"
    default_fix = "drop the handle; a message that is not done comes again, with another one"


class ExpiredHandleError(RefusedError):
    """The delivery's time is over; the message is, or will be, handed out again."""

    code = "expired-handle"
    status = 410
    title = "The delivery has expired"
    default_fix = (
        "receive again: the message comes with another handle; ask for more time, or extend it"
    )


class RangeDeletedError(RefusedError):
    """Retention has deleted messages that were asked for; ``errors`` points at each queue's."""

    code = "range-deleted"
    status = 410
    title = "Messages of the range have been deleted"
    default_fix = "plan anew, from the first offsets that are left: missing=skip"


class UnavailableError(ErucaError):
    """The same request may succeed later."""

    code = "unavailable"
    status = 503
    title = "The service cannot do this now"
    retryable = True
    default_fix = "wait a moment, then repeat"


class OverloadedError(UnavailableError):
    """A limit on work in progress is reached; the detail names it."""

    code = "overloaded"
    status = 429
    title = "Too much work is in progress"
    default_fix = "wait a moment, then repeat; or add brokers"


class NotReadyError(UnavailableError):
    """The service is starting or stopping."""

    code = "not-ready"
    title = "The service is starting or stopping"
    default_fix = "wait a moment, then repeat; or use another instance"


class DiskFullError(UnavailableError):
    """The disk is too full to accept writes."""

    code = "disk-full"
    title = "The broker's disk is full"
    default_fix = "free disk space, shorten retention, or send to another broker"


class DatabaseUnavailableError(UnavailableError):
    """The service's PostgreSQL is not there; it goes on when that is back."""

    code = "database-unavailable"
    title = "The database does not answer"
    default_fix = "start it, or set DATABASE_URL to one that runs; work goes on when it is back"


class BrokerUnreachableError(UnavailableError):
    """A broker that this needs does not answer the service; the detail names it."""

    code = "broker-unreachable"
    title = "A broker does not answer"
    default_fix = "wait a moment, then repeat; or start the broker"


class SearchIncompleteError(UnavailableError):
    """It was not found, and not every log could be looked through."""

    code = "search-incomplete"
    title = "It was not found, and not everything could be looked through"
    default_fix = (
        "repeat it once the brokers that the detail names answer; one that was taken away for "
        "good: eruca query forget"
    )


class StoreFailedError(UnavailableError):
    """The store has stopped accepting writes after an I/O error; the detail says which."""

    code = "store-failed"
    title = "The broker's store has failed"
    default_fix = "mend the disk, then restart the broker; what was acknowledged is kept"


class InternalError(ErucaError):
    """A defect of the service, logged under the request id."""

    code = "internal"
    status = 500
    title = "The service has a defect"
    default_fix = "report it with the request_id, under which the service's log has the details"


class ClientError(ErucaError):
    """Raised by the SDK itself; never crosses the wire."""

    code = "client"
    title = "The client could not do this"


class NameServersUnreachableError(ClientError):
    """No name server answered."""

    code = "name-servers-unreachable"
    title = "No name server answered"
    retryable = True


class NoRouteError(ClientError):
    """No live broker has the topic, or none that may be used this way."""

    code = "no-route"
    title = "No broker serves the topic"
    retryable = True


class TransportError(ClientError):
    """The connection failed or the answer could not be read; it is unknown what the server did."""

    code = "transport"
    title = "The connection failed"
    retryable = True


class TimeoutExpiredError(ClientError):
    """The deadline passed before an answer came; it is unknown what the server did."""

    code = "timeout"
    title = "The deadline passed"
    retryable = True


class ClosedError(ClientError):
    """The client, producer or consumer has been closed."""

    code = "closed"
    title = "The client is closed"


class SendFailedError(ClientError):
    """Every attempt to send failed; ``attempts`` says where and how, oldest first."""

    code = "send-failed"
    title = "The message could not be sent"
    retryable = True

    def __init__(self, detail: str, *, attempts: Sequence[tuple[str, ErucaError]] = ()) -> None:
        super().__init__(detail)
        self.attempts = list(attempts)


class PartialSendError(SendFailedError):
    """Of several batches some were stored and some were not; each batch is whole or absent.

    ``outcomes`` has one entry for each message, in the order they were given: the ``SendResult``
    of a stored one, the error of one that was not.
    """

    code = "partly-sent"
    title = "Some of the messages could not be sent"

    def __init__(
        self,
        detail: str,
        *,
        outcomes: Sequence[object],
        attempts: Sequence[tuple[str, ErucaError]] = (),
    ) -> None:
        super().__init__(detail, attempts=attempts)
        self.outcomes = list(outcomes)

    @property
    def failed_indexes(self) -> list[int]:
        """Which of the messages were not sent."""
        return [i for i, outcome in enumerate(self.outcomes) if isinstance(outcome, ErucaError)]


class DamagedMessageError(ClientError):
    """A message's body is not what its producer sent, or cannot be unpacked."""

    code = "damaged-message"
    title = "The message is damaged"


class OffsetOutOfRangeError(ClientError):
    """A consumer's position is before the first or after the last message of its queue."""

    code = "offset-out-of-range"
    title = "The queue holds nothing at this offset"

    def __init__(
        self, detail: str, *, fix: str | None = None, min_offset: int, max_offset: int
    ) -> None:
        super().__init__(detail, fix=fix)
        self.min_offset = min_offset
        self.max_offset = max_offset


class NoCommittedOffsetError(ClientError):
    """A consumer was told to start where its group stands, and the group stands nowhere yet."""

    code = "no-committed-offset"
    title = "The group has no committed offset in this queue"


def every_error(root: type[ErucaError] = ErucaError) -> Iterator[type[ErucaError]]:
    """Yield the whole tree, parents first."""
    yield root
    for child in root.__subclasses__():
        yield from every_error(child)


_BY_CODE: Final = {kind.code: kind for kind in every_error() if not issubclass(kind, ClientError)}


def error_of_problem(
    document: Mapping[str, Any], status: int, *, retry_after_seconds: float | None = None
) -> ErucaError:
    """Return the error a problem document tells of; for an unknown code the nearest kind.

    The document may come from a proxy and hold anything: what is not of its type is left out.
    """
    code = document.get("code")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        kind = _kind_of_status(status)
    detail = document.get("detail") or document.get("title") or f"HTTP status {status}"
    position, excerpt = document.get("position"), document.get("excerpt")
    if kind is FilterSyntaxError:
        return FilterSyntaxError(
            str(detail),
            position=position if isinstance(position, int) else None,
            excerpt=_text(excerpt),
            fix=_text(document.get("fix")),
            errors=_field_errors(document.get("errors")),
            request_id=_text(document.get("request_id")),
            retry_after_seconds=retry_after_seconds,
        )
    if kind is AlreadyDecidedError:
        decision = document.get("decision")
        return AlreadyDecidedError(
            str(detail),
            decision=decision if isinstance(decision, dict) else None,
            fix=_text(document.get("fix")),
            errors=_field_errors(document.get("errors")),
            request_id=_text(document.get("request_id")),
            retry_after_seconds=retry_after_seconds,
        )
    return kind(
        str(detail),
        fix=_text(document.get("fix")),
        errors=_field_errors(document.get("errors")),
        request_id=_text(document.get("request_id")),
        retry_after_seconds=retry_after_seconds,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _field_errors(value: object) -> list[dict[str, str]]:
    entries = value if isinstance(value, list) else []
    return [
        {str(name): str(text) for name, text in entry.items()}
        for entry in entries
        if isinstance(entry, dict)
    ]


def _kind_of_status(status: int) -> type[ErucaError]:
    if status == 404:
        return NotFoundError
    if status == 429:
        return OverloadedError
    if status in (502, 503, 504):
        return UnavailableError
    return InternalError if status >= 500 else RequestError
