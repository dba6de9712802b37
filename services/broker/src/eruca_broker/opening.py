"""Open the broker's store as its settings say, or say what its operator has to do."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Final

from eruca.contract.errors import UnavailableError, ValidationError
from eruca.contract.records import Host
from eruca.objects.places import folder_of, open_repository
from eruca.objects.repositories import Repository
from eruca_broker.core.consuming.cold_turns import ColdRates
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.config.rocketmq_json import UnreadableConfigError
from eruca_broker.store.files.directory_lock import StoreLockedError
from eruca_broker.store.files.refusals import is_scarcity
from eruca_broker.store.identity import WrongReplicaError
from eruca_broker.store.log.commit_log import CorruptLogError, LostRecordsError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.recovery.cut import DamagedCutError, InvalidCutError
from eruca_broker.store.settings import StoreSettings
from eruca_chassis.clock import Clock
from eruca_chassis.spans.tracing import Tracing
from eruca_chassis.start import StartError

UNFINISHED_RESTORE: Final = "commitlog.unfinished"  # what a restore is writing
_QUEUE_FILES_MAX: Final = 1_024  # of consume queues that are open at a time


class LostRecordsStartError(StartError):
    """Durable records are damaged; a start may give them up, and all that follows."""


async def open_store(
    settings: BrokerSettings,
    store_host: Host,
    clock: Clock,
    *,
    cut_to: int | None = None,
    gives_up_damage: bool = False,
    tracing: Tracing | None = None,
) -> MessageStore:
    """Return the open store; that of a broker with replicas as a replica's.

    Args:
        settings: The broker's.
        store_host: The address in its records.
        clock: The store's.
        cut_to: Log offset at which its log is truncated first; None: it is not.
        gives_up_damage: Whether damaged records are given up, as by the setting ``cut_damage``.
        tracing: Makes spans of its work; None: there are none.

    Raises:
        LostRecordsStartError: It lacks durable records, which may be given up.
        StartError: The store cannot be opened, for a reason that its operator can fix.
    """
    store_settings = StoreSettings(
        store_host=store_host,
        flush_mode=settings.flush_mode,
        segment_bytes=settings.segment_bytes,
        queue_file_entries=settings.queue_file_entries,
        index_slots=settings.index_slots,
        index_entries=settings.index_entries,
        open_files_max=_queue_files_max(),
        is_log_warmed=settings.warm_segments,
        has_group_access=settings.group_access,
        is_replica=settings.is_replica,
        replica_id=settings.replica_id if settings.is_replica else None,
        is_damage_cut=settings.cut_damage or gives_up_damage,
        cut_to=cut_to,
        tracing=tracing,
        cold_rates=ColdRates(settings.cold_read_rate_of_one, settings.cold_read_rate_max),
    )
    if (settings.store_dir / UNFINISHED_RESTORE).exists():  # a new log would take its place
        raise StartError(
            f"{settings.store_dir} has {UNFINISHED_RESTORE}: a restore has not finished; run "
            "it again (eruca restore, or eruca-broker --restore-from-tier), or delete it to begin "
            "with an empty store"
        )
    try:
        return await MessageStore.open(settings.store_dir, store_settings, clock)
    except (LostRecordsError, DamagedCutError) as error:
        raise LostRecordsStartError(str(error)) from error
    except (
        StoreLockedError,
        WrongReplicaError,
        InvalidCutError,
        CorruptLogError,
        UnreadableConfigError,
        UnavailableError,
    ) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        # Never suggest another directory: there the broker would start empty.
        fix = "let the broker's user read and write everything in it"
        if is_scarcity(error):
            fix = "make room there and start the broker again; acknowledged messages are kept"
        where = f"{error.filename}: " if error.filename else ""
        reason = f"{where}{error.strerror or error}"
        raise StartError(
            f"the store in {settings.store_dir} cannot be opened: {reason}; {fix}"
        ) from error


def open_tier(settings: BrokerSettings) -> Repository | None:
    """Return the place of the tier for brokers of this name; None: there is no tier.

    Raises:
        StartError: The setting is invalid, or obstore is not installed.
    """
    if not settings.tier_url:
        return None
    _check_tier_url(settings.tier_url)
    folder = f"{folder_of(settings.cluster)}/{folder_of(settings.name)}"
    try:
        return open_repository(
            settings.tier_url,
            folder,
            named="ERUCA_BROKER_TIER_URL",
            installation="the extra tier: pip install 'eruca-broker[tier]'",
        )
    except ValidationError as error:
        raise StartError(f"{error.detail}; {error.fix}") from error


def _check_tier_url(url: str) -> None:
    """Go on if the tier's place is the same at each start, and may be told to everyone.

    Raises:
        StartError: It is a relative path, or may have a password.
    """
    if "://" not in url:
        if not Path(url).is_absolute():
            raise StartError(
                f"ERUCA_BROKER_TIER_URL {url}: expected an absolute path: a relative one is "
                "another folder after a start elsewhere"
            )
    elif any(sign in url for sign in "@?#"):
        # The URL is in errors, so in the log and in the status. It is not shown here either.
        raise StartError(
            "ERUCA_BROKER_TIER_URL has one of @ ? #: give only the scheme, the bucket and a "
            "prefix; credentials and options come from the object store's environment variables"
        )


def _queue_files_max() -> int:
    """Return the maximum number of open queue files: half of the limit, at most."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_limited = limit != resource.RLIM_INFINITY
    return min(_QUEUE_FILES_MAX, limit // 2) if is_limited else _QUEUE_FILES_MAX
