"""A disk that reads slowly for one process: the kernel's own limit of a control group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_V1: Final = Path("/sys/fs/cgroup/blkio")
_V2: Final = Path("/sys/fs/cgroup")


def forget(directory: Path) -> None:
    """Let the page cache forget the files below *directory*, which no process has mapped."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@contextmanager
def slow_reads(process_id: int, directory: Path, rate: int) -> Iterator[bool]:
    """Let a process read at most *rate* bytes a second from the disk of *directory*.

    Yield False if this machine cannot, for want of a controller or of rights: nothing is limited.
    """
    device = directory.stat().st_dev
    name, line = f"eruca-bench-{os.getpid()}", f"{os.major(device)}:{os.minor(device)}"
    if (_V1 / "blkio.throttle.read_bps_device").exists():
        group, limits = _V1 / name, ("blkio.throttle.read_bps_device", f"{line} {rate}")
    else:
        group, limits = _V2 / name, ("io.max", f"{line} rbps={rate}")
    try:
        group.mkdir()
    except OSError:
        yield False
        return
    try:
        try:
            (group / limits[0]).write_text(limits[1])
            (group / "cgroup.procs").write_text(str(process_id))
        except OSError:
            yield False
            return
        yield True
    finally:
        with (group.parent / "cgroup.procs").open("w") as procs:
            procs.write(str(process_id))
        group.rmdir()
