"""The form of a nemesis, and what all of them use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import ClassVar

from chaos.client import World
from chaos.cluster import Cluster, Party, Shape


class Nemesis(ABC):
    """A fault that begins, lasts, and is healed.

    Args:
        world: The run.
        random: The source of its choices: with the same seed it makes the same ones.
    """

    name: ClassVar[str]
    seconds: ClassVar[tuple[float, float]] = (3.0, 12.0)  # it lasts between these
    needs_copies: ClassVar[bool] = False  # True: a single broker cannot keep its promises then
    is_on_demand: ClassVar[bool] = False  # True: it comes only if a run names it
    heals_last: ClassVar[bool] = False  # True: its healing needs parties that others may hold

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random

    @classmethod
    def fits(cls, shape: Shape) -> bool:
        """Tell whether the promises of such a cluster hold in spite of this fault."""
        return shape.controllers > 0 or not cls.needs_copies

    @property
    def cluster(self) -> Cluster:
        """The cluster of the run."""
        return self.world.cluster

    @abstractmethod
    async def begin(self) -> str:
        """Begin the fault; return what it is, for the report."""

    @abstractmethod
    async def heal(self) -> None:
        """End the fault."""

    def any_broker(self) -> str:
        """Return a group."""
        return self.random.choice(self.cluster.shape.brokers)

    def any_replica(self, broker: str | None = None) -> Party:
        """Return a replica that runs, or any if none does."""
        replicas = self.cluster.replicas(broker or self.any_broker())
        running = [one for one in replicas if one.is_running and not one.is_paused]
        return self.random.choice(running or replicas)

    async def master_of(self, broker: str) -> Party:
        """Return the master that the arbiter names, or any replica if it does not answer."""
        return await self.cluster.master(broker) or self.any_replica(broker)

    def others(self, party: Party) -> Sequence[Party]:
        """Return the other replicas of a replica's group."""
        return [one for one in self.cluster.replicas(party.broker) if one is not party]
