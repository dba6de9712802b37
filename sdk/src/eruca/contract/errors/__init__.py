"""One tree of errors for both ends: a service raises an error, the SDK raises the same class.

Over HTTP an error is an RFC 9457 problem document (``application/problem+json``)::

    type        "/problems/<code>"
    title       the class's one-line meaning
    status      the HTTP status
    detail      what happened here, with the names and values involved
    code        stable, kebab-case; what programs branch on
    request_id  to find it in the service's log
    retryable   true if the same request may succeed later, unchanged
    fix         an instruction to the caller; null if the detail already says what to do
    errors      [{"pointer", "detail"}] for each field that failed validation, else absent

The tree::

    ErucaError
    ├── RequestError              the request is invalid; a retry fails as well     4xx, 501, 505
    │   ├── ValidationError           422 validation-failed
    │   │   └── FilterSyntaxError         filter-syntax
    │   ├── IdempotencyKeyReusedError 422 idempotency-key-reused
    │   ├── MalformedBodyError        400 malformed-body
    │   ├── MalformedBatchError       400 malformed-records
    │   ├── TooLargeError             413 too-large
    │   ├── UnsupportedMediaTypeError 415 unsupported-media-type
    │   ├── NotAcceptableError        406 not-acceptable
    │   ├── MethodNotAllowedError     405 method-not-allowed
    │   ├── UnknownMethodError        501 method-unknown
    │   ├── ExpectationError          417 expectation-failed
    │   ├── PreconditionRequiredError 428 precondition-required
    │   ├── TargetTooLongError        414 target-too-long
    │   ├── HeadTooLargeError         431 head-too-large
    │   ├── TransferCodingError       501 transfer-coding-unsupported
    │   ├── HttpVersionError          505 http-version-unsupported
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
    │       ├── BrokerGroupNotFoundError  broker-group-not-found
    │       └── KeyNotFoundError          key-not-found
    ├── RefusedError              understood, and not allowed in this state              4xx
    │   ├── PermissionDeniedError     403 permission-denied
    │   ├── SystemTopicError          403 system-topic-protected
    │   │   └── DerivedTopicError     403 derived-topic-protected
    │   ├── CrossSiteError            403 cross-site
    │   ├── UnknownHostError          421 unknown-host
    │   ├── ConflictError             409 conflict
    │   │   ├── SubscriptionConflictError subscription-conflict
    │   │   ├── ClientIdInUseError        client-id-in-use
    │   │   ├── StaleLockError            stale-lock
    │   │   ├── AlreadyDeliveredError     already-delivered
    │   │   ├── AlreadyDecidedError       already-decided
    │   │   ├── CheckOutOfTurnError       check-out-of-turn
    │   │   ├── OtherProducerGroupError   other-producer-group
    │   │   ├── TransactionIdInUseError   transaction-id-in-use
    │   │   ├── StaleHandleError          stale-handle
    │   │   ├── StaleEpochError           stale-epoch
    │   │   ├── LaneGapError              lane-gap
    │   │   └── ForeignReplicaError       foreign-replica
    │   ├── PreconditionFailedError   412 precondition-failed
    │   ├── ExpiredHandleError        410 expired-handle
    │   ├── MisdirectedError          421 misdirected
    │   ├── RangeDeletedError         410 range-deleted
    │   └── MessageDamagedError       410 message-damaged
    ├── AccessError               the caller is unknown or lacks a right                 401, 403
    │   ├── UnauthenticatedError      401 unauthenticated
    │   └── ForbiddenError            403 forbidden
    ├── UnavailableError          may succeed later, or at another URL         307, 408, 429, 503
    │   ├── OverloadedError           429 overloaded
    │   │   └── QuotaExceededError        quota-exceeded
    │   ├── RequestTimeoutError       408 request-timeout
    │   ├── NotReadyError             503 not-ready
    │   ├── NameServerSettlingError   503 name-server-settling
    │   ├── NoLiveBrokerError         503 no-live-broker
    │   ├── DiskFullError             503 disk-full
    │   ├── DatabaseUnavailableError  503 database-unavailable
    │   ├── ArbiterUnavailableError   503 arbiter-unavailable
    │   ├── BrokerUnreachableError    503 broker-unreachable
    │   ├── SearchIncompleteError     503 search-incomplete
    │   ├── StoreFailedError          503 store-failed
    │   ├── NotMasterError            307 not-master
    │   ├── NotMasterForSureError     503 not-master-for-sure
    │   ├── NotEnoughReplicasError    503 not-enough-replicas
    │   └── OutcomeUnknownError       503 outcome-unknown
    ├── InternalError             a defect; logged under its request_id                  500
    └── ClientError               raised by the SDK itself, never sent
        ├── NameServersUnreachableError
        ├── NoRouteError
        ├── TransportError
        ├── TimeoutExpiredError
        ├── NoCredentialsError
        ├── ClosedError
        ├── DamagedMessageError
        ├── OffsetOutOfRangeError
        ├── NoCommittedOffsetError
        └── SendFailedError
            └── PartialSendError

One module holds each branch::

    base.py       the root, and the way through the tree
    requests.py   the request is invalid          not_found.py  it names something missing
    access.py     who asks is unknown, or may not refusals.py   it is not allowed now
    service.py    the service is at fault         client.py     the SDK's own
    problems.py   documents become errors again

Import errors from this package, not from its modules.

Source: RFC 9457; RocketMQ 5.3, ``ResponseCode``, ``ClientErrorCode``.
"""

from __future__ import annotations

from eruca.contract.errors.access import AccessError, ForbiddenError, UnauthenticatedError
from eruca.contract.errors.base import ErucaError, errors_at, every_error
from eruca.contract.errors.client import (
    ClientError,
    ClosedError,
    DamagedMessageError,
    NameServersUnreachableError,
    NoCommittedOffsetError,
    NoCredentialsError,
    NoRouteError,
    OffsetOutOfRangeError,
    PartialSendError,
    SendFailedError,
    TimeoutExpiredError,
    TransportError,
)
from eruca.contract.errors.not_found import (
    BrokerGroupNotFoundError,
    BrokerNotFoundError,
    CheckNotFoundError,
    DeadLetterNotFoundError,
    GroupNotFoundError,
    KeyNotFoundError,
    MemberNotFoundError,
    MessageNotFoundError,
    NotFoundError,
    QueueNotFoundError,
    RecordNotFoundError,
    ScheduledNotFoundError,
    TopicNotFoundError,
    TransactionNotFoundError,
    WebhookNotFoundError,
)
from eruca.contract.errors.problems import PROBLEM_MEDIA_TYPE, error_of_problem
from eruca.contract.errors.refusals import (
    AlreadyDecidedError,
    AlreadyDeliveredError,
    CheckOutOfTurnError,
    ClientIdInUseError,
    ConflictError,
    CrossSiteError,
    DerivedTopicError,
    ExpiredHandleError,
    ForeignReplicaError,
    LaneGapError,
    MessageDamagedError,
    MisdirectedError,
    OtherProducerGroupError,
    PermissionDeniedError,
    PreconditionFailedError,
    RangeDeletedError,
    RefusedError,
    StaleEpochError,
    StaleHandleError,
    StaleLockError,
    SubscriptionConflictError,
    SystemTopicError,
    TransactionIdInUseError,
    UnknownHostError,
)
from eruca.contract.errors.requests import (
    ExpectationError,
    FilterSyntaxError,
    HeadTooLargeError,
    HttpVersionError,
    IdempotencyKeyReusedError,
    MalformedBatchError,
    MalformedBodyError,
    MethodNotAllowedError,
    NotAcceptableError,
    PreconditionRequiredError,
    RequestError,
    TargetTooLongError,
    TooLargeError,
    TransferCodingError,
    UnknownMethodError,
    UnsupportedMediaTypeError,
    ValidationError,
)
from eruca.contract.errors.service import (
    ArbiterUnavailableError,
    BrokerUnreachableError,
    DatabaseUnavailableError,
    DiskFullError,
    InternalError,
    NameServerSettlingError,
    NoLiveBrokerError,
    NotEnoughReplicasError,
    NotMasterError,
    NotMasterForSureError,
    NotReadyError,
    OutcomeUnknownError,
    OverloadedError,
    QuotaExceededError,
    RequestTimeoutError,
    SearchIncompleteError,
    StoreFailedError,
    UnavailableError,
)

__all__ = [
    "PROBLEM_MEDIA_TYPE",
    "AccessError",
    "AlreadyDecidedError",
    "AlreadyDeliveredError",
    "ArbiterUnavailableError",
    "BrokerGroupNotFoundError",
    "BrokerNotFoundError",
    "BrokerUnreachableError",
    "CheckNotFoundError",
    "CheckOutOfTurnError",
    "ClientError",
    "ClientIdInUseError",
    "ClosedError",
    "ConflictError",
    "CrossSiteError",
    "DamagedMessageError",
    "DatabaseUnavailableError",
    "DeadLetterNotFoundError",
    "DerivedTopicError",
    "DiskFullError",
    "ErucaError",
    "ExpectationError",
    "ExpiredHandleError",
    "FilterSyntaxError",
    "ForbiddenError",
    "ForeignReplicaError",
    "GroupNotFoundError",
    "HeadTooLargeError",
    "HttpVersionError",
    "IdempotencyKeyReusedError",
    "InternalError",
    "KeyNotFoundError",
    "LaneGapError",
    "MalformedBatchError",
    "MalformedBodyError",
    "MemberNotFoundError",
    "MessageDamagedError",
    "MessageNotFoundError",
    "MethodNotAllowedError",
    "MisdirectedError",
    "NameServerSettlingError",
    "NameServersUnreachableError",
    "NoCommittedOffsetError",
    "NoCredentialsError",
    "NoLiveBrokerError",
    "NoRouteError",
    "NotAcceptableError",
    "NotEnoughReplicasError",
    "NotFoundError",
    "NotMasterError",
    "NotMasterForSureError",
    "NotReadyError",
    "OffsetOutOfRangeError",
    "OtherProducerGroupError",
    "OutcomeUnknownError",
    "OverloadedError",
    "PartialSendError",
    "PermissionDeniedError",
    "PreconditionFailedError",
    "PreconditionRequiredError",
    "QueueNotFoundError",
    "QuotaExceededError",
    "RangeDeletedError",
    "RecordNotFoundError",
    "RefusedError",
    "RequestError",
    "RequestTimeoutError",
    "ScheduledNotFoundError",
    "SearchIncompleteError",
    "SendFailedError",
    "StaleEpochError",
    "StaleHandleError",
    "StaleLockError",
    "StoreFailedError",
    "SubscriptionConflictError",
    "SystemTopicError",
    "TargetTooLongError",
    "TimeoutExpiredError",
    "TooLargeError",
    "TopicNotFoundError",
    "TransactionIdInUseError",
    "TransactionNotFoundError",
    "TransferCodingError",
    "TransportError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownHostError",
    "UnknownMethodError",
    "UnsupportedMediaTypeError",
    "ValidationError",
    "WebhookNotFoundError",
    "error_of_problem",
    "errors_at",
    "every_error",
]
