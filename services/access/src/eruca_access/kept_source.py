"""Sources whose last rules are kept on the disk, and that never go back to older ones."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import structlog

from eruca.contract.errors import NotReadyError
from eruca_access.kept_policy import DamagedPolicyError, KeptPolicy, read_kept, write_kept
from eruca_access.sources import Sourced, SourceKind

_log = structlog.get_logger()


class OlderPolicyError(Exception):
    """The rules have a lower number than those in force; the text says what to do."""


class KeptSource:
    """Rules of the controllers, and the file that keeps the last ones.

    Attributes:
        newest: The rules that may be in force; None: there have never been any.
        fault: The reason why newer rules may exist; None: there is none.
        confirmed_at: The time, in seconds since 1970, at which they were the newest ones for sure.

    Args:
        path: The file.
    """

    kind: SourceKind = "controller"

    def __init__(self, path: Path) -> None:
        self.newest: Sourced | None = None
        self.fault: str | None = None
        self.confirmed_at = 0.0
        self._path = path
        self._number = 0
        try:
            found = read_kept(path)
        except DamagedPolicyError as error:
            _log.error("the kept rules are damaged", file=str(path), reason=str(error))
            return
        if found is not None:
            kept, self.confirmed_at = found
            self._number = kept.number
            self.newest = Sourced(kept.document, kept.version)
            _log.info("rules of the last run are in force", version=kept.version)

    def how_to_restore(self) -> str:
        """Return how to bring the rules of this service back to the controllers."""
        return (
            "apply the kept rules again: "
            f"eruca auth apply {self._path} --keys --above {self._number}"
        )

    async def take(self, found: KeptPolicy) -> None:
        """Take over the policy that the controllers have now.

        Raises:
            OlderPolicyError: It is older than the one in force, or another one of its number.
        """
        if self.newest is not None and found.number <= self._number:
            if found.version != self.newest.version:
                raise OlderPolicyError(
                    f"the controllers have version {found.version} of the rules, and this service "
                    f"already has {self.newest.version}: their store was restored from an older "
                    f"copy; {self.how_to_restore()}"
                )
            self.confirm()
            return
        try:
            await asyncio.to_thread(write_kept, self._path, found)
        except OSError as error:
            # In force all the same: a revocation must not wait for a disk.
            _log.error("rules are not kept", file=str(self._path), reason=error.strerror)
        self._number = found.number
        self.newest = Sourced(found.document, found.version)
        self.confirm()

    def confirm(self) -> None:
        """Note that the rules are the newest ones now."""
        if self.fault is not None:
            _log.info("rules are followed again")
        self.fault = None
        self.confirmed_at = time.time()

    def fail(self, fault: str) -> None:
        """Note why newer rules may exist."""
        if fault != self.fault:
            _log.error("rules are not followed", reason=fault)
        self.fault = fault


class OwnSource(KeptSource):
    """The rules in a controller's own store; the controller itself looks there."""

    def missing(self) -> NotReadyError:
        """Return the error for requests while there are no rules."""
        why = f": {self.fault}" if self.fault else ""
        return NotReadyError(
            f"this controller has no rules yet{why}",
            fix="start a controller with the first rules in ERUCA_AUTH_FILE; `eruca auth init DIR` "
            "makes such a file",
            retry_after_seconds=1,
        )

    async def start(self) -> None:
        """Do nothing: the controller sets the rules."""

    async def stop(self) -> None:
        """Do nothing."""

    async def refresh(self) -> None:
        """Do nothing."""
