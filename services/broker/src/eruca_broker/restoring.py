"""``eruca-broker --restore-from-tier``: make a store of what the tier has, into an empty directory.

It is an act of the operator, and never a start's: the tier lacks the open segment, so a restored
log is shorter than the lost one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Final

from eruca.contract.errors import ErucaError
from eruca_broker.core.state.events import UnknownEventError
from eruca_broker.core.tier.restoring import UnrestorableError
from eruca_broker.opening import open_tier
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.files.directory_lock import StoreLockedError
from eruca_broker.store.tiering.restoring import Request, Restored, Told, restore
from eruca_chassis.counts import counted
from eruca_chassis.files.directories import keep_private
from eruca_chassis.progress import ProgressLine
from eruca_chassis.start import StartError

EXIT_CODE: Final = 4  # nothing is restored, as of a start that is refused
FROM: Final = "--from"
LOG: Final = "--log"


def restore_from_tier(settings: BrokerSettings, options: Mapping[str, str]) -> int:
    """Restore the store of *settings*; print what it is now, and return the exit code.

    Args:
        settings: The broker's.
        options: Values of the command line's options, by name.
    """
    keep_private(group_access=settings.group_access)
    progress = ProgressLine()
    try:
        restored = asyncio.run(_restored(settings, options, progress))
    except (UnrestorableError, StoreLockedError, StartError, UnknownEventError) as error:
        return _refused(str(error))
    except (ErucaError, OSError) as error:
        text = f"{error.detail}; {error.fix}" if isinstance(error, ErucaError) else _text(error)
        return _refused(f"{text}; run it again: it goes on where it ended")
    finally:
        progress.end()
    sys.stdout.write(report(settings, restored))
    return 0


async def _restored(
    settings: BrokerSettings, options: Mapping[str, str], progress: ProgressLine
) -> Restored:
    repository = open_tier(settings)
    if repository is None:
        raise UnrestorableError("ERUCA_BROKER_TIER_URL is not set: name the tier's place")
    begin = options.get(FROM)
    if begin is not None and not (begin.isascii() and begin.isdecimal() and len(begin) < 20):
        raise UnrestorableError(f"{FROM} {begin}: expected a log offset")
    request = Request(
        options.get(LOG),
        None if begin is None else int(begin),
        settings.disk_high_ratio,
    )
    return await restore(
        repository, settings.store_dir, request, Told(progress.begin, progress.advance)
    )


def report(settings: BrokerSettings, restored: Restored) -> str:
    """Return the text that tells an operator what the restored store has, and what it lacks."""
    lines = [
        f"{settings.store_dir}: log {restored.log_id}, log offsets {restored.min_offset} to "
        f"{restored.end_offset}, from manifest {restored.manifest_number} of the tier.",
        f"The last record was stored at {restored.stored_at:%Y-%m-%dT%H:%M:%S.%fZ}. The tier lacks "
        "what the broker stored later: messages,",
        "acknowledgements, positions of groups, decisions. Messages acknowledged since then are "
        "delivered again, and",
        f"log offsets from {restored.end_offset} on are used again.",
    ]
    if restored.tier_min_offset < restored.min_offset:
        lines.append(
            f"Log offsets {restored.tier_min_offset} to {restored.min_offset} are read from the "
            "tier."
        )
    if restored.lost_waiting_count:
        lost = counted(
            restored.lost_waiting_count,
            "delayed message or open transaction",
            "delayed messages or open transactions",
        )
        lines.append(f"LOST: {lost}. The tier no longer has them.")
    if settings.is_replica:
        lines.append(
            "As a replica it is a new member: it proves its log to the master, and copies the rest."
        )
    lines.append("Start the broker now. It rebuilds queues, index and state from the log.")
    return "".join(f"{line}\n" for line in lines)


def _refused(text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return EXIT_CODE


def _text(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
