"""Transactions: messages that are stored first and decided later.

A producer stores a **half message**, which no consumer sees, does its local work, and then commits
or rolls back. Where it does neither, the transaction checker asks its producer group (a **check**)
until somebody knows, or the checks are used up: then it is rolled back and **parked**, where an
operator may look at it and still commit it, or discard it.

The first decision wins. The same again is answered the same; the opposite is 409
``already-decided`` and says what was decided, when and by whom.

The broker's part comes first here, then the transaction checker's. What the log says of all this is
in :mod:`eruca.contract.transaction_events`.

Source: RocketMQ 5.3, ``EndTransactionProcessor``, ``TransactionalMessageServiceImpl``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from pydantic import AnyHttpUrl, Field

from eruca.contract.fields import Answer, Request
from eruca.contract.groups import ClientId
from eruca.contract.instant_texts import InstantText
from eruca.contract.limits import (
    CHECK_COUNT_MAX,
    CHECK_IMMUNITY_SECONDS_MAX,
    CHECKER_SIZE_MAX,
    CHECKS_TAKEN_MAX,
    DERIVED_TOPIC_SIZE_MAX,
    GROUP_SIZE_MAX,
    QUEUE_ID_MAX,
    REASON_SIZE_MAX,
    TRANSACTION_ID_SIZE_MAX,
    WEBHOOK_SECRET_SIZE_MAX,
    WEBHOOK_SECRET_SIZE_MIN,
    WEBHOOK_TIMEOUT_SECONDS_DEFAULT,
    WEBHOOK_TIMEOUT_SECONDS_MAX,
    WEBHOOK_URL_SIZE_MAX,
)
from eruca.contract.messages import NewMessage
from eruca.contract.names import NAME_PATTERN
from eruca.contract.times import Instant
from eruca.contract.transaction_events import Decider, Outcome

# Not dots alone, which are another place in a URL's path.
TRANSACTION_ID_PATTERN: Final = r"^[^\s/\x00-\x1f\x7f]*[^\s/.\x00-\x1f\x7f][^\s/\x00-\x1f\x7f]*$"
TEXT_PATTERN: Final = r"^[^\x00]+$"
"""Of reasons and the like: not every database stores the character 0."""

TransactionState = Literal["pending", "parked", "committed", "rolled_back"]
"""``parked``: rolled back since its checks were used up; an operator may still commit it."""

DecidedBy = Literal["producer", "check", "operator", "limit"]
"""``limit``: nobody decided; the checks were used up."""

TransactionId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=TRANSACTION_ID_SIZE_MAX,
        pattern=TRANSACTION_ID_PATTERN,
        description="The unique id of the message.",
        examples=["7F00000100002A9F000000000134F1F5"],
    ),
]
CheckNumber = Annotated[int, Field(ge=1, le=CHECK_COUNT_MAX)]
Checker = Annotated[
    str,
    Field(
        min_length=1,
        max_length=CHECKER_SIZE_MAX,
        pattern=TEXT_PATTERN,
        description="Which instance of the transaction checker.",
        examples=["txn-checker-1"],
    ),
]
Reason = Annotated[str, Field(min_length=1, max_length=REASON_SIZE_MAX, pattern=TEXT_PATTERN)]

_Topic = Annotated[str, Meta(min_length=1, max_length=DERIVED_TOPIC_SIZE_MAX, pattern=NAME_PATTERN)]
_Group = Annotated[str, Meta(min_length=1, max_length=GROUP_SIZE_MAX, pattern=NAME_PATTERN)]

# --- The broker: beginning and deciding (msgspec: these are hot) ----------------------------------


class NewTransaction(
    Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """A half message to store.

    The transaction's id is the message's ``message_id``, or one that the broker makes. Beginning
    again with the same id and the same message, as after a lost answer, is harmless.
    """

    topic: _Topic  # where the message goes when it is committed
    producer_group: _Group  # any of its members may be asked
    message: NewMessage  # a delay counts from the commit
    queue_id: Annotated[int, Meta(ge=0, le=QUEUE_ID_MAX)] | None = None
    # No check before so many seconds; null: as the checker is set.
    check_immunity_seconds: Annotated[float, Meta(ge=0, le=CHECK_IMMUNITY_SECONDS_MAX)] | None = (
        None
    )


class TransactionReceipt(Struct, frozen=True, kw_only=True):
    """A half message has been stored; 201, or 200 where it was there already."""

    transaction_id: str  # also the message's unique id
    broker_name: str  # where it is to be decided
    topic: str
    queue_id: int  # the queue it is committed to
    half_queue_offset: int  # in the half topic
    half_log_offset: int
    begun_at: InstantText
    durability: str  # "flushed": on disk. "written": with the kernel, survives kill -9
    repeated: bool = False


class Decide(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Commit or roll back, as the path says."""

    # As when it was begun; only an operator may leave it out.
    producer_group: _Group | None = None
    by: Decider = "producer"
    # Which check this answers; with by = "check" alone.
    check_number: Annotated[int, Meta(ge=1, le=CHECK_COUNT_MAX)] | None = None
    # An operator must give one.
    reason: (
        Annotated[str, Meta(min_length=1, max_length=REASON_SIZE_MAX, pattern=TEXT_PATTERN)] | None
    ) = None


class CommittedPlace(Struct, frozen=True, kw_only=True):
    """Where a committed message lies."""

    topic: str
    queue_id: int
    queue_offset: int | None  # null: it is delayed, or was
    log_offset: int
    deliver_at: InstantText | None = None


class DecisionReceipt(Struct, frozen=True, kw_only=True):
    """What has been decided: now, or before."""

    transaction_id: str
    state: Literal["parked", "committed", "rolled_back"]
    outcome: Outcome
    by: DecidedBy
    decided_at: InstantText
    reason: str | None = None
    check_number: int | None = None
    message: CommittedPlace | None = None  # of a commit
    durability: str
    repeated: bool = False  # it had been decided so before


# --- The broker: checks, looking at transactions --------------------------------------------------


class CheckRequest(Request):
    """Be granted the next check of a transaction; who is granted it asks the producer group."""

    number: CheckNumber = Field(description="one more than there have been")
    checker: Checker


class CheckGrant(Answer):
    """The check is in the log: nobody else will send it."""

    transaction_id: str
    number: int
    checked_at: Instant


class ExpireRequest(Request):
    """Give up on a transaction that nobody decides: roll it back and park it."""

    checks: Annotated[int, Field(ge=0, le=CHECK_COUNT_MAX)] = Field(
        description="how many there have been; another number is 409"
    )
    checker: Checker
    reason: Reason | None = None


class TransactionDecision(Answer):
    """What was decided."""

    outcome: Outcome
    by: DecidedBy
    decided_at: Instant
    reason: str | None = None
    check_number: int | None = None


class TransactionSummary(Answer):
    """A transaction."""

    transaction_id: str
    broker_name: str
    producer_group: str
    topic: str
    queue_id: int
    state: TransactionState
    begun_at: Instant
    check_immunity_seconds: float | None = None
    checks: int = Field(description="how often its producer group has been asked")
    last_check_at: Instant | None = None
    decision: TransactionDecision | None = Field(
        default=None, description="null while it is pending; of a parked one: by limit"
    )
    half_log_offset: int | None = Field(description="null where retention has deleted it")


class TransactionHistoryEntry(Answer):
    """Something that happened to a transaction."""

    event: Literal["begun", "checked", "committed", "rolled_back", "parked", "carried"]
    at: Instant
    log_offset: int = Field(description="of the control record")
    by: DecidedBy | None = None
    check_number: int | None = None
    checker: str | None = None
    reason: str | None = None


class CommittedMessage(Answer):
    """Where a committed message lies."""

    topic: str
    queue_id: int
    queue_offset: int | None = Field(description="null: it is delayed, or was")
    log_offset: int
    deliver_at: Instant | None = None


class TransactionDetail(TransactionSummary):
    """A transaction, its message and what happened to it, oldest first."""

    message: dict[str, Any] | None = Field(
        description="the half message, as a pull returns messages; null once it is deleted"
    )
    committed: CommittedMessage | None = None
    history: list[TransactionHistoryEntry]


class TransactionList(Answer):
    """A page of transactions, oldest first."""

    transactions: list[TransactionSummary]
    next_cursor: str | None = None


# --- The transaction checker: asking producers ----------------------------------------------------

CheckId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=CHECKER_SIZE_MAX,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="As it came with the check; opaque.",
    ),
]
CheckVerdict = Literal["commit", "rollback", "unknown"]


class ProducerCheck(Answer):
    """A question to a producer group: what became of this transaction?"""

    check_id: str
    transaction_id: str
    producer_group: str
    broker_name: str
    topic: str
    queue_id: int
    number: int = Field(description="which check of this transaction: 1, 2, 3 …")
    begun_at: Instant
    asked_at: Instant
    answer_until: Instant = Field(description="then the check counts as unanswered")
    message: dict[str, Any] = Field(description="the half message, as a pull returns messages")


class ProducerChecks(Answer):
    """Checks for the producer that asked; none where there was none in time."""

    checks: list[ProducerCheck]


CheckCount = Annotated[int, Field(ge=1, le=CHECKS_TAKEN_MAX)]


class CheckAnswer(Request):
    """What the producer knows."""

    answer: CheckVerdict
    client_id: ClientId | None = Field(default=None, description="who answers")
    reason: Reason | None = None


class CheckOutcome(Answer):
    """What came of a producer's answer."""

    check_id: str
    transaction_id: str
    state: TransactionState = Field(description="pending: the answer was unknown")
    decision: TransactionDecision | None = None
    repeated: bool = Field(default=False, description="it had been decided so before")


WEBHOOK_ID_HEADER: Final = "webhook-id"
WEBHOOK_TIMESTAMP_HEADER: Final = "webhook-timestamp"  # whole seconds since the epoch
WEBHOOK_SIGNATURE_HEADER: Final = "webhook-signature"  # "v1,<base64>", several separated by blanks
WEBHOOK_SIGNATURE_VERSION: Final = "v1"  # HMAC-SHA256 of "id.timestamp.body"
WEBHOOK_CHECK_TYPE: Final = "eruca.transaction.check"


class WebhookSettings(Request):
    """Where a producer group wants to be asked instead."""

    url: AnyHttpUrl = Field(max_length=WEBHOOK_URL_SIZE_MAX)
    secret: (
        Annotated[
            str,
            Field(
                min_length=WEBHOOK_SECRET_SIZE_MIN,
                max_length=WEBHOOK_SECRET_SIZE_MAX,
                pattern=TEXT_PATTERN,
            ),
        ]
        | None
    ) = Field(default=None, description="signs the calls; null: as before, or a new one is made")
    timeout_seconds: Annotated[
        float, Field(gt=0, le=WEBHOOK_TIMEOUT_SECONDS_MAX, allow_inf_nan=False)
    ] = WEBHOOK_TIMEOUT_SECONDS_DEFAULT
    enabled: bool = True


class Webhook(Answer):
    """A producer group's webhook."""

    producer_group: str
    url: str
    timeout_seconds: float
    enabled: bool
    updated_at: Instant
    secret: str | None = Field(
        default=None, description="only in the answer to the request that set or made it"
    )
    last_answer_at: Instant | None = None
    last_error: str | None = Field(default=None, description="of the last call, if it failed")


class WebhookCheck(Answer):
    """What is sent to a webhook; the answer is a :class:`CheckAnswer`."""

    type: Literal["eruca.transaction.check"] = WEBHOOK_CHECK_TYPE
    timestamp: Instant
    data: ProducerCheck


# --- The transaction checker: looking at transactions ---------------------------------------------


class SentCheck(Answer):
    """A check of a transaction, and what came of it."""

    check_id: str
    number: int
    checker: str
    checked_at: Instant
    asked: str | None = Field(
        description="who was asked: a client id, or `webhook`; null: nobody, as yet or for good"
    )
    asked_at: Instant | None
    answer_until: Instant | None
    answer: CheckVerdict | None
    answered_by: str | None
    answered_at: Instant | None
    reason: str | None
    fault: str | None = Field(description="why nobody could be asked, or nothing be decided")


class CheckedTransaction(TransactionSummary):
    """A transaction as the checker knows it, with each of its checks."""

    next_check_at: Instant | None = Field(description="not before; null: it is not pending")
    checks_sent: list[SentCheck]


class FollowedBroker(Answer):
    """How far the checker has read a broker's log."""

    broker_name: str
    log_offset: int = Field(description="everything before it has been read")
    end_offset: int = Field(description="where the log ended when it was read last")
    behind_bytes: int
    read_at: Instant
    followed_by: str | None = Field(description="an instance; null: none at this moment")


class CheckedTransactionList(TransactionList):
    """A page of transactions, oldest first, and how far what they come from has been read."""

    followed: list[FollowedBroker]


class OperatorDecision(Request):
    """An operator commits a transaction or rolls it back."""

    reason: Reason


class CheckingRules(Answer):
    """When producers are asked, as it is set."""

    timeout_seconds: float
    interval_seconds: float
    checks_max: int
    age_max_seconds: float
    counts_unreachable: bool = Field(
        description="whether checks count while no producer of the group can be reached"
    )


class CheckerStatus(Answer):
    """Who a transaction checker is and how it is doing."""

    version: str
    name: str = Field(description="of this instance; as in checks and leases")
    started_at: Instant
    rules: CheckingRules
    brokers: list[str] = Field(description="whose transactions this instance checks just now")
    faults: dict[str, str] = Field(
        description="by broker: why it cannot be worked on just now; "
        "`name servers` where none answers"
    )
    followed: list[FollowedBroker]
    held_requests: int
    held_requests_max: int
