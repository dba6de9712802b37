"""The store's lock: one process at a time, and none after its death."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from eruca_broker.store.files.directory_lock import LOCK_NAME, StoreLockedError, lock_directory

HOLD = """
import sys
from pathlib import Path
from eruca_broker.store.files.directory_lock import lock_directory
lock = lock_directory(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""

HOLD_AS_JAVA = """
import fcntl, sys
file = open(sys.argv[1], "rb+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_lock_is_refused_and_names_directory_and_holder(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path)

    with pytest.raises(StoreLockedError) as caught:
        lock_directory(tmp_path)

    assert str(caught.value) == f"the store directory {tmp_path} is in use by process {os.getpid()}"
    assert (caught.value.directory, caught.value.holder) == (tmp_path, os.getpid())
    lock.release()


def test_a_refused_attempt_does_not_drop_the_lock(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path)

    for _ in range(2):
        with pytest.raises(StoreLockedError):
            lock_directory(tmp_path)

    lock.release()


def test_a_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock_directory(tmp_path).release()

    lock_directory(tmp_path).release()


def test_a_lock_dies_with_its_process_however_it_dies(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError) as caught:
            lock_directory(tmp_path)
        assert caught.value.holder == process.pid
        process.kill()
        process.wait()

    lock_directory(tmp_path).release()


def test_a_running_rocketmq_broker_keeps_us_out_and_we_keep_it_out(tmp_path: Path) -> None:
    """Java asks for a lock of the process on the first byte of the file."""
    path = tmp_path / LOCK_NAME
    path.write_bytes(b"lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_AS_JAVA, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError, match="in use by another process"):
            lock_directory(tmp_path)
        process.kill()
        process.wait()

    lock = lock_directory(tmp_path)
    with path.open("rb+") as file, pytest.raises(BlockingIOError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    lock.release()


def test_a_file_system_without_locks_is_reported_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = Mock(side_effect=OSError(errno.ENOLCK, "no locks available"))
    monkeypatch.setattr(fcntl, "fcntl", refuse)

    with pytest.raises(OSError, match="no locks available"):
        lock_directory(tmp_path)


def test_a_directory_that_does_not_exist_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        lock_directory(tmp_path / "missing")
