"""The number of brokers that suits this machine: ``eruca-local --brokers auto``.

A broker keeps one processor busy, so a machine takes as many broker processes as it has processors.
A cluster with data keeps at least its brokers: the messages of one that does not start are missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NamedTuple

from eruca_deploy.plan import BROKER_COUNT_MAX, broker_name, replica_name

CPU_QUOTA_FILE: Final = Path("/sys/fs/cgroup/cpu.max")
"""The quota of a container, as microseconds of CPU time and of the period, or ``max``."""


class BrokerCount(NamedTuple):
    """A number of brokers, and the reason for it."""

    brokers: int
    why: str

    def __str__(self) -> str:
        return f"{self.brokers} {'broker' if self.brokers == 1 else 'brokers'}: {self.why}"


def suitable_broker_count(data_dir: Path, *, replicas: int, processors: int) -> BrokerCount:
    """Return the number of brokers for a machine.

    Args:
        data_dir: Directory of the stores; no broker that has one there is left out.
        replicas: Number of replicas of each broker, each of which is a process.
        processors: Number of processors for brokers.
    """
    most = BROKER_COUNT_MAX // replicas
    by_processors = min(max(processors // replicas, 1), most)
    stored = _stored_count(data_dir)
    found = "1 processor" if processors == 1 else f"{processors} processors"
    if stored > by_processors:
        return BrokerCount(stored, f"as many as {data_dir} has; {found} found")
    if processors // replicas > most:
        return BrokerCount(most, f"the maximum; {found} found")
    each = "one for each processor" if replicas == 1 else "a replica for each processor"
    return BrokerCount(by_processors, f"{each}; {found} found")


def usable_processors(quota_file: Path = CPU_QUOTA_FILE) -> int:
    """Return the number of processors that this process may use, at least 1.

    A container's quota counts: with 2.5 processors of 16 it is 2.
    """
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        count = os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text().split()
    except OSError:  # no control groups, or those of the first version
        return count
    return count if quota == "max" else max(min(count, int(quota) // int(period)), 1)


def _stored_count(data_dir: Path) -> int:
    """Return the number of brokers up to the last one that has a store in *data_dir*."""
    stored = [
        index + 1
        for index in range(BROKER_COUNT_MAX)
        if _exists(data_dir / broker_name(index))
        or _exists(data_dir / replica_name(broker_name(index), 1))
    ]
    return max(stored, default=0)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the start will say why it cannot read the directory
        return False
