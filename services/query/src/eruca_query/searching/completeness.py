"""The completeness of an answer: the read model's progress, and the missing data with reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eruca.contract.queries import Missing, ReadModelPosition
from eruca_query.core.damaged_records import DamagedRecord, told
from eruca_query.core.found_messages import moment
from eruca_query.searching.broker_directory import KnownBrokers
from eruca_query.searching.broker_logs import TailAnswer
from eruca_query.searching.read_view import ReadView, ServingGeneration


@dataclass(slots=True)
class Completeness:
    """The part of an answer that describes its completeness."""

    read_model: list[ReadModelPosition]
    missing: list[Missing]
    deleted: list[Missing] = field(default_factory=list)  # of them, what no log has any more

    def undecided(self) -> list[Missing]:
        """Return what keeps an id that was not found from being surely not there."""
        return [missing for missing in self.missing if missing not in self.deleted]

    def add(self, missing: Missing) -> None:
        """Note one more thing that may be missing."""
        self.missing.append(missing)

    def add_damage(self, tails: Mapping[str, TailAnswer]) -> None:
        """Note whose tails turned out, when they were looked into, to be no stretch of a log."""
        for name, answer in tails.items():
            if answer.tail is None or answer.tail.damage is None:
                continue
            block = answer.tail.block
            detail = f"what it sends from {block.from_offset} on is damaged: {answer.tail.damage}"
            missing = Missing(broker_name=name, reason="broker_unreachable", detail=detail)
            if missing not in self.missing:
                self.add(missing)

    def add_damaged(self, damaged: Mapping[str, Sequence[DamagedRecord]]) -> None:
        """Note which records may belong to the answer and are damaged.

        They stay so, so that nothing is left undecided: asking again tells no more.
        """
        for name, records in sorted(damaged.items()):
            if records:
                missing = Missing(broker_name=name, reason="damaged", detail=told(records))
                self.add(missing)
                self.deleted.append(missing)

    def forgive(self, broker_name: str) -> None:
        """Note that what the read model lacks of a broker was found in another way."""
        self.missing = [
            missing
            for missing in self.missing
            if (missing.broker_name, missing.reason) != (broker_name, "model_behind")
        ]


def damaged_records(
    in_rows: Mapping[str, Sequence[DamagedRecord]],
    tails: Mapping[str, TailAnswer],
    is_meant: Callable[[DamagedRecord], bool],
) -> dict[str, list[DamagedRecord]]:
    """Return the damaged records of rows and tails that are meant, by broker name."""
    found = {name: [*filter(is_meant, records)] for name, records in in_rows.items()}
    for name, answer in tails.items():
        if answer.tail is not None:
            known = found.setdefault(name, [])
            known += [record for record in answer.tail.damaged() if is_meant(record)]
    return found


def positions_of(view: ReadView, known: KnownBrokers) -> dict[str, int | None]:
    """Return where the tail of each broker's log begins; None: nothing of it has been read."""
    positions: dict[str, int | None] = dict.fromkeys(known.urls)
    positions.update({name: its.log_offset for name, its in view.by_name.items()})
    return dict(sorted(positions.items()))


def completeness_of(
    serving: Mapping[str, ServingGeneration],
    known: KnownBrokers,
    tails: Mapping[str, TailAnswer],
) -> Completeness:
    """Return how complete what was found in the rows and in *tails* is."""
    positions, missing, deleted = [], [], []
    if known.fault is not None:
        detail = f"there may be brokers that are not known: {known.fault}"
        missing.append(Missing(broker_name=None, reason="name_servers_unreachable", detail=detail))
    for name, answer in tails.items():
        its = serving.get(name)
        positions.append(_position(name, its, answer))
        if answer.fault is not None:
            missing.append(
                Missing(broker_name=name, reason=answer.fault.reason, detail=answer.fault.detail)
            )
        for begin, end in its.gaps if its is not None else ():
            detail = f"log offsets {begin} to {end} were deleted before they had been read"
            deleted.append(Missing(broker_name=name, reason="log_gap", detail=detail))
    completeness = Completeness(positions, [*missing, *deleted], deleted)
    completeness.add_damage(tails)
    return completeness


def _position(name: str, its: ServingGeneration | None, answer: TailAnswer) -> ReadModelPosition:
    log_offset = None if its is None else its.log_offset
    end = answer.end_offset
    return ReadModelPosition(
        broker_name=name,
        log_offset=log_offset,
        end_offset=end,
        behind_bytes=None if end is None or log_offset is None else max(end - log_offset, 0),
        as_of=None if its is None or its.stored_ms is None else moment(its.stored_ms),
    )
