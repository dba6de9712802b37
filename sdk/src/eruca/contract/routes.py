"""JSON models of the name server: registrations, brokers, routes and the key-value table."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
)

from eruca.contract.fields import (
    OFFSET_MAX,
    Answer,
    BrokerName,
    ClusterName,
    Permission,
    Request,
    with_few_members,
)
from eruca.contract.limits import (
    BROKER_TOPIC_COUNT_MAX,
    KV_VALUE_SIZE_MAX,
    ORDERED_BROKER_COUNT_MAX,
)
from eruca.contract.records import Host
from eruca.contract.times import Instant
from eruca.contract.topics import TopicConfig
from eruca.contract.urls import URL_PATTERN, checked_url

SETTLING_HEADER = "eruca-settling"  # of a route: brokers may be missing for so many seconds


def _checked_host(text: str) -> str:
    Host.from_text(text)
    return text


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
        BeforeValidator(with_few_members),
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
