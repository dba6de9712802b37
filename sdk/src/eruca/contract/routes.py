"""JSON models of the name server: registrations, brokers, routes and the key-value table."""

from __future__ import annotations

from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
)

from eruca.contract.fields import (
    OFFSET_MAX,
    STANDALONE_EPOCH,
    Answer,
    BrokerEpoch,
    BrokerName,
    BrokerRole,
    ClusterName,
    NetworkUrls,
    Permission,
    Request,
)
from eruca.contract.limits import (
    BROKER_TOPIC_COUNT_MAX,
    FORMER_STORE_HOST_COUNT_MAX,
    KV_VALUE_SIZE_MAX,
    ORDERED_BROKER_COUNT_MAX,
)
from eruca.contract.records import Host
from eruca.contract.times import Instant
from eruca.contract.topics import TopicConfig

SETTLING_HEADER = "eruca-settling"  # seconds in which the route may still lack brokers


def _checked_host(text: str) -> str:
    Host.from_text(text)
    return text


StoreHost = Annotated[str, Field(max_length=64), AfterValidator(_checked_host)]


class BrokerRegistration(Request):
    """Register a broker, or renew its registration; a heartbeat omits ``topics``."""

    cluster: ClusterName
    urls: NetworkUrls
    store_host: StoreHost = Field(
        description="IP:port that the broker writes into its records",
        examples=["127.0.0.1:10911"],
    )
    epoch: BrokerEpoch = STANDALONE_EPOCH
    role: BrokerRole | None = Field(
        default=None,
        description="null: `master` for broker id 0, `standby` for another. A `master` has id 0.",
    )
    replica_id: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None, description="its number in its broker group; null: it has no replicas"
    )
    former_store_hosts: Annotated[
        list[StoreHost], Field(max_length=FORMER_STORE_HOST_COUNT_MAX, fail_fast=True)
    ] = Field(
        default=[],
        description="IP:port that former masters of the group wrote into its records, the latest "
        "first",
    )
    data_version: Annotated[int, Field(ge=0, le=OFFSET_MAX)] = Field(
        description="grows with each change of the broker's topics"
    )
    topics: (
        Annotated[list[TopicConfig], Field(max_length=BROKER_TOPIC_COUNT_MAX, fail_fast=True)]
        | None
    ) = None
    expiry_seconds: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = 120.0
    ordered_topics: dict[BrokerName, str] | None = Field(
        default=None,
        max_length=ORDERED_BROKER_COUNT_MAX,
        description="other brokers' ordered topics as name servers reported them, for a name "
        "server that has just started",
    )
    ordered_topics_digest: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="digest from this name server's last `ordered_topics`"
    )


class RegistrationResult(Answer):
    """Answer to a registration."""

    broker_name: str
    broker_id: int
    needs_topics: bool = Field(description="true: the version differs; register with `topics`")
    order_topics: dict[str, str] = Field(description="the KV namespace ORDER_TOPIC_CONFIG")
    ordered_topics: dict[str, str] | None = Field(
        default=None,
        description="the KV namespace ERUCA_ORDERED_TOPICS, which the broker keeps for name "
        "servers that restart; null: unchanged, or not complete yet",
    )
    ordered_topics_digest: str | None = Field(
        default=None, description="digest of `ordered_topics`"
    )


class BrokerAddress(Answer):
    """One live broker process."""

    broker_id: int
    epoch: int = STANDALONE_EPOCH
    role: BrokerRole
    replica_id: int | None = None
    urls: dict[str, str]
    store_host: str
    data_version: int
    last_seen_at: Instant
    expires_at: Instant


class BrokerGroup(Answer):
    """The broker processes of one name; id 0 is the master."""

    cluster: str
    broker_name: str
    epoch: int = Field(
        default=STANDALONE_EPOCH, description="the latest that any of them has registered"
    )
    brokers: list[BrokerAddress]
    former_store_hosts: list[str] = Field(
        default=[], description="IP:port in records that former masters of the name have written"
    )


class BrokerList(Answer):
    """The live brokers."""

    brokers: list[BrokerGroup]


class ClusterList(Answer):
    """Broker names by cluster."""

    clusters: dict[str, list[str]]


class TopicNames(Answer):
    """A page of the topics that live brokers have."""

    topics: list[str]
    next_cursor: str | None = None


class QueueData(Answer):
    """A topic's queues on one broker name."""

    broker_name: str
    read_queue_count: int
    write_queue_count: int
    permission: Permission


class RouteBroker(Answer):
    """The brokers of one name, by broker id, and URLs then by network; without id 0: no master."""

    cluster: str
    broker_name: str
    urls: dict[int, dict[str, str]]
    store_hosts: dict[int, str]
    epoch: int = Field(
        default=STANDALONE_EPOCH, description="the latest that any of them has registered"
    )
    roles: dict[int, BrokerRole] = Field(
        default={}, description="by broker id: `standby` is in sync, `learner` is not"
    )
    replica_ids: dict[int, int] = Field(
        default={}, description="by broker id; empty for brokers without replicas"
    )


class TopicRoute(Answer):
    """A topic's queues and their brokers, sorted by broker name."""

    topic: str
    queues: list[QueueData]
    brokers: list[RouteBroker]
    order_config: str | None = Field(
        default=None,
        description="For an ordered topic, the queues that its sharding keys are divided over: "
        "`broker:queues` for each broker, live or not, separated by `;`. Empty: the topic is "
        "ordered, its brokers are unreachable, and the name server knows no more.",
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
    """A namespace of the key-value table; a missing namespace has no entries."""

    namespace: str
    entries: dict[str, str]
