"""Queue allocation: compute the queues of a topic that each member of a group should read.

A consumer calls :func:`allocate`. The strategies are frozen values behind one protocol,
:class:`AllocationStrategy`. They are pure: members agree only if a share depends on nothing but the
two lists. Any client code may import this package; it imports only the contract and queues.
"""

from __future__ import annotations

from eruca.core.allocation.configured import ByConfig
from eruca.core.allocation.even import Averagely, AveragelyByCircle
from eruca.core.allocation.ring import VIRTUAL_NODES, ConsistentHash, md5_position
from eruca.core.allocation.rooms import (
    ByMachineRoom,
    MachineRoomNearby,
    MachineRooms,
    NamedMachineRooms,
)
from eruca.core.allocation.strategy import (
    AllocationError,
    AllocationFault,
    AllocationStrategy,
    allocate,
    sorted_members,
)

__all__ = [
    "VIRTUAL_NODES",
    "AllocationError",
    "AllocationFault",
    "AllocationStrategy",
    "Averagely",
    "AveragelyByCircle",
    "ByConfig",
    "ByMachineRoom",
    "ConsistentHash",
    "MachineRoomNearby",
    "MachineRooms",
    "NamedMachineRooms",
    "allocate",
    "md5_position",
    "sorted_members",
]
