"""JSON files in ``config/`` that prove themselves: a line with the CRC-32 of what follows it."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from eruca_broker.store.config.config_snapshots import DIRECTORY
from eruca_broker.store.files.small_files import read_file, replace_files

S = TypeVar("S", bound=msgspec.Struct)

_SIZE_MAX: Final = 1024 * 1024 * 1024  # bytes; a million queues take a tenth of that


def write_checked(directory: Path, name: str, content: msgspec.Struct) -> None:
    """Replace the file *name* of the store in *directory*, durably.

    Raises:
        OSError: It could not be written; its predecessor stands.
    """
    encoded = msgspec.json.encode(content)
    replace_files(directory / DIRECTORY, {name: _line(encoded) + encoded})


def read_checked(path: Path, kind: type[S]) -> S:
    """Return the content of the file at *path*.

    Raises:
        FileNotFoundError: There is none.
        OSError: It cannot be read.
        ValueError: It is damaged.
    """
    crc, newline, encoded = read_file(path, _SIZE_MAX).partition(b"\n")
    if crc + newline != _line(encoded):
        raise ValueError("its checksum does not match")
    try:
        return msgspec.json.decode(encoded, type=kind)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error


def _line(encoded: bytes) -> bytes:
    return f"{zlib.crc32(encoded):08x}\n".encode()
