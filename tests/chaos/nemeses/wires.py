"""Faults of the network: partitions of every form, and links that are slow, silent or torn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from chaos.cluster import CLIENTS, Party
from chaos.nemeses.nemesis import Nemesis
from chaos.proxies import Direction, Link


class _Wires(Nemesis):
    """A fault of some links, all of which are sound again when it heals."""

    links: Sequence[Link] = ()

    def break_(self, links: Sequence[Link]) -> str:
        """Cut links, or let them swallow everything; return which."""
        self.links = [*self.links, *links]
        is_cut = self.random.random() < 0.5
        for link in links:
            if is_cut:
                link.cut()
            else:
                link.hold()
        return "cut" if is_cut else "silent"

    async def heal(self) -> None:
        for link in self.links:
            link.heal()

    def _both_ways(self, one: Sequence[str], other: Sequence[str]) -> list[Link]:
        network = self.cluster.network
        return [*network.between(one, other), *network.between(other, one)]

    def _inside(self, party: Party) -> list[Link]:
        """Return the links of a replica to its group and the controllers; clients reach it."""
        around = self.cluster.network.around(party.name)
        return [link for link in around if link.name.source != CLIENTS]


class IsolateMaster(_Wires):
    """A master without its group and the arbiter, but with clients on its side."""

    name = "isolate master"

    async def begin(self) -> str:
        party = await self.master_of(self.any_broker())
        return f"{party.name}: {self.break_(self._inside(party))}"


class IsolateReplica(_Wires):
    """A replica, which may be the master, that nobody reaches and that reaches nobody."""

    name = "isolate replica"

    async def begin(self) -> str:
        party = self.any_replica()
        return f"{party.name}: {self.break_(self.cluster.network.around(party.name))}"


class Bridge(_Wires):
    """Two replicas that do not reach each other, and a third that reaches both."""

    name = "bridge"
    needs_copies = True

    async def begin(self) -> str:
        replicas = self.cluster.replicas(self.any_broker())
        one, other = self.random.sample(replicas, 2)
        how = self.break_(self._both_ways([one.name], [other.name]))
        return f"{one.name} and {other.name}: {how}"


class OneWay(_Wires):
    """A replica that nobody of its group reaches, or that reaches nobody; not both."""

    name = "one-way partition"
    needs_copies = True

    async def begin(self) -> str:
        party = self.any_replica()
        others = [one.name for one in self.others(party)]
        controllers = [one.name for one in self.cluster.controllers()]
        is_deaf = self.random.random() < 0.5
        network = self.cluster.network
        links = (
            network.between(others, [party.name])
            if is_deaf
            else network.between([party.name], [*others, *controllers])
        )
        return f"{party.name}, {'inwards' if is_deaf else 'outwards'}: {self.break_(links)}"


class ArbiterCutOff(_Wires):
    """One replica, or a whole group, without the controllers."""

    name = "arbiter cut off"
    needs_copies = True

    async def begin(self) -> str:
        broker = self.any_broker()
        group = [one.name for one in self.cluster.replicas(broker)]
        parties = group if self.random.random() < 0.5 else [(await self.master_of(broker)).name]
        controllers = [one.name for one in self.cluster.controllers()]
        how = self.break_(self.cluster.network.between(parties, controllers))
        return f"{', '.join(parties)}: {how}"


class ClientsCutOff(_Wires):
    """A master that the clients alone do not reach: nobody else may replace it."""

    name = "clients cut off"

    async def begin(self) -> str:
        party = await self.master_of(self.any_broker())
        return f"{party.name}: {self.break_(self.cluster.network.between([CLIENTS], [party.name]))}"


class SlowLinks(_Wires):
    """All links of a replica are slow."""

    name = "slow links"

    async def begin(self) -> str:
        party = self.any_replica()
        seconds = self.random.choice((0.02, 0.1, 0.5))
        self.links = self.cluster.network.around(party.name)
        for link in self.links:
            link.slow(seconds)
        return f"{party.name}: {seconds} s each way"


class SlowLinksOfAll(_Wires):
    """All links between replicas are slow: what is confirmed is known late."""

    name = "slow links of all"

    async def begin(self) -> str:
        names = [party.name for party in self.cluster.replicas()]
        seconds = self.random.choice((0.1, 0.3, 0.5))
        self.links = self.cluster.network.between(names, names)
        for link in self.links:
            link.slow(seconds)
        return f"{seconds} s each way"


class HeldAnswers(_Wires):
    """Requests to a replica are done, and their answers arrive when it heals."""

    name = "held answers"

    async def begin(self) -> str:
        party = self.any_replica()
        links = self.cluster.network.around(party.name)
        self.links = [link for link in links if link.name.target == party.name]
        for link in self.links:
            link.hold(Direction.BACK)
        return party.name


class TornAnswers(_Wires):
    """Connections to a replica are reset in the middle of an answer, again and again."""

    name = "torn answers"

    async def begin(self) -> str:
        party = self.any_replica()
        links = self.cluster.network.around(party.name)
        self.links = [link for link in links if link.name.target == party.name]
        self._tearing = asyncio.create_task(self._tear())
        return party.name

    async def _tear(self) -> None:
        while True:
            for link in self.links:
                link.tear(self.random.randint(1, 2_000))
            await asyncio.sleep(self.random.uniform(0.05, 0.5))  # the rate of the resets

    async def heal(self) -> None:
        self._tearing.cancel()
        await super().heal()
