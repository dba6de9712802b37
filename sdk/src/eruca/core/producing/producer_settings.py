"""Validate a producer's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca.contract.limits import REPLICA_COUNT_MAX
from eruca.core.checked_names import check_own_group
from eruca.core.checked_numbers import check_count, checked_seconds
from eruca.core.producing.batching import Batching
from eruca.core.routing.latency_fault import LatencyProfile

SEND_SECONDS_DEFAULT: Final = 10.0  # a fail-over takes 5 to 6; RocketMQ's sendMsgTimeout is 3
RETRIES_MAX_DEFAULT: Final = 2  # RocketMQ's retryTimesWhenSendFailed
COMPRESSION_BYTES_DEFAULT: Final = 4_096  # RocketMQ's compressMsgBodyOverHowmuch
BUFFER_BYTES_DEFAULT: Final = 64 * 1024 * 1024  # of messages not yet acknowledged


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """A producer's settings; see ``AsyncClient.producer`` for what they mean.

    Raises:
        ValidationError: A value is not allowed.
    """

    group: str | None
    batching: Batching
    buffer_bytes_max: int
    compression_threshold_bytes: int | None
    retries_max: int
    send_timeout_seconds: float
    latency_fault: bool | LatencyProfile
    idempotent: bool
    copies: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        if self.group is not None:
            check_own_group(self.group)
        check_count("buffer_bytes_max", self.buffer_bytes_max, 1)
        if self.compression_threshold_bytes is not None:
            check_count("compression_threshold_bytes", self.compression_threshold_bytes, 0)
        check_count("retries_max", self.retries_max, 0)
        check_count("copies", self.copies, 1, REPLICA_COUNT_MAX)
        checked_seconds(self.send_timeout_seconds, "send_timeout_seconds")
