"""Settings of a store: its layout and its durability."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from eruca.contract.records import Host
from eruca_broker.core.consuming.cold_turns import NO_RATES, ColdRates
from eruca_chassis.spans.tracing import Tracing

SEGMENT_SIZE_MIN: Final = 64 * 1024  # bytes; a batch must fit into one segment


class FlushMode(StrEnum):
    """The moment at which an append is acknowledged."""

    SYNC = "sync"  # once it is on disk: one fdatasync for all that wait
    ASYNC = "async"  # once the kernel has it: it survives kill -9, not power loss


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Sizes have RocketMQ's defaults; an existing log's own segment size takes precedence."""

    store_host: Host  # written into every record
    flush_mode: FlushMode = FlushMode.ASYNC
    segment_bytes: int = 1024 * 1024 * 1024  # bytes
    queue_file_entries: int = 300_000
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    open_files_max: int = 1_024  # of consume queues; the least recently used is closed
    is_log_warmed: bool = False  # write new segments through once, in advance
    has_group_access: bool = False  # the files' group may read them
    is_replica: bool = False  # append only runs of a master's log, and nothing of its own
    replica_id: int | None = None  # in its broker group; None: a standalone broker
    cut_to: int | None = None  # log offset at which the log is to end; None: where it does
    cold_rates: ColdRates = NO_RATES  # of reads for clients that are not in memory
    tracing: Tracing | None = None  # makes spans of the store's work; None: there are none
    is_damage_cut: bool = False  # truncate the log at damaged durable records instead of failing
