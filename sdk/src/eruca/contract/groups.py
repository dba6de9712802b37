"""Consumer groups: their settings, members, locks and positions.

Allocation and ownership are separate. Every member computes by itself which queues it *should*
read, from the topic's route and the member list of the topic's coordinator. The coordinator is the
broker with the smallest name in the route. A **lock** at the queue's own broker decides which
member *does* read it. So members whose views differ for a moment cause a pause, never two readers.

A lock belongs to its holder's **session**, which heartbeats renew. Its **token** only grows. The
broker refuses to commit, release or send back with any token but the queue's latest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)

from eruca.contract.fields import (
    OFFSET_MAX,
    Answer,
    Moment,
    Offset,
    QueueId,
    Request,
    TopicName,
    WaitSeconds,
)
from eruca.contract.limits import (
    CLIENT_ID_SIZE_MAX,
    DELAY_SECONDS_MAX,
    FILTER_SIZE_MAX,
    INCARNATION_SIZE_MAX,
    LOCK_COUNT_MAX,
    OFFSET_COUNT_MAX,
    RETRY_DELAY_COUNT_MAX,
    RETRY_TIMES_DEFAULT,
    RETRY_TIMES_MAX,
    SESSION_SECONDS_DEFAULT,
    SESSION_SECONDS_MAX,
    SESSION_SECONDS_MIN,
    SUBSCRIPTION_COUNT_MAX,
)
from eruca.contract.times import Instant


def _kind_of_place(value: object) -> str | None:
    """Return "name" or "time" by the form of *value*; None if it has neither form."""
    if isinstance(value, str) and value in ("earliest", "latest"):
        return "name"
    return "time" if isinstance(value, str | datetime) else None


def _kind_of_target(value: object) -> str | None:
    """Return "place" or "offset" by the form of *value*; None if it has neither form."""
    if isinstance(value, dict | ResetToOffset):
        return "offset"
    return "place" if isinstance(value, str | datetime) else None


def _one_of(kind_of: Callable[[object], str | None], forms: str) -> Discriminator:
    """Select a form by *kind_of*; the error for any other value lists *forms*."""
    return Discriminator(
        kind_of,
        custom_error_type="place",
        custom_error_message=f"Input should be {forms}",
    )


ClientId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=CLIENT_ID_SIZE_MAX,
        # An id of dots alone would be a relative segment of a URL's path.
        pattern=r"^[a-zA-Z0-9_.@#:|%-]*[a-zA-Z0-9_@#:|%-][a-zA-Z0-9_.@#:|%-]*$",
        description="Identifies one process (or consumer) of the group.",
        examples=["10.1.2.3@4711#1"],
    ),
]
Incarnation = Annotated[
    str,
    Field(
        min_length=1,
        max_length=INCARNATION_SIZE_MAX,
        pattern=r"^[a-zA-Z0-9_.-]+$",
        description="Random text that distinguishes two processes with one client id.",
        examples=["6f1d2c90a4b84ef2"],
    ),
]
Token = Annotated[
    int,
    Field(ge=0, le=OFFSET_MAX, description="The lock's token, from the answer that granted it."),
]
SubscriptionMode = Literal["shared", "per_member"]
MessageModel = Literal["clustering", "broadcasting"]
ConsumeType = Literal["push", "pull"]
FilterType = Literal["tag", "sql92"]
StartReason = Literal["earliest", "latest", "time", "added", "since"]
# The OpenAPI document has one plain string. From an alternative of a name and a time, both strings,
# code generators make a separate type, which does not compile in Java.
_PLACE_SCHEMA = WithJsonSchema(
    {"type": "string", "pattern": r"^(earliest|latest|[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt _].+)$"}
)
Place = Annotated[
    Annotated[Literal["earliest", "latest"], Tag("name")] | Annotated[Moment, Tag("time")],
    _one_of(_kind_of_place, '"earliest", "latest" or a time as in 2026-11-21T08:00:00Z'),
    _PLACE_SCHEMA,
]
Start = Annotated[
    Place,
    Field(
        description=(
            'The group\'s start position in a topic that is new to it: "earliest", "latest" or a '
            "time."
        ),
        examples=["latest", "2026-11-21T08:00:00Z"],
    ),
]


# --- Settings -------------------------------------------------------------------------------------

DelaySeconds = Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX, allow_inf_nan=False)]


class CustomizedRetryPolicy(Request):
    """Delays before the first, second … retry; the last delay applies to all later retries."""

    kind: Literal["customized"] = "customized"
    delays_seconds: Annotated[
        Sequence[DelaySeconds],  # a program may pass a tuple; the model holds a list
        Field(min_length=1, max_length=RETRY_DELAY_COUNT_MAX),
        AfterValidator(list),
    ]


class ExponentialRetryPolicy(Request):
    """A delay that grows with each retry."""

    kind: Literal["exponential"] = "exponential"
    initial_seconds: DelaySeconds = 5
    multiplier: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = 2
    seconds_max: DelaySeconds = 7200


RetryPolicy = Annotated[CustomizedRetryPolicy | ExponentialRetryPolicy, Field(discriminator="kind")]


class GroupSettings(Request):
    """Settings of a group; for an existing group, only the given settings change."""

    start: Start = "latest"
    retries_max: Annotated[int, Field(ge=0, le=RETRY_TIMES_MAX)] = Field(
        default=RETRY_TIMES_DEFAULT,
        description="Number of retries before a message becomes a dead letter.",
    )
    retry_policy: RetryPolicy | None = Field(
        default=None, description="null: delay level 3 plus the number of retries so far"
    )
    ordered: bool = Field(default=False, description="Members consume each queue in order.")
    consume_enabled: bool = Field(default=True, description="false: members can lock no queue.")
    broadcast_enabled: bool = Field(default=True, description="true: members may broadcast.")
    subscription_mode: SubscriptionMode = Field(
        default="shared",
        description="shared: the broker refuses members whose subscriptions differ",
    )


class Subscription(Request):
    """A topic, and a filter on its messages."""

    topic: TopicName
    filter: Annotated[str, Field(max_length=FILTER_SIZE_MAX)] = "*"
    filter_type: FilterType = "tag"


class GroupConfig(Answer):
    """A group as one broker holds it."""

    group: str
    start: Annotated[Literal["earliest", "latest"] | Instant, _PLACE_SCHEMA]
    retries_max: int
    retry_policy: RetryPolicy | None
    ordered: bool
    consume_enabled: bool
    broadcast_enabled: bool
    subscription_mode: SubscriptionMode
    created_at: Instant | None = Field(
        description="null: the group was never created; only commits name it"
    )
    subscription_version: int = Field(description="grows with each change of the subscriptions")
    subscriptions: list[Subscription]
    members: int = Field(description="number of live members on this broker")
    is_system: bool = False


class GroupList(Answer):
    """A page of groups, by name."""

    groups: list[GroupConfig]
    next_cursor: str | None = None


class GroupLagTotal(Answer):
    """The lag of a group in all queues of one broker in which it has a position."""

    group: str
    queue_count: int | None = Field(
        description="existing queues in which the group has begun; null: unknown"
    )
    lag: int | None = Field(description="messages; null: unknown, or the group has begun nowhere")
    oldest_unconsumed_at: Instant | None = Field(
        description="store time of the oldest unread message; null: unknown, or there is none"
    )


class GroupLagList(Answer):
    """A page of groups' lags, by the names of the groups."""

    lags: list[GroupLagTotal]
    next_cursor: str | None = None


# --- Members --------------------------------------------------------------------------------------


def _distinct_topics(subscriptions: list[Subscription]) -> list[Subscription]:
    topics = Counter(subscription.topic for subscription in subscriptions)
    for topic, count in topics.items():
        if count > 1:
            raise ValueError(f"topic {topic!r} is subscribed to {count} times")
    return subscriptions


def _few_entries(value: object) -> object:
    if isinstance(value, dict) and len(value) > SUBSCRIPTION_COUNT_MAX:
        raise ValueError(f"more than {SUBSCRIPTION_COUNT_MAX} entries")
    return value


class LockToken(Request):
    """A lock, as its holder knows it."""

    topic: TopicName
    queue_id: QueueId
    token: Token


class MemberHandling(Request):
    """The handlers of a member in about the last minute, by its own account."""

    covered_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        description="length of the period; shorter than a minute for a new member"
    )
    message_count: Annotated[int, Field(ge=0, le=OFFSET_MAX)] = Field(
        description="messages whose handling ended, failed ones included"
    )
    failed_count: Annotated[int, Field(ge=0, le=OFFSET_MAX)] = 0
    call_count: Annotated[int, Field(ge=0, le=OFFSET_MAX)] = Field(
        description="calls of handlers, each with one message or a batch"
    )
    busy_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        description="time in handlers, of all threads and tasks together"
    )
    longest_running_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=0.0, description="how long the oldest call has been running; 0: none is running"
    )

    @property
    def mean_seconds(self) -> float | None:
        """Mean time of a call; None without calls."""
        return self.busy_seconds / self.call_count if self.call_count else None


class Heartbeat(Request):
    """Join a group, or renew the member's session."""

    incarnation: Incarnation
    subscriptions: Annotated[
        list[Subscription],
        Field(min_length=1, max_length=SUBSCRIPTION_COUNT_MAX, fail_fast=True),
        AfterValidator(_distinct_topics),
    ]
    message_model: MessageModel = "clustering"
    consume_type: ConsumeType = "push"
    session_seconds: Annotated[
        float, Field(ge=SESSION_SECONDS_MIN, le=SESSION_SECONDS_MAX, allow_inf_nan=False)
    ] = Field(
        default=SESSION_SECONDS_DEFAULT,
        description="the member leaves and its locks are released after so long without a "
        "heartbeat",
    )
    is_static: bool = Field(
        default=False,
        description="the client id belongs to this instance permanently: a later static process "
        "with the same id takes over at once",
    )
    replaces_subscription_version: Annotated[int, Field(ge=0, le=OFFSET_MAX)] | None = Field(
        default=None,
        description="replaces the group's subscriptions with these, if their version is still "
        "this one",
    )
    start: Start | None = Field(
        default=None,
        description="start of a group that this heartbeat creates; null: `latest`; ignored for "
        "an existing group",
    )
    topics_since: Annotated[dict[TopicName, Moment], BeforeValidator(_few_entries)] = Field(
        default={},
        description="when the group first subscribed to each topic, from the topic's coordinator; "
        "a broker that learns of the group later starts there instead of at `latest`",
    )
    locks: Annotated[list[LockToken], Field(max_length=LOCK_COUNT_MAX, fail_fast=True)] = Field(
        default=[], description="locks that the member believes it holds on this broker"
    )
    handling: MemberHandling | None = Field(
        default=None, description="what its handlers did lately; null: it does not tell"
    )


class QueueRef(Answer):
    """A queue of this broker."""

    topic: str
    queue_id: int


class MemberAnswer(Answer):
    """A member's place in its group."""

    group: str
    client_id: str
    generation: int = Field(description="grows with each change of members or subscriptions")
    subscription_version: int
    session_seconds: float
    consume_enabled: bool = Field(description="false: consumption is switched off; do not read")
    lost_locks: list[QueueRef] = Field(
        description="the heartbeat's locks that these tokens no longer hold; stop reading them"
    )
    topics_since: dict[str, Instant] = Field(
        description="when the group first subscribed to each topic"
    )


class Member(Answer):
    """A live member."""

    client_id: str
    incarnation: str
    address: str = Field(description="source address of its heartbeats")
    message_model: MessageModel
    consume_type: ConsumeType
    is_static: bool
    subscriptions: list[Subscription]
    joined_at: Instant
    last_seen_at: Instant
    session_seconds: float
    locks: list[QueueRef]
    handling: MemberHandling | None = Field(
        default=None,
        description="what its handlers did, as of its last heartbeat; null: it does not tell",
    )


class MemberList(Answer):
    """The members of a group, sorted by client id."""

    group: str
    generation: int
    subscription_version: int
    members: list[Member]


# --- Locks ----------------------------------------------------------------------------------------


class WantedQueue(Request):
    """A queue to lock."""

    topic: TopicName
    queue_id: QueueId


def _distinct_queues(queues: Sequence[LockToken | WantedQueue | QueueRelease]) -> object:
    counts = Counter((queue.topic, queue.queue_id) for queue in queues)
    for (topic, queue_id), count in counts.items():
        if count > 1:
            raise ValueError(f"the list contains queue {queue_id} of {topic!r} {count} times")
    return queues


class LockRequest(Request):
    """Request locks on queues for a member."""

    client_id: ClientId
    incarnation: Incarnation
    queues: Annotated[
        list[WantedQueue],
        Field(min_length=1, max_length=LOCK_COUNT_MAX, fail_fast=True),
        AfterValidator(_distinct_queues),
    ]
    wait_seconds: WaitSeconds = Field(
        default=0, description="how long to wait for a first lock if none is free"
    )


class StartPosition(Answer):
    """The group's start position in a queue, decided once."""

    offset: int
    reason: StartReason = Field(
        description="`earliest`, `latest`, `time`: from the group's `start`; `added`: the queue or "
        "its topic is newer than the group; `since`: the time of the group's first subscription "
        "to the topic"
    )
    at: Instant = Field(description="time of the decision")


class GrantedLock(Answer):
    """A lock: from now on, only this member reads the queue."""

    topic: str
    queue_id: int
    token: int = Field(description="needed to commit, release and send back")
    next_offset: int = Field(
        description="offset to read next: committed_offset, or the start position"
    )
    committed_offset: int | None
    started: StartPosition | None


class RefusedLock(Answer):
    """A queue that another member reads."""

    topic: str
    queue_id: int
    owner: str | None = Field(
        description="client id of the holder; null: messages of the queue are leased as deliveries"
    )
    expires_in_seconds: float = Field(
        description="until the lock expires, unless its owner renews it"
    )


class LockAnswer(Answer):
    """The granted and the refused locks."""

    locks: list[GrantedLock]
    refused: list[RefusedLock]


class QueueRelease(Request):
    """A lock to release, with the queue's final offset."""

    topic: TopicName
    queue_id: QueueId
    token: Token
    offset: Offset | None = Field(default=None, description="null: the last committed offset")


class LockRelease(Request):
    """Release a member's locks and commit the final offsets, atomically."""

    client_id: ClientId
    incarnation: Incarnation
    queues: Annotated[
        list[QueueRelease],
        Field(min_length=1, max_length=LOCK_COUNT_MAX, fail_fast=True),
        AfterValidator(_distinct_queues),
    ]


# --- Offsets --------------------------------------------------------------------------------------


class OffsetCommit(Request):
    """A group's new position in one queue: the next offset to read."""

    topic: TopicName
    queue_id: QueueId
    offset: Offset
    token: Token | None = Field(default=None, description="the lock's token if a member commits")


class OffsetCommits(Request):
    """Positions to store: all of them or, if one is refused, none."""

    offsets: Annotated[list[OffsetCommit], Field(min_length=1, max_length=OFFSET_COUNT_MAX)]
    client_id: ClientId | None = Field(
        default=None, description="the member that commits; each offset then needs a lock token"
    )
    incarnation: Incarnation | None = None

    @model_validator(mode="after")
    def _names_its_member(self) -> OffsetCommits:
        if (self.client_id is None) != (self.incarnation is None):
            raise ValueError("give client_id and incarnation together, or neither")
        if self.client_id is None and any(o.token is not None for o in self.offsets):
            raise ValueError("a token needs a client_id")
        if self.client_id is not None and any(o.token is None for o in self.offsets):
            raise ValueError("with a client_id, each offset needs its lock's token")
        return self


class CommittedOffset(Answer):
    """A group's position in one queue. Unknown is null, never 0."""

    topic: str
    queue_id: int
    committed_offset: int | None
    min_offset: int | None = Field(description="null: the queue is not on this broker")
    max_offset: int | None
    lag: int | None = Field(
        description="messages to consume, from the committed offset or else the start position; "
        "null: both are unknown"
    )
    oldest_unconsumed_at: Instant | None = Field(
        default=None,
        description="store time of the oldest of these messages; null: none, or it is unknown: the "
        "message is damaged, or in the tier, which cannot be read now",
    )
    started: StartPosition | None = None
    owner: str | None = Field(
        default=None, description="client id of the member that reads the queue"
    )


class GroupTraffic(Answer):
    """Messages of a topic that a group took over: by commits, and by acknowledgements."""

    topic: str
    message_count: int | None = Field(
        description="messages that commits moved its positions past, or that it acknowledged; "
        "null: this broker counts them together with those of other groups"
    )
    size_bytes: int | None = Field(
        description="bytes of their records, without messages that were deleted before"
    )


class GroupOffsets(Answer):
    """A group's positions on one broker."""

    group: str
    offsets: list[CommittedOffset]
    lag: int | None = Field(
        default=None,
        description="total of this broker's queues; null: the lag of one is unknown",
    )
    oldest_unconsumed_at: Instant | None = Field(
        default=None,
        description="the oldest of them; null: none, or one is in the tier and cannot be read now",
    )
    traffic: list[GroupTraffic] = Field(
        default=[], description="what it took over of each of these topics, since traffic_since"
    )
    traffic_since: Instant | None = Field(
        default=None, description="when this broker began to count it; null: it does not"
    )


class QueueAsOf(Answer):
    """A group's position in one queue, as of an earlier log offset. Unknown is null."""

    topic: str
    queue_id: int
    committed_offset: int | None = Field(description="null: it had none")
    max_offset: int | None = Field(
        description="the queue's next offset then; null: the topic was deleted since, or its files "
        "cannot be read"
    )
    lag: int | None = Field(description="messages to consume then; null: a part is unknown")
    unfinished_count: int = Field(description="messages received and not finished")
    owner: str | None = Field(description="client id of the member that had locked the queue")


class GroupAsOf(Answer):
    """A group on one broker, as of an earlier log offset, folded from the log."""

    group: str
    log_offset: int = Field(description="the state is that after all records before it")
    unknown: str | None = Field(
        description="why the state cannot be known from the log; null: it is known"
    )
    exists: bool | None = Field(description="whether the group existed; null: unknown")
    consume_enabled: bool | None = Field(default=None, description="null: unknown, or no group")
    subscriptions: list[Subscription] = Field(default=[])
    queues: list[QueueAsOf] = Field(default=[], description="those in which it had any state")
    snapshot_log_offset: int | None = Field(
        default=None, description="the snapshot of the state from which it was folded"
    )


class ResetToOffset(Request):
    """A reset to an offset."""

    offset: Offset


class OffsetReset(Request):
    """Move a group's positions in a topic."""

    topic: TopicName
    to: Annotated[
        Annotated[Place, Tag("place")] | Annotated[ResetToOffset, Tag("offset")],
        _one_of(
            _kind_of_target,
            '"earliest", "latest", a time as in 2026-11-21T08:00:00Z or {"offset": 1000}',
        ),
    ] = Field(examples=["earliest", "2026-11-21T08:00:00Z", {"offset": 1_000}])
    queue_ids: Annotated[list[QueueId], Field(min_length=1, max_length=LOCK_COUNT_MAX)] | None = (
        Field(default=None, description="null: every queue of the topic on this broker")
    )
    dry_run: bool = Field(default=False, description="report the result and change nothing")


class QueueReset(Answer):
    """One queue's part of a reset."""

    queue_id: int
    from_offset: int | None = Field(description="null: the group had no position")
    to_offset: int
    min_offset: int
    max_offset: int


class ResetAnswer(Answer):
    """Result of a reset, or of its dry run."""

    group: str
    topic: str
    dry_run: bool
    queues: list[QueueReset]
