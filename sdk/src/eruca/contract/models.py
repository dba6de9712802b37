"""The JSON models beside the hot path: topics, routes, brokers, queues' offsets, status.

Those of groups are in :mod:`eruca.contract.groups`, those of retries, dead letters and delayed
messages in :mod:`eruca.contract.retries`.

Requests forbid unknown fields, so that a misspelt one is an error and not a surprise, and take each
value in its own type only: "4" and true are no numbers. Offsets are JSON integers of up to 64 bits.

Each fault in a request costs the service far more than the bytes that made it. So what can hold
many faults is refused at the first one: objects with absurdly many members, and long lists.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationInfo,
    field_validator,
    model_validator,
)

from eruca.contract import names
from eruca.contract.limits import (
    BROKER_TOPIC_COUNT_MAX,
    DERIVED_TOPIC_SIZE_MAX,
    FILTER_SIZE_MAX,
    GROUP_SIZE_MAX,
    KV_VALUE_SIZE_MAX,
    ORDER_BROKER_COUNT_MAX,
    ORDERED_BROKER_COUNT_MAX,
    PULL_COUNT_DEFAULT,
    PULL_COUNT_MAX,
    PULL_QUEUE_COUNT_MAX,
    PULL_SIZE_DEFAULT,
    PULL_SIZE_MAX,
    QUEUE_COUNT_DEFAULT,
    QUEUE_COUNT_MAX,
    WAIT_SECONDS_MAX,
)
from eruca.contract.records import Host
from eruca.contract.times import Instant
from eruca.contract.urls import URL_PATTERN, checked_url

OFFSET_MAX = 2**63 - 1
SETTLING_HEADER = "eruca-settling"  # of a route: brokers may be missing for so many seconds
MEMBER_COUNT_MAX = 64  # members of an object in a request; none has that many fields


def _checked_topic(name: str) -> str:
    fault = names.broker_topic_fault(name)
    if fault is not None:
        raise ValueError(f"not a topic's name: {fault.value.replace('_', ' ')}")
    return name


def _with_few_members(value: object) -> object:
    if isinstance(value, dict) and len(value) > MEMBER_COUNT_MAX:
        raise ValueError(f"more than {MEMBER_COUNT_MAX} members")
    return value


def _not_a_number(value: object) -> object:
    # Pydantic would take a bare number for seconds, or milliseconds, since 1970.
    if isinstance(value, int | float) or (isinstance(value, str) and value[10:11].upper() != "T"):
        raise ValueError("a time is written as in 2026-11-21T08:00:00Z")
    return value


def _checked_host(text: str) -> str:
    Host.from_text(text)
    return text


TopicName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=DERIVED_TOPIC_SIZE_MAX,
        pattern=names.NAME_PATTERN,
        description="Letters, digits, %, |, _ and -; up to 127 of them (255 when derived).",
        examples=["flights"],
    ),
    AfterValidator(_checked_topic),
]
GroupName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=GROUP_SIZE_MAX,
        pattern=names.NAME_PATTERN,
        description="Letters, digits, %, |, _ and -; up to 120 of them.",
        examples=["billing"],
    ),
]
BrokerName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=127,
        # Not dots alone, which are another place in a URL's path.
        pattern=r"^[a-zA-Z0-9_.@-]*[a-zA-Z0-9_@-][a-zA-Z0-9_.@-]*$",
        examples=["broker-a"],
    ),
]
ClusterName = Annotated[
    str, Field(min_length=1, max_length=127, pattern=r"^[a-zA-Z0-9_.-]+$", examples=["eruca"])
]
MASTER_ID: Final = 0
"""The broker id of the master among the brokers of a name."""
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1, description="0 is the master.")]
QueueId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
QueueCount = Annotated[int, Field(ge=1, le=QUEUE_COUNT_MAX)]
BrokerRole = Literal["master"]
Permission = Literal["rw", "r", "w", "none"]
WaitSeconds = Annotated[float, Field(ge=0, le=WAIT_SECONDS_MAX, allow_inf_nan=False)]


# Not strict, which would refuse a text that FastAPI has already taken out of the JSON.
Moment = Annotated[AwareDatetime, Strict(strict=False), BeforeValidator(_not_a_number)]
"""RFC 3339 with an offset, and nothing else that could be taken for a time."""


class Request(BaseModel):
    """Base of what clients send: unknown fields are refused, and so is "4" for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_members(cls, value: object) -> object:
        return _with_few_members(value)


class Answer(BaseModel):
    """Base of what services send: a client ignores fields it does not know."""

    model_config = ConfigDict(frozen=True)


# --- Topics ---------------------------------------------------------------------------------------


class OrderConfig(Request):
    """Over which queues, on all of its brokers, an ordered topic's sharding keys are divided.

    Each broker of the topic holds it whole, so that it is known while some of them are away. Where
    they differ, as after a change that one of them missed, the highest version is meant.
    """

    version: Annotated[int, Field(ge=1, le=OFFSET_MAX)] = Field(
        description="Counts up with each change."
    )
    queues: Annotated[
        dict[BrokerName, QueueCount],
        Field(min_length=1, max_length=ORDER_BROKER_COUNT_MAX),
        BeforeValidator(_with_few_members),
    ] = Field(
        description="How many queues each broker has, from queue 0 on.",
        examples=[{"broker-a": 4, "broker-b": 4}],
    )

    @property
    def text(self) -> str:
        """As RocketMQ writes it, and routes have it: ``broker-a:4;broker-b:4``."""
        return ";".join(
            f"{broker_name}:{count}" for broker_name, count in sorted(self.queues.items())
        )


class TopicSettings(Request):
    """Settings of a topic; of an existing one, only the named settings change."""

    read_queue_count: QueueCount = Field(
        default=QUEUE_COUNT_DEFAULT,
        description="a new topic has as many as it has to write to, and no fewer than 4",
    )
    write_queue_count: QueueCount = Field(
        default=QUEUE_COUNT_DEFAULT,
        description="no more than `read_queue_count`, or messages would be out of reach",
    )
    permission: Permission = "rw"
    ordered: bool = Field(
        default=False,
        description="Whether a sharding key keeps its queue while that queue's broker is away: "
        "`order_config` says over which queues keys are divided.",
    )
    order_config: OrderConfig | None = Field(
        default=None,
        description="Of an ordered topic. null leaves the one that is there; where there is none, "
        "keys are divided over the queues of the brokers that live.",
    )

    def with_fitting_counts(self) -> TopicSettings:
        """Return a new topic's settings: a count that is not named fits the one that is."""
        named = self.model_fields_set
        if "read_queue_count" not in named:
            fitting = {"read_queue_count": max(self.read_queue_count, self.write_queue_count)}
        elif "write_queue_count" not in named:
            fitting = {"write_queue_count": min(self.read_queue_count, self.write_queue_count)}
        else:
            return self
        return self.model_copy(update=fitting)

    @field_validator("order_config")
    @classmethod
    def _of_an_ordered_topic(
        cls, value: OrderConfig | None, info: ValidationInfo
    ) -> OrderConfig | None:
        if value is not None and not info.data.get("ordered", True):
            raise ValueError("only an ordered topic has one: set ordered to true")
        return value


class TopicConfig(Answer):
    """A topic as one broker holds it, and as it registers it."""

    model_config = ConfigDict(strict=True)

    topic: str
    read_queue_count: int
    write_queue_count: int
    permission: Permission
    ordered: bool = False
    order_config: OrderConfig | None = None
    is_system: bool = False


class TopicList(Answer):
    """A page of topics, by name."""

    topics: list[TopicConfig]
    next_cursor: str | None = None


class QueueOffsets(Answer):
    """What a queue holds: offsets from ``min_offset`` up to, not including, ``max_offset``."""

    queue_id: int
    min_offset: int
    max_offset: int
    earliest_stored_at: Instant | None = Field(description="Of the first message still there.")
    latest_stored_at: Instant | None = Field(description="Of the last message.")


TopicId = Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]+-[0-9]+$")]
"""A log's id, and where in that log the topic was created."""


class TopicQueues(Answer):
    """A topic's queues on one broker."""

    topic: str
    topic_id: str | None = Field(
        default=None,
        description="Tells this topic from an earlier or later one of its name, and from one in "
        "another log; null: the broker is of a version that does not tell. Offsets under one id "
        "are never those of other messages, unless the log was restored from an older copy.",
    )
    broker_started_at: Instant | None = Field(
        default=None,
        description="A log can only have been restored or cut while its broker was not running.",
    )
    queues: list[QueueOffsets]


class OffsetByTime(Answer):
    """The offset a time leads to."""

    topic: str
    queue_id: int
    timestamp: Instant
    boundary: Literal["lower", "upper"]
    offset: int


class QueuePositionRequest(Request):
    """One queue of a multi-queue pull; see :class:`eruca.contract.messages.QueuePosition`."""

    topic: TopicName
    queue_id: QueueId
    offset: Offset
    filter: Annotated[str, Field(max_length=FILTER_SIZE_MAX)] = "*"
    filter_type: Literal["tag", "sql92"] = "tag"


class MultiPullRequest(Request):
    """A pull of many queues in one held request."""

    queues: Annotated[
        list[QueuePositionRequest], Field(min_length=1, max_length=PULL_QUEUE_COUNT_MAX)
    ]
    max_count: Annotated[int, Field(ge=1, le=PULL_COUNT_MAX)] = PULL_COUNT_DEFAULT
    max_bytes: Annotated[int, Field(ge=1, le=PULL_SIZE_MAX)] = PULL_SIZE_DEFAULT
    wait_seconds: WaitSeconds = 0


# --- Name server ----------------------------------------------------------------------------------


class BrokerRegistration(Request):
    """What a broker tells a name server; ``topics`` null is a light heartbeat."""

    cluster: ClusterName
    urls: Annotated[
        dict[
            Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")],
            Annotated[
                str,
                # Not as Field's pattern, which would refuse first, and only by showing itself.
                Field(max_length=2048, json_schema_extra={"pattern": URL_PATTERN}),
                AfterValidator(checked_url),
            ],
        ],
        BeforeValidator(_with_few_members),
    ] = Field(
        min_length=1,
        max_length=16,
        description="Where clients reach it, by network; `default` for all others",
        examples=[{"default": "http://127.0.0.1:10911"}],
    )
    store_host: Annotated[str, Field(max_length=64), AfterValidator(_checked_host)] = Field(
        description="IP:port that is written into its records", examples=["127.0.0.1:10911"]
    )
    data_version: Annotated[int, Field(ge=0, le=OFFSET_MAX)] = Field(
        description="grows with each change of its topics"
    )
    topics: (
        Annotated[list[TopicConfig], Field(max_length=BROKER_TOPIC_COUNT_MAX, fail_fast=True)]
        | None
    ) = None
    expiry_seconds: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = 120.0
    ordered_topics: dict[BrokerName, str] | None = Field(
        default=None,
        max_length=ORDERED_BROKER_COUNT_MAX,
        description="what name servers have said of other brokers' ordered topics, for one that "
        "has just started",
    )
    ordered_topics_digest: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="the one that came with what this name server said last"
    )


class RegistrationResult(Answer):
    """What the name server knows after a registration."""

    broker_name: str
    broker_id: int
    needs_topics: bool = Field(description="the version differs: register again, with topics")
    order_topics: dict[str, str] = Field(description="the KV namespace ORDER_TOPIC_CONFIG")
    ordered_topics: dict[str, str] | None = Field(
        default=None,
        description="the KV namespace ERUCA_ORDERED_TOPICS, to be kept for name servers that "
        "start; null: as the broker has it, or not whole yet",
    )
    ordered_topics_digest: str | None = Field(default=None, description="of `ordered_topics`")


class BrokerAddress(Answer):
    """One live broker process."""

    broker_id: int
    urls: dict[str, str]
    store_host: str
    data_version: int
    last_seen_at: Instant
    expires_at: Instant


class BrokerGroup(Answer):
    """A broker name and the processes that serve it: id 0 is the master."""

    cluster: str
    broker_name: str
    brokers: list[BrokerAddress]


class BrokerList(Answer):
    """Every live broker."""

    brokers: list[BrokerGroup]


class ClusterList(Answer):
    """Broker names by cluster."""

    clusters: dict[str, list[str]]


class TopicNames(Answer):
    """A page of the topics some live broker has."""

    topics: list[str]
    next_cursor: str | None = None


class QueueData(Answer):
    """A topic's queues on one broker name."""

    broker_name: str
    read_queue_count: int
    write_queue_count: int
    permission: Permission


class RouteBroker(Answer):
    """Where a broker name is reached: URLs by broker id, then by network."""

    cluster: str
    broker_name: str
    urls: dict[int, dict[str, str]]
    store_hosts: dict[int, str]


class TopicRoute(Answer):
    """Which queues a topic has where; sorted by broker name."""

    topic: str
    queues: list[QueueData]
    brokers: list[RouteBroker]
    order_config: str | None = Field(
        default=None,
        description="Of an ordered topic: over which queues sharding keys are divided, "
        "`broker:queues` for each broker, whether it is there or not, parted by `;`. Empty: its "
        "brokers are away, and have said only that it is ordered.",
        examples=["broker-a:4;broker-b:4"],
    )


class KvValue(Request):
    """A value of the key-value table."""

    value: Annotated[str, Field(max_length=KV_VALUE_SIZE_MAX)]


class KvEntry(Answer):
    """An entry of the key-value table."""

    namespace: str
    key: str
    value: str


class KvNamespace(Answer):
    """A namespace of the key-value table; without entries where there is no such namespace."""

    namespace: str
    entries: dict[str, str]


# --- Status ---------------------------------------------------------------------------------------


class ProjectionStatus(Answer):
    """How far a projection of the log has come."""

    name: str
    log_offset: int = Field(description="everything before it has been read")
    behind_bytes: int
    failure: str | None = Field(
        default=None,
        description="why it lacks what it is behind, where that could not be written: the log goes "
        "on, and it is tried again; or what was found damaged: a restart makes that anew",
    )


class LogStatus(Answer):
    """What the log holds."""

    log_id: str | None = Field(
        default=None,
        description="Tells this log from any other that this broker has or had; null: the broker "
        "is of a version that does not tell.",
    )
    min_offset: int
    max_offset: int = Field(description="where the next record goes")
    flushed_offset: int = Field(description="everything before it survives power loss")
    segment_size: int
    segment_count: int


class BrokerStatus(Answer):
    """Who a broker is and how it is doing."""

    cluster: str
    broker_name: str
    broker_id: int
    role: BrokerRole
    version: str
    store_host: str
    started_at: Instant
    now: Instant | None = Field(
        default=None,
        description="by the broker's clock, which the times in its log are by; null: it is of a "
        "version that does not tell",
    )
    flush_mode: Literal["sync", "async"]
    is_writable: bool
    refusal: str | None = Field(description="why writes are refused, else null")
    disk_used_ratio: float
    log: LogStatus
    projections: list[ProjectionStatus]
    held_requests: int
    held_requests_max: int
    bytes_in_flight: int
    bytes_in_flight_max: int
    consume_bytes_in_flight: int
    consume_bytes_in_flight_max: int
    topics: int
    groups: int


class NamesrvStatus(Answer):
    """Who a name server is and what it knows."""

    version: str
    started_at: Instant
    settling_seconds: float = Field(
        description="brokers may be missing for so long, for it has just started; 0: not any more"
    )
    brokers: int
    topics: int
    held_requests: int
    held_requests_max: int
