"""Consumer groups: their settings, members, locks and positions.

Two things are kept apart. Which member *should* read a queue, every member computes for itself,
from the topic's route and the member list of the topic's coordinator: the broker with the smallest
name in the route. Which member *does* read it is decided by a **lock** at the queue's own broker,
so that views which differ for a moment cause a pause and never two readers.

A lock belongs to its holder's **session**, which heartbeats renew. Its **token** only grows; with a
token that is not the queue's latest nothing can be committed, released or sent back.
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
    """Tell whether *value* is written as a place's name or as a time; None: neither."""
    if isinstance(value, str) and value in ("earliest", "latest"):
        return "name"
    return "time" if isinstance(value, str | datetime) else None


def _kind_of_target(value: object) -> str | None:
    """Tell whether *value* is written as a place or as an offset; None: neither."""
    if isinstance(value, dict | ResetToOffset):
        return "offset"
    return "place" if isinstance(value, str | datetime) else None


def _one_of(kind_of: Callable[[object], str | None], forms: str) -> Discriminator:
    """Choose a form by *kind_of*; the error for a value in none of them lists *forms*."""
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
        # Not dots alone, which are another place in a URL's path.
        pattern=r"^[a-zA-Z0-9_.@#:|%-]*[a-zA-Z0-9_@#:|%-][a-zA-Z0-9_.@#:|%-]*$",
        description="Names one process (or consumer) of the group.",
        examples=["10.1.2.3@4711#1"],
    ),
]
Incarnation = Annotated[
    str,
    Field(
        min_length=1,
        max_length=INCARNATION_SIZE_MAX,
        pattern=r"^[a-zA-Z0-9_.-]+$",
        description="Random; tells two processes with one client id apart.",
        examples=["6f1d2c90a4b84ef2"],
    ),
]
Token = Annotated[int, Field(ge=0, le=OFFSET_MAX, description="A lock's; see the answer to it.")]
SubscriptionMode = Literal["shared", "per_member"]
MessageModel = Literal["clustering", "broadcasting"]
ConsumeType = Literal["push", "pull"]
FilterType = Literal["tag", "sql92"]
StartReason = Literal["earliest", "latest", "time", "added", "since"]
# One plain string in the OpenAPI document: an alternative of a name and a time, both strings, is
# a type of its own to code generators, and the one they make for Java does not compile.
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
            'Where the group begins in a topic it meets for the first time: "earliest", "latest" '
            "or a time."
        ),
        examples=["latest", "2026-11-21T08:00:00Z"],
    ),
]


# --- Settings -------------------------------------------------------------------------------------

DelaySeconds = Annotated[float, Field(ge=0, le=DELAY_SECONDS_MAX, allow_inf_nan=False)]


class CustomizedRetryPolicy(Request):
    """Delays before the first, second … retry; the last one holds for all that follow."""

    kind: Literal["customized"] = "customized"
    delays_seconds: Annotated[
        Sequence[DelaySeconds],  # a program may give a tuple; what is kept is a list
        Field(min_length=1, max_length=RETRY_DELAY_COUNT_MAX),
        AfterValidator(list),
    ]


class ExponentialRetryPolicy(Request):
    """A delay that grows with each retry."""

    kind: Literal["exponential"] = "exponential"
    initial_seconds: DelaySeconds = 5
    multiplier: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = 2
    max_seconds: DelaySeconds = 7200


RetryPolicy = Annotated[CustomizedRetryPolicy | ExponentialRetryPolicy, Field(discriminator="kind")]


class GroupSettings(Request):
    """Settings of a group; of an existing one, only the named settings change."""

    start: Start = "latest"
    retry_max_times: Annotated[int, Field(ge=0, le=RETRY_TIMES_MAX)] = Field(
        default=RETRY_TIMES_DEFAULT,
        description="How often a message is retried before it is a dead letter.",
    )
    retry_policy: RetryPolicy | None = Field(
        default=None, description="null: delay level 3 + how often it has been retried"
    )
    ordered: bool = Field(default=False, description="Members consume each queue in order.")
    consume_enabled: bool = Field(default=True, description="false: no queue can be locked.")
    broadcast_enabled: bool = Field(default=True, description="Members may be broadcasting.")
    subscription_mode: SubscriptionMode = Field(
        default="shared", description="shared: members whose subscriptions differ are refused"
    )


class Subscription(Request):
    """A topic, and which of its messages."""

    topic: TopicName
    filter: Annotated[str, Field(max_length=FILTER_SIZE_MAX)] = "*"
    filter_type: FilterType = "tag"


class GroupConfig(Answer):
    """A group as one broker holds it."""

    group: str
    start: Annotated[Literal["earliest", "latest"] | Instant, _PLACE_SCHEMA]
    retry_max_times: int
    retry_policy: RetryPolicy | None
    ordered: bool
    consume_enabled: bool
    broadcast_enabled: bool
    subscription_mode: SubscriptionMode
    created_at: Instant | None = Field(description="null where it was only ever named by commits")
    subscription_version: int = Field(description="grows with each change of the subscriptions")
    subscriptions: list[Subscription]
    members: int = Field(description="how many are live here")
    is_system: bool = False


class GroupList(Answer):
    """A page of groups, by name."""

    groups: list[GroupConfig]
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


class Heartbeat(Request):
    """A member joins its group, or says that it is still there."""

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
        description="not heard from for so long, the member is out and its locks are free",
    )
    is_static: bool = Field(
        default=False,
        description="the client id is this instance's for good: a later process of the same id, "
        "static like the earlier one, takes over at once",
    )
    replaces_subscription_version: Annotated[int, Field(ge=0, le=OFFSET_MAX)] | None = Field(
        default=None,
        description="cut the group over to these subscriptions, if this is still their version",
    )
    start: Start | None = Field(
        default=None, description="of a group that this heartbeat creates, null: latest"
    )
    topics_since: Annotated[dict[TopicName, Moment], BeforeValidator(_few_entries)] = Field(
        default={},
        description="when the group first met each topic, as the topic's coordinator told: where a "
        "broker meets the group later and would start at `latest`, it starts there",
    )
    locks: Annotated[list[LockToken], Field(max_length=LOCK_COUNT_MAX, fail_fast=True)] = Field(
        default=[], description="what the member believes to hold here"
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
    consume_enabled: bool = Field(description="false: consumption is switched off; keep still")
    lost_locks: list[QueueRef] = Field(
        description="of the locks in the heartbeat, those not held by these tokens: stop reading"
    )
    topics_since: dict[str, Instant] = Field(description="when the group first met each topic")


class Member(Answer):
    """A live member."""

    client_id: str
    incarnation: str
    address: str = Field(description="where its heartbeats come from")
    message_model: MessageModel
    consume_type: ConsumeType
    is_static: bool
    subscriptions: list[Subscription]
    joined_at: Instant
    last_seen_at: Instant
    session_seconds: float
    locks: list[QueueRef]


class MemberList(Answer):
    """Who is in a group, by client id."""

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
            raise ValueError(f"queue {queue_id} of {topic!r} is in the list {count} times")
    return queues


class LockRequest(Request):
    """A member asks for queues."""

    client_id: ClientId
    incarnation: Incarnation
    queues: Annotated[
        list[WantedQueue],
        Field(min_length=1, max_length=LOCK_COUNT_MAX, fail_fast=True),
        AfterValidator(_distinct_queues),
    ]
    wait_seconds: WaitSeconds = Field(
        default=0, description="where none can be had: how long to wait for the first"
    )


class StartPosition(Answer):
    """Where a group began in a queue, decided once."""

    offset: int
    reason: StartReason = Field(
        description="`earliest`, `latest`, `time`: as the group's `start` says; `added`: the queue "
        "or its topic came later than the group; `since`: stored since the group met the topic"
    )
    at: Instant = Field(description="when that was decided")


class GrantedLock(Answer):
    """A queue that is now read by this member alone."""

    topic: str
    queue_id: int
    token: int = Field(description="to commit, release and send back with")
    next_offset: int = Field(description="where to read: committed_offset, or where it started")
    committed_offset: int | None
    started: StartPosition | None


class RefusedLock(Answer):
    """A queue that somebody else reads."""

    topic: str
    queue_id: int
    owner: str | None = Field(
        description="client id; null: messages of it are handed out as deliveries"
    )
    expires_in_seconds: float = Field(description="unless its owner is heard from before")


class LockAnswer(Answer):
    """What was granted, what was not."""

    locks: list[GrantedLock]
    refused: list[RefusedLock]


class QueueRelease(Request):
    """A lock to give up, and how far its queue has been consumed."""

    topic: TopicName
    queue_id: QueueId
    token: Token
    offset: Offset | None = Field(default=None, description="null: as last committed")


class LockRelease(Request):
    """A member gives queues up: final offsets are committed and locks released as one."""

    client_id: ClientId
    incarnation: Incarnation
    queues: Annotated[
        list[QueueRelease],
        Field(min_length=1, max_length=LOCK_COUNT_MAX, fail_fast=True),
        AfterValidator(_distinct_queues),
    ]


# --- Offsets --------------------------------------------------------------------------------------


class OffsetCommit(Request):
    """A group's new position in one queue: the next offset it will read."""

    topic: TopicName
    queue_id: QueueId
    offset: Offset
    token: Token | None = Field(default=None, description="the lock's, where a member commits")


class OffsetCommits(Request):
    """Positions to store; all of them or, if one is refused, none."""

    offsets: Annotated[list[OffsetCommit], Field(min_length=1, max_length=OFFSET_COUNT_MAX)]
    client_id: ClientId | None = Field(
        default=None, description="a member's: then each offset needs its lock's token"
    )
    incarnation: Incarnation | None = None

    @model_validator(mode="after")
    def _names_its_member(self) -> OffsetCommits:
        if (self.client_id is None) != (self.incarnation is None):
            raise ValueError("client_id and incarnation come together or not at all")
        if self.client_id is None and any(o.token is not None for o in self.offsets):
            raise ValueError("a token goes with a client_id")
        if self.client_id is not None and any(o.token is None for o in self.offsets):
            raise ValueError("with a client_id each offset needs its lock's token")
        return self


class CommittedOffset(Answer):
    """A group's position in one queue. Unknown is null, never 0."""

    topic: str
    queue_id: int
    committed_offset: int | None
    min_offset: int | None = Field(description="null where the queue is not on this broker")
    max_offset: int | None
    lag: int | None = Field(
        description="messages still to be consumed, from the position or else the start on; null "
        "while both are unknown"
    )
    oldest_unconsumed_at: Instant | None = Field(
        default=None, description="when the oldest of them was stored; null where there is none"
    )
    started: StartPosition | None = None
    owner: str | None = Field(default=None, description="client id of the member that reads it")


class GroupOffsets(Answer):
    """A group's positions on one broker."""

    group: str
    offsets: list[CommittedOffset]
    lag: int | None = Field(
        default=None,
        description="of all queues that are on this broker; null when one is unknown",
    )
    oldest_unconsumed_at: Instant | None = None


class ResetToOffset(Request):
    """A reset to a number."""

    offset: Offset


class OffsetReset(Request):
    """Where a group shall go on reading a topic."""

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
    dry_run: bool = Field(default=False, description="only tell what would happen")


class QueueReset(Answer):
    """One queue's part of a reset."""

    queue_id: int
    from_offset: int | None = Field(description="null where the group stood nowhere")
    to_offset: int
    min_offset: int
    max_offset: int


class ResetAnswer(Answer):
    """What a reset did, or would do."""

    group: str
    topic: str
    dry_run: bool
    queues: list[QueueReset]
