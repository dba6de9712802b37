"""Rows in files, for controllers on one machine: a lock makes comparison and exchange one step.

Beside the file of the current rows are its history and its lock::

    broker-groups.json            {name: row}, replaced as a whole
    broker-groups.history.jsonl   each version that has been replaced, one on a line
    broker-groups.lock            locked during a swap

Crash rule: a row that is about to be replaced is first appended to the history and flushed. Then
the new file is written beside the old one, flushed, and renamed over it. So the history is complete
with the current rows added. After a crash between the two steps it has the current row as well, and
perhaps half a line, which the next swap cuts off.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final, TypeVar

from eruca.contract.errors import ArbiterUnavailableError
from eruca_chassis.files.directories import make_directory
from eruca_chassis.files.whole_files import replace_file
from eruca_chassis.finishing import finished
from eruca_controller.core.rows import GroupRow
from eruca_controller.store.locked_files import append_line, locked

_FIX: Final = "set ERUCA_CONTROLLER_FILE to a file that this process may read and write"

_T = TypeVar("_T")


class FileGroups:
    """The store in files; reads take no lock, because the file is only replaced as a whole.

    Args:
        path: The file of the current rows.
        history_count_max: Entries of the history that are kept for each group, at least.
    """

    def __init__(self, path: Path, *, history_count_max: int) -> None:
        self._path = path
        self._history_path = path.with_suffix(".history.jsonl")
        self._lock_path = path.with_suffix(".lock")
        self._history_count_max = history_count_max

    async def read(self, broker_name: str) -> GroupRow | None:
        """Return the current version of a row; None if the name has never been used."""
        return (await self._in_thread(self._load)).get(broker_name)

    async def swap(self, expected: str | None, row: GroupRow) -> bool:
        """Store *row* if the current version is *expected*; return whether it was."""
        return await self._in_thread(lambda: self._swap(expected, row))

    async def live(self, *, after: str | None, count_max: int) -> list[GroupRow]:
        """Return the groups that exist, in order of their names, from the one behind *after*."""
        rows = await self._in_thread(self._load)
        names = sorted(name for name, row in rows.items() if row.is_live and name > (after or ""))
        return [rows[name] for name in names[:count_max]]

    async def history(
        self, broker_name: str, *, before: int | None, count_max: int
    ) -> list[GroupRow]:
        """Return the versions of a row, the newest first; *before* is a number, exclusive."""

        def load() -> list[GroupRow]:
            # The history comes second: a version that is replaced meanwhile is in one of the two.
            current = self._load().get(broker_name)
            return [row for row in (*self._replaced(), current) if row is not None]

        versions = {
            row.number: row
            for row in await self._in_thread(load)
            if row.broker_name == broker_name and (before is None or row.number < before)
        }
        newest = sorted(versions, reverse=True)[: min(count_max, self._history_count_max)]
        return [versions[number] for number in newest]

    async def versions(self, broker_names: Collection[str]) -> dict[str, str]:
        """Return the current versions of these rows; a name that was never used is left out."""
        rows = await self._in_thread(self._load)
        return {name: rows[name].version for name in broker_names if name in rows}

    async def count(self) -> int:
        """Return the number of names that have a row, removed or not."""
        return len(await self._in_thread(self._load))

    async def check(self) -> None:
        """Raise ArbiterUnavailableError unless rows can be read, and the directory is there."""

        def look() -> None:
            make_directory(self._path.parent)
            self._load()

        await self._in_thread(look)

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        try:
            return await finished(asyncio.ensure_future(asyncio.to_thread(work)))
        except OSError as error:
            raise ArbiterUnavailableError(
                f"{self._path} cannot be used: {error.strerror or error}", fix=_FIX
            ) from error
        except (ValueError, KeyError) as error:
            raise ArbiterUnavailableError(
                f"{self._path} is not a file of broker groups: {error}",
                fix=f"repair or remove it; or {_FIX}",
            ) from error

    def _swap(self, expected: str | None, row: GroupRow) -> bool:
        with locked(self._lock_path):
            rows = self._load()
            current = rows.get(row.broker_name)
            if expected != (None if current is None else current.version):
                return False
            if current is not None:
                append_line(self._history_path, current.to_text())
            if row.number % self._history_count_max == 0:
                self._shorten(rows)
            rows[row.broker_name] = row
            kept = {name: json.loads(rows[name].to_text()) for name in sorted(rows)}
            replace_file(self._path, json.dumps(kept, indent=1).encode())
        return True

    def _load(self) -> dict[str, GroupRow]:
        try:
            kept = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        return {name: GroupRow.from_text(json.dumps(row)) for name, row in kept.items()}

    def _replaced(self) -> Iterator[GroupRow]:
        """Yield the history's whole lines; the last one may be half."""
        try:
            lines = self._history_path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return
        yield from map(GroupRow.from_text, lines[:-1])

    def _shorten(self, rows: dict[str, GroupRow]) -> None:
        """Drop what is too old: each group's history has then as many entries as are kept."""
        oldest = {name: row.number - self._history_count_max for name, row in rows.items()}
        kept = [row for row in self._replaced() if row.number > oldest.get(row.broker_name, 0)]
        text = "".join(f"{row.to_text()}\n" for row in kept)
        replace_file(self._history_path, text.encode())
