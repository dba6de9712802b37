"""The plan of a load: the stretches to read, and the rows that are wanted of each. Fixed then."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from eruca.contract.names import is_system_topic
from eruca.exporting.errors import DamagedError, OptionError
from pyspark_eruca_segments.backups import backup_copy
from pyspark_eruca_segments.copies import LogCopy, Stretch
from pyspark_eruca_segments.options import SegmentOptions
from pyspark_eruca_segments.selection import Selection
from pyspark_eruca_segments.stores import checked_store, store_copy
from pyspark_eruca_segments.tiers import tier_copy
from pyspark_eruca_segments.topics import topics_of
from pyspark_eruca_segments.walk import Damaged

_NAMED_MAX: Final = 8  # topics named in one error


class Share(NamedTuple):
    """A task's part of a plan."""

    stretch: Stretch
    selection: Selection


def planned(options: SegmentOptions) -> tuple[Share, ...]:
    """Return the shares of a load.

    Raises:
        OptionError: There is no such log, or a topic does not exist in it.
        SourceError: The log cannot be read.
        DamagedError: The part that names the topics is damaged.
    """
    copies = _copies(options)
    shares: list[Share] = []
    known: set[str] = set()
    is_complete = True  # whether each log has told its topics
    for copy in copies:
        if copy.note is not None:
            _warn(copy.note)
        topics, damaged = topics_of(copy)
        _check_damage(copy, damaged, options)
        is_complete = is_complete and topics is not None
        known.update(topics or ())
        shares += _shares(copy, _since(options.topics, topics), options)
    if is_complete:
        _check_topics(options.topics, known)
    return tuple(shares)


def damage_text(place: str, damaged: Damaged) -> str:
    """Return the place and the fault of a damaged part."""
    return (
        f"{place}: the {damaged.size} bytes from log offset {damaged.log_offset} on are damaged:"
        f" {damaged.fault}"
    )


def _copies(options: SegmentOptions) -> list[LogCopy]:
    place, brokers = options.place, options.brokers
    if options.cluster is not None:
        return [tier_copy(place, options.cluster, name, options.log_id) for name in brokers]
    store = None if "://" in place else checked_store(place)
    if store is None:
        return [backup_copy(place, name, options.backup) for name in brokers]
    if len(brokers) > 1:
        raise OptionError(f"option broker: {place} is the store of one broker; name that one")
    return [store_copy(Path(place), brokers[0])]


def _since(names: Iterable[str], topics: Mapping[str, int] | None) -> dict[str, int]:
    """Return the topics that are wanted, with the log offset from which each has existed."""
    if topics is None:
        return dict.fromkeys(names, 0)
    return {name: topics.get(name, 0) for name in names if name in topics or is_system_topic(name)}


def _shares(copy: LogCopy, since: Mapping[str, int], options: SegmentOptions) -> Iterable[Share]:
    selection = Selection(
        copy.broker_name,
        since,
        options.starting_ms,
        options.ending_ms,
        options.starts,
        options.ends,
    )
    begin = min(since.values(), default=None)
    for stretch in copy.stretches:
        if begin is not None and stretch.end > begin and _may_have(stretch, options):
            yield Share(stretch, selection)


def _may_have(stretch: Stretch, options: SegmentOptions) -> bool:
    """Tell whether a stretch may have rows of the times that are wanted."""
    starting, ending = options.starting_ms, options.ending_ms
    is_before = None not in (starting, stretch.last_ms) and stretch.last_ms < starting  # type: ignore[operator]
    is_behind = None not in (ending, stretch.first_ms) and stretch.first_ms >= ending  # type: ignore[operator]
    return not (is_before or is_behind)


def _check_damage(copy: LogCopy, damaged: list[Damaged], options: SegmentOptions) -> None:
    for part in damaged:
        text = damage_text(f"the log of {copy.broker_name} in {options.place}", part)
        if options.damaged == "refuse":
            raise DamagedError(
                f"{text}; whether topics were deleted there is unknown. Read another copy of the"
                " log, or set damaged=mark"
            )
        _warn(f"{text}; a topic that was deleted there still has rows")


def _check_topics(wanted: Iterable[str], known: set[str]) -> None:
    missing = [name for name in wanted if name not in known and not is_system_topic(name)]
    if missing:
        others = sorted(name for name in known if not is_system_topic(name))[:_NAMED_MAX]
        raise OptionError(
            f"option topic: {missing[0]} does not exist at the end of what is read; topics there:"
            f" {', '.join(others) or 'none'}"
        )


def _warn(text: str) -> None:
    print(f"eruca-segments: {text}", file=sys.stderr, flush=True)
