"""Nemeses: the faults of a run, begun and healed by a seeded schedule.

The table of faults is a superset of jepsen.redpanda's (pause, kill, partition, clock, membership)
and of openchaos' (minor, major and random ones of kill, suspend, partition, loss; bridge).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chaos.nemeses import arbiters, disks, members, processes, wires
from chaos.nemeses.nemesis import Nemesis

NEMESES: Final[Mapping[str, type[Nemesis]]] = {
    one.name: one
    for one in (
        processes.Nothing,
        processes.KillMaster,
        processes.KillReplica,
        processes.KillGroup,
        processes.KillGroupMasterLast,
        processes.StopMaster,
        processes.RollingRestart,
        processes.PauseMaster,
        processes.PauseReplica,
        processes.WrongClock,
        wires.IsolateMaster,
        wires.IsolateReplica,
        wires.Bridge,
        wires.OneWay,
        wires.ArbiterCutOff,
        wires.ClientsCutOff,
        wires.SlowLinks,
        wires.SlowLinksOfAll,
        wires.HeldAnswers,
        wires.TornAnswers,
        disks.PowerCut,
        disks.PowerCutOfAll,
        disks.FullDisk,
        disks.FailingDisk,
        disks.SlowDisk,
        disks.FlippedBit,
        members.WipedDisk,
        members.WipedDiskInPartition,
        members.WipedDiskAlone,
        members.Switch,
        members.RemovedReplica,
        members.ReplacedReplica,
        members.ReplacedReplicaInPartition,
        arbiters.KillController,
        arbiters.StopController,
        arbiters.PauseController,
        arbiters.KillPostgres,
        arbiters.StopPostgres,
        arbiters.PausePostgres,
        arbiters.ArbiterBackInTime,
        arbiters.ArbiterForgetsSet,
    )
}
"""The nemeses by name."""
