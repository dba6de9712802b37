"""JSON models of topics and their queues, as brokers serve them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from eruca.contract.fields import (
    OFFSET_MAX,
    Answer,
    BrokerName,
    Permission,
    QueueCount,
    Request,
    with_few_members,
)
from eruca.contract.limits import (
    ORDER_BROKER_COUNT_MAX,
    QUEUE_COUNT_DEFAULT,
)
from eruca.contract.times import Instant


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
        BeforeValidator(with_few_members),
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
