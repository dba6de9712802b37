"""A commit log with segments of a kilobyte."""

from __future__ import annotations

from pathlib import Path

from eruca.contract.records import MAGIC_BLANK

SIZE = 1_024  # bytes of a segment


def name(offset: int) -> str:
    return f"{offset:020d}"


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def padded(*parts: bytes) -> bytes:
    return b"".join(parts).ljust(SIZE, b"\0")


def blank(size: int) -> bytes:
    return size.to_bytes(4) + MAGIC_BLANK.to_bytes(4)


# --- Opening --------------------------------------------------------------------------------------


def write_segments(directory: Path, *sizes: int, first: int = 0) -> None:
    directory.mkdir(exist_ok=True)
    offset = first
    for size in sizes:
        (directory / name(offset)).write_bytes(b"s" * size)
        offset += SIZE
