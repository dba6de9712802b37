"""The brokers as a page shows them: those that live, and those that are known and away.

A name server forgets a broker that is silent. The console remembers for an hour the names that it
has seen, and the query service those whose logs it follows. So a broker that is away is a row that
says so, not a row less, and a total without its part is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from eruca.contract.fields import MASTER_ID
from eruca.contract.routes import BrokerAddress, BrokerGroup
from eruca.contract.status import BrokerStatus
from eruca_console.cluster.outcomes import Outcome
from eruca_console.core.figures import share
from eruca_console.core.texts import N_

REMEMBERED_MAX: Final = 1_000
REMEMBERED_SECONDS: Final = 3_600.0  # so that a broker that was removed is forgotten
DISK_HIGH: Final = 0.85  # of the disk


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker name.

    Attributes:
        name: The broker.
        group: Its processes, by the name server; None: it knows none.
        status: The master's own answer.
    """

    name: str
    group: BrokerGroup | None
    status: Outcome[BrokerStatus]

    @property
    def copies(self) -> Sequence[BrokerAddress]:
        """The live processes, the master first."""
        found = () if self.group is None else self.group.brokers
        return sorted(found, key=lambda one: one.broker_id)

    @property
    def in_sync_count(self) -> int:
        """The number of copies that hold everything that is confirmed."""
        return sum(one.role != "learner" for one in self.copies)

    @property
    def is_away(self) -> bool:
        """True if no process of this name is registered."""
        return self.group is None

    @property
    def has_master(self) -> bool:
        """True if a master is registered."""
        return any(one.broker_id == MASTER_ID for one in self.copies)

    @property
    def behind_bytes(self) -> int | None:
        """The bytes of the log that its slowest projection has not read; None: unknown."""
        status = self.status.value
        if status is None:
            return None
        return max((one.behind_bytes for one in status.projections), default=0)

    @property
    def log_bytes(self) -> int | None:
        """The bytes of the log; None: unknown."""
        status = self.status.value
        return None if status is None else status.log.max_offset - status.log.min_offset


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that a person should look at.

    Attributes:
        place: The broker or service.
        text: The fault, a text of the catalogues.
        values: The values in it.
        is_severe: Whether messages cannot be stored or read there.
    """

    place: str
    text: str
    is_severe: bool = True
    values: Mapping[str, object] = field(default_factory=dict)


class KnownBrokers:
    """The names of brokers that were seen lately, by any caller: everybody may list them.

    Args:
        now: Returns monotonic seconds.
    """

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._seen_at: dict[str, float] = {}  # the one that was seen last is the last

    def learn(self, names: Iterable[str]) -> None:
        """Remember *names* for an hour; the one that was not seen for longest is forgotten."""
        now = self._now()
        for name in names:
            self._seen_at.pop(name, None)
            self._seen_at[name] = now
        while len(self._seen_at) > REMEMBERED_MAX:
            del self._seen_at[next(iter(self._seen_at))]

    def without(self, live: Collection[str]) -> list[str]:
        """Return the names, sorted, that were seen lately and are not among *live*."""
        since = self._now() - REMEMBERED_SECONDS
        return sorted(
            name for name, at in self._seen_at.items() if at >= since and name not in live
        )


def faults_of(row: BrokerRow) -> list[Fault]:
    """Return the faults of a broker, the severe ones first."""
    if row.is_away:
        return [Fault(row.name, N_("It is away: no process of this name is registered."))]
    found: list[Fault] = []
    if not row.has_master:
        found.append(Fault(row.name, N_("It has no master: its messages wait.")))
    if row.status.error is not None and not row.status.is_forbidden and row.has_master:
        found.append(_said(row.name, row.status.error.detail))
    status = row.status.value
    if status is not None:
        if status.refusal is not None:
            found.append(_said(row.name, status.refusal))
        found += [
            _said(row.name, f"{one.name}: {one.failure}")
            for one in status.projections
            if one.failure is not None
        ]
        if status.disk_used_ratio >= DISK_HIGH:
            used = {"share": share(status.disk_used_ratio)}
            text = N_("Its disk is %(share)s full.")
            found.append(Fault(row.name, text, is_severe=False, values=used))
    late = len(row.copies) - row.in_sync_count
    if late:
        text = N_("Copies that are not in sync: %(count)s.")
        found.append(Fault(row.name, text, is_severe=False, values={"count": late}))
    return found


def _said(place: str, text: str) -> Fault:
    """Return a fault in a server's own words, which no catalogue has."""
    return Fault(place, "%(said)s", values={"said": text})
