"""The rounds: Eruca and a peer take turns at each workload, with fresh servers of both."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from bench.peers.catalogue import FLUSHED, READS, Peer
from bench.peers.client_process import ClientProcess, Measured
from bench.peers.servers import Mode, Start, eruca

ERUCA: Final = "Eruca"
MODES: Final[tuple[Mode, ...]] = ("async", "fsync")
_WARM_UP_SECONDS_MIN: Final = 0.3  # of each row
_NEEDS_BACKLOG: Final = (*READS, "key")


class Plan(NamedTuple):
    """The size of a run."""

    rows: tuple[str, ...]
    seconds: float  # of each measurement
    rounds: int
    backlog: int  # messages
    is_quick: bool = False  # without the peers' own warm-up: its figures mean little


@dataclass(slots=True)
class Cell:
    """A workload of Eruca and of a peer in one mode."""

    row: str
    mode: Mode
    rounds: list[tuple[Measured, Measured]] = field(default_factory=list)

    @property
    def eruca(self) -> Measured:
        """All rounds of Eruca."""
        return sum((mine for mine, _ in self.rounds), Measured())

    @property
    def peer(self) -> Measured:
        """All rounds of the peer."""
        return sum((its for _, its in self.rounds), Measured())

    @property
    def ratio(self) -> float:
        """Eruca's rate divided by the peer's: the median of the rounds."""
        return statistics.median(mine.rate / its.rate for mine, its in self.rounds)


def cells_of(peer: Peer, plan: Plan) -> list[Cell]:
    """Return the workloads of a peer, without their figures."""
    rows = [row for row in peer.rows if row in plan.rows]
    return [Cell(row, mode) for mode in MODES for row in rows if mode == "async" or row in FLUSHED]


def measure(
    name: str, peer: Peer, start: Start, plan: Plan, step: Callable[[str], None]
) -> Iterator[Cell]:
    """Yield the cells of a peer as they are measured.

    Args:
        name: The peer's.
        peer: The peer.
        start: Starts its servers.
        plan: The size of the run.
        step: Is called before each round, with its row.
    """
    cells = cells_of(peer, plan)
    for mode in MODES:
        chosen = [cell for cell in cells if cell.mode == mode]
        if not chosen:
            continue
        with _clients(name, start, mode) as sides:
            if any(cell.row in _NEEDS_BACKLOG for cell in chosen):
                for side in sides:
                    side.measure("fill", 0, count=plan.backlog)
            _warm_up(sides, chosen, 0 if plan.is_quick else peer.warm_up_seconds)
            for cell in chosen:
                for number in range(plan.rounds):
                    step(cell.row)
                    cell.rounds.append(_pair(sides, cell.row, plan.seconds, number))
                yield cell


def _pair(
    sides: Sequence[ClientProcess], row: str, seconds: float, number: int
) -> tuple[Measured, Measured]:
    """Measure both; who begins changes from round to round."""
    order = sides if number % 2 == 0 else sides[::-1]
    its = {side.name: side.measure(row, seconds, group=f"{row}-{number}") for side in order}
    mine, other = (its[side.name] for side in sides)
    return mine, other


def _warm_up(sides: Sequence[ClientProcess], cells: Sequence[Cell], seconds: float) -> None:
    each = max(_WARM_UP_SECONDS_MIN, seconds / len(cells))
    for side in sides:
        for cell in cells:
            its_seconds = _WARM_UP_SECONDS_MIN if side.name == ERUCA else each
            left = its_seconds
            number = 0
            while left > 0:  # a backlog may end early: then it is read again
                measured = side.measure(cell.row, left, group=f"warm-{cell.row}-{number}")
                left -= max(measured.seconds, _WARM_UP_SECONDS_MIN)
                number += 1


@contextmanager
def _clients(name: str, start: Start, mode: Mode) -> Iterator[list[ClientProcess]]:
    """Run the servers and clients of Eruca and of the peer."""
    with TemporaryDirectory(prefix="eruca-peers-") as temporary, ExitStack() as running:
        sides = []
        for side, begin in ((ERUCA, eruca), (name, start)):
            home = Path(temporary) / side
            home.mkdir()
            servers = running.enter_context(begin(home, mode))
            client = ClientProcess(side, servers.client, servers.process_ids, home / "client.log")
            sides.append(running.enter_context(client).opened())
        yield sides
