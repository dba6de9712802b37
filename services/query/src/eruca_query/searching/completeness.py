"""The completeness of an answer: the read model's progress, and the missing data with reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eruca.contract.queries import Missing, ReadModelPosition
from eruca_query.core.damaged_records import DamagedRecord, told
from eruca_query.core.found_messages import moment
from eruca_query.searching.broker_directory import KnownBrokers
from eruca_query.searching.broker_logs import TailAnswer
from eruca_query.searching.read_view import ReadView, ServingBuild


@dataclass(slots=True)
class Completeness:
    """The part of an answer that describes its completeness."""

    read_model: list[ReadModelPosition]
    missing: list[Missing]
    deleted: list[Missing] = field(default_factory=list)  # those that no log can provide any more

    def undecided(self) -> list[Missing]:
        """Return the gaps that leave open whether an id exists; a later request may close them."""
        return [missing for missing in self.missing if missing not in self.deleted]

    def add(self, missing: Missing) -> None:
        """Add one gap."""
        self.missing.append(missing)

    def add_damage(self, tails: Mapping[str, TailAnswer]) -> None:
        """Add the tails that could not be parsed; this is known only after a search in them."""
        for name, answer in tails.items():
            if answer.tail is None or answer.tail.damage is None:
                continue
            block = answer.tail.block
            detail = f"its answer from {block.from_offset} on is damaged: {answer.tail.damage}"
            missing = Missing(broker_name=name, reason="broker_unreachable", detail=detail)
            if missing not in self.missing:
                self.add(missing)

    def add_damaged(self, damaged: Mapping[str, Sequence[DamagedRecord]]) -> None:
        """Add the damaged records that may belong to the answer.

        They leave nothing undecided: the same question later would have the same result.
        """
        for name, records in sorted(damaged.items()):
            if records:
                missing = Missing(broker_name=name, reason="damaged", detail=told(records))
                self.add(missing)
                self.deleted.append(missing)

    def forgive(self, broker_name: str) -> None:
        """Drop the gap of a broker's unread log: its messages were found in another way."""
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
    """Return the damaged records of rows and tails that meet *is_meant*, by broker name."""
    found = {name: [*filter(is_meant, records)] for name, records in in_rows.items()}
    for name, answer in tails.items():
        if answer.tail is not None:
            known = found.setdefault(name, [])
            known += [record for record in answer.tail.damaged() if is_meant(record)]
    return found


def positions_of(view: ReadView, known: KnownBrokers) -> dict[str, int | None]:
    """Return the beginning of each broker's tail; None: the rows have nothing of its log."""
    positions: dict[str, int | None] = dict.fromkeys(known.urls)
    positions.update({name: its.log_offset for name, its in view.by_name.items()})
    return dict(sorted(positions.items()))


def completeness_of(
    serving: Mapping[str, ServingBuild],
    known: KnownBrokers,
    tails: Mapping[str, TailAnswer],
) -> Completeness:
    """Return the completeness of an answer from the rows and from *tails*."""
    positions, missing, deleted = [], [], []
    if known.fault is not None:
        detail = f"more brokers may exist than are known: {known.fault}"
        missing.append(Missing(broker_name=None, reason="name_servers_unreachable", detail=detail))
    for name, answer in tails.items():
        its = serving.get(name)
        positions.append(_position(name, its, answer))
        if answer.fault is not None:
            missing.append(
                Missing(broker_name=name, reason=answer.fault.reason, detail=answer.fault.detail)
            )
        for begin, end in its.gaps if its is not None else ():
            detail = f"log offsets {begin} to {end} were deleted before they were read"
            deleted.append(Missing(broker_name=name, reason="log_gap", detail=detail))
    completeness = Completeness(positions, [*missing, *deleted], deleted)
    completeness.add_damage(tails)
    return completeness


def _position(name: str, its: ServingBuild | None, answer: TailAnswer) -> ReadModelPosition:
    log_offset = None if its is None else its.log_offset
    end = answer.end_offset
    return ReadModelPosition(
        broker_name=name,
        log_offset=log_offset,
        end_offset=end,
        behind_bytes=None if end is None or log_offset is None else max(end - log_offset, 0),
        as_of=None if its is None or its.stored_ms is None else moment(its.stored_ms),
    )
