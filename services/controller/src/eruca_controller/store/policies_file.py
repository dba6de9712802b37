"""The policy in a file, for controllers on one machine: a line for each version, only added.

Beside the file of the broker groups lies ``policy.jsonl``. A swap appends a line under the lock of
the groups, and flushes it. After a crash the last line may be half. It was never answered then, and
the next swap cuts it off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from eruca.contract.errors import ArbiterUnavailableError
from eruca_chassis.files.directories import make_directory, sync_directory
from eruca_chassis.files.file_states import FileState, state_of
from eruca_chassis.finishing import finished
from eruca_controller.core.policies import PolicyRow
from eruca_controller.store.locked_files import append_line, locked

_FIX: Final = "make the directory of ERUCA_CONTROLLER_FILE one that this process may write to"

_T = TypeVar("_T")


class FilePolicies:
    """The store in a file.

    Args:
        groups_path: The file of the broker groups.
    """

    def __init__(self, groups_path: Path) -> None:
        self._path = groups_path.with_name("policy.jsonl")
        self._lock_path = groups_path.with_suffix(".lock")
        self._seen: tuple[FileState, PolicyRow] | None = None  # the newest version, last time

    async def newest(self) -> PolicyRow | None:
        """Return the newest version; None: there has never been one."""
        return await self._in_thread(self._newest)

    async def newest_version(self) -> str | None:
        """Return the text that identifies the newest version; None: there is none."""
        row = await self._in_thread(self._newest)
        return None if row is None else row.version

    async def swap(self, expected: str | None, row: PolicyRow) -> bool:
        """Store *row* if the newest version is *expected*; return whether it was."""
        return await self._in_thread(lambda: self._swap(expected, row))

    async def history(self, *, before: int | None, count_max: int) -> list[PolicyRow]:
        """Return versions, the newest first; *before* is a number, exclusive."""

        def load() -> list[PolicyRow]:
            rows = [PolicyRow.from_text(line) for line in self._lines()]
            return [row for row in reversed(rows) if before is None or row.number < before]

        return (await self._in_thread(load))[:count_max]

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        try:
            return await finished(asyncio.ensure_future(asyncio.to_thread(work)))
        except OSError as error:
            raise ArbiterUnavailableError(
                f"{self._path} cannot be used: {error.strerror or error}", fix=_FIX
            ) from error
        except (ValueError, KeyError) as error:
            raise ArbiterUnavailableError(
                f"{self._path} is not a file of policies: {error}", fix=f"restore it; or {_FIX}"
            ) from error

    def _newest(self) -> PolicyRow | None:
        state = state_of(self._path)  # before the content, which may then only be newer
        if self._seen is not None and self._seen[0] == state:
            return self._seen[1]
        lines = self._lines()
        row = PolicyRow.from_text(lines[-1]) if lines else None
        self._seen = None if state is None or row is None else (state, row)
        return row

    def _swap(self, expected: str | None, row: PolicyRow) -> bool:
        with locked(self._lock_path):
            current = self._newest()
            if expected != (None if current is None else current.version):
                return False
            make_directory(self._path.parent)
            append_line(self._path, row.to_text())
            sync_directory(self._path.parent)
        return True

    def _lines(self) -> list[bytes]:
        """Return the whole lines; the last one may be half."""
        try:
            return self._path.read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
