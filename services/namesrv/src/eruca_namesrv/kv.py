"""The key-value table: small configuration that clients and brokers share, stored in one file.

Format: RocketMQ's ``kvConfig.json``, ``{"configTable": {namespace: {key: value}}}``, so that an
existing file can be used as it is.

Crash rule: a change is written to a new file, flushed, and renamed over the old file before it is
visible or acknowledged. So the file is always whole, and the table is never ahead of it. Changes
are serialized, and each is written in a thread because the disk may be slow. A lock on
``FILE.lock`` keeps the file to one process: a second one would overwrite the first one's table.

Source: RocketMQ 5.3, ``KVConfigManager``.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final, Self, TypeAlias

from pydantic import TypeAdapter, ValidationError

from eruca.contract.errors import KeyNotFoundError, TooLargeError, UnavailableError
from eruca_chassis.files.directories import make_directory
from eruca_chassis.files.file_lock import FileLock, FileLockedError
from eruca_chassis.files.whole_files import replace_file
from eruca_chassis.finishing import finished
from eruca_chassis.start import StartError

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"  # topic → "broker-a:4;broker-b:4"

_Table: TypeAlias = dict[str, dict[str, str]]
_FILE: Final = TypeAdapter(dict[str, _Table])
_ROOT: Final = "configTable"
_FIX: Final = "set ERUCA_NAMESRV_KV_FILE to a file that this process may read and write"


class InvalidKvFileError(StartError):
    """The file is not a key-value table, is locked by another process, or cannot be accessed."""


class KvTable:
    """Namespaces of keys and values; create one with :meth:`open`."""

    def __init__(
        self, path: Path | None, table: _Table, *, size_max: int, lock: FileLock | None = None
    ) -> None:
        self._path = path
        self._table = table
        self._lock = lock
        self._size_max = size_max
        self._changing = asyncio.Lock()

    @classmethod
    def open(cls, path: Path | None, *, size_max: int) -> Self:
        """Open the table stored at *path*, or create an empty one if the file is missing.

        Raises:
            InvalidKvFileError: The file is not a key-value table or is unreadable (it is left
                unchanged), is locked by another process, or cannot be created.
        """
        if path is None:
            return cls(path, {}, size_max=size_max)
        lock = _locked(path)
        return cls(path, _read(path), size_max=size_max, lock=lock)

    async def close(self) -> None:
        """Wait for a change in progress, then release the file's lock."""
        async with self._changing:
            if self._lock is not None:
                self._lock.release()

    def get(self, namespace: str, key: str) -> str:
        """Return the value of a key; raise KeyNotFoundError if it is missing."""
        try:
            return self._table[namespace][key]
        except KeyError:
            raise KeyNotFoundError(f"key {key} not found in namespace {namespace}") from None

    def entries(self, namespace: str) -> dict[str, str]:
        """Return a namespace's keys and values, sorted by key; empty if it is missing."""
        return dict(sorted(self._table.get(namespace, {}).items()))

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value, durably.

        Raises:
            TooLargeError: The table would grow beyond ``kv_characters_max``.
            UnavailableError: The file cannot be written now; the table is unchanged.
        """
        async with self._changing:
            if self._table.get(namespace, {}).get(key) == value:
                return  # services announce themselves repeatedly: save the disk the rewrite
            changed = {**self._table.get(namespace, {}), key: value}
            await self._replace({**self._table, namespace: changed})

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a key, durably.

        Raises:
            KeyNotFoundError: The key is missing.
            UnavailableError: The file cannot be written now; the table is unchanged.
        """
        async with self._changing:
            self.get(namespace, key)
            left = {k: v for k, v in self._table[namespace].items() if k != key}
            rest = {name: table for name, table in self._table.items() if name != namespace}
            await self._replace({**rest, namespace: left} if left else rest)

    async def _replace(self, table: _Table) -> None:
        assert self._changing.locked(), "a change that is being written would be lost"
        size = _size(table)
        # A table loaded above the limit may still shrink.
        if size > self._size_max and size > _size(self._table):
            raise TooLargeError(
                f"the key-value table would hold {size} characters; kv_characters_max is "
                f"{self._size_max}"
            )
        await finished(asyncio.ensure_future(self._put_in_place(table)))

    async def _put_in_place(self, table: _Table) -> None:
        if self._path is not None:
            try:
                await asyncio.to_thread(_write, self._path, table)
            except OSError as error:
                raise UnavailableError(
                    f"the key-value table cannot be written to {self._path}: {error.strerror}",
                    fix="free or repair the disk on the name server's machine, then retry",
                ) from error
        self._table = table


def _size(table: _Table) -> int:
    """Return the total number of characters of all keys and values."""
    return sum(len(key) + len(value) for keys in table.values() for key, value in keys.items())


def _locked(path: Path) -> FileLock | None:
    try:
        make_directory(path.parent)
        return FileLock.acquire(path.with_name(path.name + ".lock"))
    except FileLockedError as error:
        raise InvalidKvFileError(
            f"the key-value table {path} is in use by {error.who}; "
            "set ERUCA_NAMESRV_KV_FILE to another file"
        ) from None
    except OSError:
        return None  # without write access nobody can corrupt the table; _read reports the error


def stored_table(path: Path) -> _Table | None:
    """Return the table in the file at *path*; None if the file is missing.

    Raises:
        InvalidKvFileError: It is not a key-value table, or is unreadable.
    """
    try:
        return _FILE.validate_json(path.read_bytes()).get(_ROOT, {})
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidKvFileError(f"{path} cannot be read: {error.strerror}; {_FIX}") from None
    except ValidationError as error:
        raise InvalidKvFileError(
            f"{path} is not a key-value table: {error.errors()[0]['msg']}; repair it or remove it"
        ) from None


def _read(path: Path) -> _Table:
    table = stored_table(path)
    return _make(path) if table is None else table


def _make(path: Path) -> _Table:
    """Create the file now, so that a path that cannot be written fails at start."""
    table: _Table = {}
    try:
        _write(path, table)
    except OSError as error:
        raise InvalidKvFileError(f"{path} cannot be created: {error.strerror}; {_FIX}") from None
    return table


def _write(path: Path, table: _Table) -> None:
    text = json.dumps({_ROOT: table}, ensure_ascii=False, indent=1, sort_keys=True)
    replace_file(path, text.encode())
