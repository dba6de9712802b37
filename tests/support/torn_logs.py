"""Logs as a power cut leaves them: what was written behind some place is not there."""

from __future__ import annotations

import shutil
from pathlib import Path


def cut_copy(source: Path, copy: Path, offset: int) -> None:
    """Copy the store in *source*, whose log is one segment, without what lies from *offset* on."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    [segment] = (copy / "commitlog").iterdir()
    data = segment.read_bytes()
    segment.write_bytes(data[:offset].ljust(len(data), b"\0"))
