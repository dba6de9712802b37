"""The broker's settings, from ``ERUCA_BROKER_*``."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from eruca.contract.fields import BrokerName, ClusterName
from eruca.contract.limits import (
    BODY_SIZE_MAX,
    BROKER_TOPIC_COUNT_MAX,
    DELAY_SECONDS_MAX,
    HEARTBEAT_SECONDS_DEFAULT,
    RECORDS_SIZE_MAX,
    REPLICA_COUNT_MAX,
)
from eruca.contract.urls import checked_url
from eruca_broker.store.settings import SEGMENT_SIZE_MIN, FlushMode
from eruca_chassis.running.settings import ServiceSettings, at_least, checked_segment, checked_urls

_HOUR: Final = re.compile(r"[01]?[0-9]|2[0-3]")
COLD_RATE_MIN: Final = 1024 * 1024  # bytes a second: the largest pull waits for seconds
_NAMED_URL: Final = re.compile(r"(?:([A-Za-z0-9_.-]{1,64})=)?(https?://[^\s/?#;=]+)/?")


def _checked_advertised(text: str | None) -> str | None:
    if text is not None:
        advertised_urls(text)
    return text


def _checked_hours(text: str) -> str:
    split_hours(text)
    return text


def _checked_rate(rate: int) -> int:
    if 0 < rate < COLD_RATE_MIN:
        raise ValueError(f"expected 0, or at least {COLD_RATE_MIN}: slower, one pull takes minutes")
    return rate


class BrokerSettings(ServiceSettings):
    """The broker's settings."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_BROKER_")

    port: int = Field(default=10_911, ge=0, le=65_535, description="port to listen on; 0: any free")
    name: Annotated[BrokerName, AfterValidator(checked_segment)] = Field(
        default="broker-a", description="unique in the cluster; in routes"
    )
    controller_urls: Annotated[str, AfterValidator(checked_urls)] = Field(
        default="",
        description="URLs of all controllers, separated by ';': brokers of one name are replicas "
        "of one log; empty: this broker has no replicas",
    )
    replica_id: int = Field(
        default=1,
        ge=1,
        le=2**31 - 1,
        description="number of this replica, unique among brokers of its name; fixed by its store",
    )
    min_in_sync: int = Field(
        default=1,
        ge=1,
        le=REPLICA_COUNT_MAX,
        description="replicas in sync, the master included, without which it refuses sends; the "
        "master's setting counts",
    )
    replica_keep_bytes: int = Field(
        default=32 * 1024**3,
        ge=0,
        description="bytes of the log that retention keeps for replicas that have not copied them",
    )
    priority: int = Field(
        default=0,
        ge=-1_000,
        le=1_000,
        description="of several replicas with the same log, the one with the highest becomes "
        "master",
    )
    recovery_wait_seconds: float = Field(
        default=30,
        ge=0,
        le=3_600,
        description="if all replicas in sync may have lost messages, because their machines went "
        "down: time for other replicas to start, before the one with the longest log becomes "
        "master",
    )
    cluster: ClusterName = Field(default="eruca", description="the cluster it belongs to")
    namesrv_urls: Annotated[str, AfterValidator(checked_urls)] = Field(
        default="http://127.0.0.1:9876",
        description="URLs of all name servers, separated by ';'; empty: none",
    )
    advertised_url: Annotated[str | None, AfterValidator(_checked_advertised)] = Field(
        default=None,
        description="URL for clients; or several, by network: NAME=URL;NAME=URL, one of them "
        "named default. Unset: from host and port",
    )
    store_ip: str | None = Field(
        default=None,
        description="address written into its records and offset message ids; unset: that of "
        "advertised_url or host",
    )
    heartbeat_seconds: float = Field(
        default=HEARTBEAT_SECONDS_DEFAULT,
        ge=0.1,
        le=60,
        description="interval of heartbeats to name servers; if longer, raise their "
        "ERUCA_NAMESRV_SETTLE_SECONDS",
    )
    registration_seconds: float = Field(
        default=30, ge=1, le=60, description="interval at which it sends them its topics"
    )
    expiry_seconds: Annotated[float, at_least("heartbeat_seconds", times=2)] = Field(
        default=20,
        ge=1,
        le=600,
        description="it leaves the routes after this time without a heartbeat",
    )

    store_dir: Path = Field(default=Path("store"), description="directory of the store")
    flush_mode: FlushMode = Field(
        default=FlushMode.ASYNC,
        description="sync: answer a send once it is on disk; async: once the kernel has it",
    )
    segment_bytes: int = Field(
        default=1024**3, ge=SEGMENT_SIZE_MIN, le=2**31 - 1, description="bytes; of a new log"
    )
    queue_file_entries: int = Field(
        default=300_000, ge=16, le=2**31 // 20 - 1, description="entries of a consume queue file"
    )
    index_slots: int = Field(
        default=5_000_000, ge=16, le=2**26, description="hash slots of a key index file"
    )
    index_entries: int = Field(
        default=20_000_000, ge=16, le=2**26, description="keys of a key index file"
    )
    warm_segments: bool = Field(
        default=False,
        description="write each new segment through once before its use: steadier sends, but "
        "everything is written twice",
    )
    cut_damage: bool = Field(
        default=False,
        description="truncate the log at damaged durable records, instead of refusing to start",
    )

    retention_hours: float = Field(
        default=72, ge=0, description="a segment may be deleted this long after its last write"
    )
    delete_hours: Annotated[str, AfterValidator(_checked_hours)] = Field(
        default="04", description="hours of the day at which segments are deleted, separated by ';'"
    )
    disk_high_ratio: float = Field(
        default=0.75, gt=0, le=1, description="used part of the disk: delete at any hour, by age"
    )
    disk_forced_ratio: Annotated[float, at_least("disk_high_ratio")] = Field(
        default=0.85, gt=0, le=1, description="used part of the disk: delete regardless of age"
    )
    disk_refuse_ratio: Annotated[float, at_least("disk_forced_ratio")] = Field(
        default=0.90, gt=0, le=1, description="used part of the disk: refuse writes too"
    )

    scrub_hours: float = Field(
        default=24,
        ge=0,
        description="time in which the scrub verifies the whole log once; 0: never",
    )

    tier_url: str = Field(
        default="",
        description="object store for closed segments, such as s3://BUCKET/PREFIX, or a folder's "
        "path; the same for all replicas; empty: none",
    )
    tier_cache_bytes_max: int = Field(
        default=4 * 1024**3,
        ge=256 * 1024**2,
        description="disk for the part of the tier that is being read",
    )
    tier_upload_rate_max: Annotated[int, AfterValidator(_checked_rate)] = Field(
        default=64 * 1024**2,
        ge=0,
        description="bytes a second that are uploaded to the tier; 0: no limit",
    )
    tier_retention_hours: float = Field(
        default=0,
        ge=0,
        description="a segment may be deleted from the tier this long after its last message, once "
        "the broker's own retention has deleted it; 0: never",
    )

    tier_renewal: bool = Field(
        default=False,
        description="whether the master renews what earlier versions have uploaded, so that it can "
        "be searched by key; no earlier version reads the tier then",
    )

    tier_scrub_hours: float = Field(
        default=720,
        ge=0,
        description="time in which the master reads and verifies all objects of the tier once; 0: "
        "never",
    )

    auto_create_topics: bool = Field(
        default=True, description="whether sending to an unknown topic creates it"
    )
    topics_max: int = Field(
        default=50_000,
        ge=1,
        le=BROKER_TOPIC_COUNT_MAX,
        description="topics of this broker; those of groups' retries and dead letters may exceed "
        "it, up to the limit of name servers",
    )
    auto_create_groups: bool = Field(
        default=True,
        description="whether joining an unknown group, or committing for it, creates it",
    )
    groups_max: int = Field(default=50_000, ge=1, description="consumer groups of this broker")
    members_max: int = Field(default=10_000, ge=1, description="live members of all its groups")
    held_group_requests_max: int = Field(
        default=20_000,
        ge=0,
        description="requests that wait for a group's members, for locks or for deliveries",
    )
    unfinished_max: int = Field(
        default=1_000,
        ge=1,
        description="messages of a queue that a group's deliveries may leave unfinished",
    )
    unfinished_total_max: int = Field(
        default=200_000,
        ge=1,
        description="the same for all queues and groups together; beyond it, each group gets one "
        "message of a queue at a time",
    )
    idempotency_window_seconds: float = Field(
        default=86_400,
        ge=1,
        le=40 * 86_400,
        description="time for which an Idempotency-Key is remembered; never longer than retention "
        "keeps the message",
    )
    delay_seconds_max: float = Field(
        default=DELAY_SECONDS_MAX,
        ge=0,
        le=DELAY_SECONDS_MAX,
        description="maximum delay of a message",
    )
    timers_max: int = Field(
        default=2_000_000,
        ge=0,
        le=50_000_000,
        description="messages that wait for their delivery, retries included; 16 bytes each",
    )
    transactions_max: int = Field(
        default=100_000,
        ge=0,
        le=1_000_000,
        description="transactions that are pending or parked; about 300 bytes each",
    )
    bytes_in_flight_max: int = Field(
        default=256 * 1024**2,
        ge=RECORDS_SIZE_MAX + 2 * BODY_SIZE_MAX,
        description="maximum bytes of sends in progress",
    )
    consume_bytes_in_flight_max: int = Field(
        default=128 * 1024**2,
        ge=RECORDS_SIZE_MAX + 2 * BODY_SIZE_MAX,
        description="maximum bytes of consumers' requests and answers in progress: "
        "pulls, deliveries, acknowledgements, decisions, look-ups, the log",
    )
    cold_read_rate_max: Annotated[int, AfterValidator(_checked_rate)] = Field(
        default=0,
        ge=0,
        description="bytes a second that clients may have read from the disk because they are not "
        "in memory; further reads wait for their turn; 0: as fast as the disk reads",
    )
    cold_read_rate_of_one: Annotated[int, AfterValidator(_checked_rate)] = Field(
        default=0,
        ge=0,
        description="the same for each reader: a group's deliveries, a replica, or a client's "
        "address; 0: no limit",
    )
    held_requests_max: int = Field(
        default=10_000, ge=0, description="requests that wait for messages"
    )
    body_bytes_max: int = Field(
        default=1024**2,
        ge=64 * 1024,
        le=64 * 1024**2,
        description="maximum bytes of a request without messages",
    )

    @property
    def policy_path(self) -> Path:
        """The path of the file that keeps the last rules: in the store, unless it is set."""
        return self.policy_file or self.store_dir / "config" / "policy.json"

    @property
    def is_replica(self) -> bool:
        """True if the broker belongs to a group of replicas."""
        return bool(self.controller_urls)

    def announced_urls(self) -> Collection[str]:
        """Return the broker's announced URLs, on all networks."""
        return advertised_urls(self.advertised_url).values() if self.advertised_url else ()


def split_hours(text: str) -> frozenset[int]:
    """Return the hours in *text*, which are separated by semicolons.

    Raises:
        ValueError: One is not an hour of a day.
    """
    hours = [part.strip() for part in text.split(";") if part.strip()]
    if not all(map(_HOUR.fullmatch, hours)):
        raise ValueError(f"{text!r}: expected hours from 00 to 23, separated by ';'")
    return frozenset(map(int, hours))


def advertised_urls(text: str) -> dict[str, str]:
    """Return URLs by network, from ``URL`` or ``NAME=URL;NAME=URL``.

    Raises:
        ValueError: A URL is invalid, a network is named twice, or none is named ``default``.
    """
    urls: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        match = _NAMED_URL.fullmatch(part)
        if match is None:
            raise ValueError(f"expected [NAME=]http(s)://HOST:PORT, found {part!r}")
        network = match[1] or "default"
        if network in urls:
            raise ValueError(f"network {network!r} has two URLs")
        try:
            urls[network] = checked_url(match[2])
        except ValueError as error:
            raise ValueError(f"{part!r}: {error}") from None
    if "default" not in urls:
        raise ValueError("no URL is named default")
    return urls
