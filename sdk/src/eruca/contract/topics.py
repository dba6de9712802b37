"""JSON models of a broker's topics and their queues."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from eruca.contract.errors import ValidationError
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
    """The queues, on all brokers, that an ordered topic divides its sharding keys over.

    Each broker of the topic holds the whole config, so it is known while some brokers are down. If
    the brokers' configs differ because one missed a change, the highest version is valid.
    """

    version: Annotated[int, Field(ge=1, le=OFFSET_MAX)] = Field(
        description="Grows with each change."
    )
    queues: Annotated[
        dict[BrokerName, QueueCount],
        Field(min_length=1, max_length=ORDER_BROKER_COUNT_MAX),
        BeforeValidator(with_few_members),
    ] = Field(
        description="Number of queues on each broker, from queue 0 on.",
        examples=[{"broker-a": 4, "broker-b": 4}],
    )

    @property
    def text(self) -> str:
        """The config as RocketMQ and routes write it: ``broker-a:4;broker-b:4``."""
        return ";".join(
            f"{broker_name}:{count}" for broker_name, count in sorted(self.queues.items())
        )


class TopicSettings(Request):
    """Settings of a topic; for an existing topic, only the given settings change."""

    read_queue_count: QueueCount = Field(
        default=QUEUE_COUNT_DEFAULT,
        description="default for a new topic: `write_queue_count`, but at least 4",
    )
    write_queue_count: QueueCount = Field(
        default=QUEUE_COUNT_DEFAULT,
        description="at most `read_queue_count`; consumers do not read queues beyond that",
    )
    permission: Permission = "rw"
    ordered: bool = Field(
        default=False,
        description="true: a sharding key keeps its queue while that queue's broker is down; "
        "`order_config` lists the queues that keys are divided over.",
    )
    order_config: OrderConfig | None = Field(
        default=None,
        description="Only for an ordered topic. null keeps the current config; without a config, "
        "keys are divided over the queues of the live brokers.",
    )

    def with_fitting_counts(self) -> TopicSettings:
        """Return a new topic's settings, with a missing count derived from the given one."""
        named = self.model_fields_set
        if "read_queue_count" not in named:
            fitting = {"read_queue_count": max(self.read_queue_count, self.write_queue_count)}
        elif "write_queue_count" not in named:
            fitting = {"write_queue_count": min(self.read_queue_count, self.write_queue_count)}
        else:
            return self
        return self.model_copy(update=fitting)

    def check_counts(self) -> None:
        """Raise ValidationError if there are more queues to write than to read.

        The settings are whole: what is not given has been filled in.
        """
        if self.write_queue_count > self.read_queue_count:
            raise ValidationError.at(
                "/body/write_queue_count",
                f"expected at most {self.read_queue_count} queues to write to, because that many "
                f"can be read, found {self.write_queue_count}",
                fix="raise read_queue_count, or lower write_queue_count",
            )

    @field_validator("order_config")
    @classmethod
    def _of_an_ordered_topic(
        cls, value: OrderConfig | None, info: ValidationInfo
    ) -> OrderConfig | None:
        if value is not None and not info.data.get("ordered", True):
            raise ValueError("only an ordered topic has an order config: set ordered to true")
        return value


class TopicConfig(Answer):
    """A topic as one broker holds and registers it."""

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
    """The offsets that a queue holds: from ``min_offset`` up to ``max_offset``, exclusive."""

    queue_id: int
    min_offset: int
    max_offset: int
    earliest_stored_at: Instant | None = Field(
        description="Store time of the first message that retention has kept; null: the queue has "
        "no message, or it is unknown: the message is damaged, or in the tier, which cannot be "
        "read now."
    )
    latest_stored_at: Instant | None = Field(
        description="Store time of the last message; null: none, or unknown, likewise."
    )


TopicId = Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]+-[0-9]+$")]
"""A log's id, and the offset in that log at which the topic was created."""


class TopicQueues(Answer):
    """A topic's queues on one broker."""

    topic: str
    topic_id: str | None = Field(
        default=None,
        description="Distinguishes this topic from an earlier or later topic of the same name, and "
        "from one in another log; null: the broker's version does not report it. An offset under "
        "one id never means another message, unless the log was restored from an older copy.",
    )
    broker_started_at: Instant | None = Field(
        default=None,
        description="Start of the broker; only before it can the log have been restored or "
        "truncated.",
    )
    epoch: int | None = Field(
        default=None,
        description="Epoch of the log's last record that readers may see; 0: the broker has no "
        "replicas; null: the broker's version does not report it.",
    )
    log_offset: int | None = Field(
        default=None,
        description="Log offset behind that record: the queues contain every record before it.",
    )
    queues: list[QueueOffsets]


class OffsetByTime(Answer):
    """The offset that a time maps to."""

    topic: str
    queue_id: int
    timestamp: Instant
    boundary: Literal["lower", "upper"]
    offset: int
