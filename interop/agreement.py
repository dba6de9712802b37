"""Check that one side finds in a store everything that the other side wrote there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from interop import data
from interop.checks import Checks
from interop.eruca_client import ErucaClient
from interop.messages import Message, Place, by_place
from interop.side import GROUP, By, Contents, Side

_SAMPLE_SIZE: Final = 40  # keys and ids to look up, spread evenly
_FIND_COUNT_MAX: Final = 64  # messages returned by one look-up
_COLLIDING: Final = "Aa"  # a tag with the same hash as another one


def check_contents(
    checks: Checks,
    side: Side,
    contents: Contents,
    *,
    are_commits_exact: bool,
    store_host: str | None = None,
) -> None:
    """Compare everything that *side* reads and finds with *contents*.

    RocketMQ's client asks the broker that an offset id names. If several brokers wrote the
    *contents*, only the ids of *store_host*, which *side* has opened, can be found.
    """
    for topic in contents.topics:
        expected = contents.of_topic(topic)
        checks.same_entries(
            f"{side.name} reads all of {_short(topic)}",
            by_place(side.read_topic(topic)),
            by_place(expected),
        )
        checks.equal(
            f"{side.name} knows the queues of {_short(topic)}",
            _filled(side.queue_ranges(topic)),
            contents.ranges(topic),
        )
    for topic in (data.FLIGHTS, data.ODDITIES, data.BATCHES):
        _check_finding(checks, side, topic, contents.of_topic(topic), store_host)
    _check_times(checks, side, contents)
    _check_filter(checks, side, contents)
    _check_commits(checks, side, contents, are_exact=are_commits_exact)
    if isinstance(side, ErucaClient):
        _check_json(checks, side, contents)


def _check_finding(
    checks: Checks, side: Side, topic: str, messages: Sequence[Message], store_host: str | None
) -> None:
    by_key: dict[str, set[Place]] = defaultdict(set)
    by_unique_id: dict[str, set[Place]] = defaultdict(set)
    by_offset_id: dict[str, set[Place]] = defaultdict(set)
    for message in messages:
        if store_host is None or (message.origin and message.origin.store_host == store_host):
            by_offset_id[message.offset_message_id].add(message.place)
        by_unique_id[message.message_id or ""].add(message.place)
        for key in message.keys:
            by_key[key].add(message.place)
    tables: tuple[tuple[By, dict[str, set[Place]]], ...] = (
        ("key", by_key),
        ("unique_id", by_unique_id),
        ("offset_id", by_offset_id),
    )
    for by, table in tables:
        wanted = _sample({value: p for value, p in table.items() if len(p) <= _FIND_COUNT_MAX})
        found = side.find(by, topic, [*wanted, *(["no-such-key"] if by == "key" else [])])
        places = {value: {m.place for m in rows} for value, rows in found.items()}
        if by == "key":
            wanted["no-such-key"] = set()
        what = f"{side.name} finds in {_short(topic)} by {by.replace('_', ' ')}"
        checks.same_entries(what, places, wanted)


def _check_times(checks: Checks, side: Side, contents: Contents) -> None:
    found: dict[tuple[int, int], int] = {}
    expected: dict[tuple[int, int], int] = {}
    for queue_id, (start, end) in contents.ranges(data.FLIGHTS).items():
        stored = {
            message.queue_offset: message.origin.stored_ms
            for message in contents.of_topic(data.FLIGHTS)
            if message.queue_id == queue_id and message.origin
        }
        times = _times(sorted(set(stored.values())))
        offsets = side.offsets_by_time(data.FLIGHTS, queue_id, times)
        for time_ms, offset in zip(times, offsets, strict=True):
            found[queue_id, time_ms] = offset
            later = [o for o in range(start, end) if stored[o] >= time_ms]
            expected[queue_id, time_ms] = min(later, default=end)
    checks.same_entries(f"{side.name} finds offsets by time", found, expected)


def _times(stored_ms: list[int]) -> list[int]:
    """Return times before, at, next to and after those at which messages were stored."""
    if not stored_ms:
        return []
    step = max(1, len(stored_ms) // _SAMPLE_SIZE)
    near = {time_ms + beside for time_ms in stored_ms[::step] for beside in (-1, 0, 1)}
    return sorted({stored_ms[0] - 60_000, *near, stored_ms[-1] + 60_000})


def _check_filter(checks: Checks, side: Side, contents: Contents) -> None:
    expected = [m for m in contents.of_topic(data.ODDITIES) if m.tag in {_COLLIDING, "TagA"}]
    consumed = side.consume(
        data.ODDITIES,
        group=f"interop-filter-{side.name}",
        count=len(expected),
        expression=f"{_COLLIDING} || TagA",
    )
    what = f"{side.name} filters by tag, one that collides with another"
    checks.same_entries(what, by_place(consumed), by_place(expected))


def _check_commits(checks: Checks, side: Side, contents: Contents, *, are_exact: bool) -> None:
    found = side.group_offsets(GROUP, data.FLIGHTS)
    if are_exact:
        checks.equal(f"{side.name} knows the group's offsets", found, contents.committed)
        return
    beyond = {q: offset for q, offset in found.items() if offset > contents.committed.get(q, 0)}
    checks.equal(f"{side.name} knows no offset beyond the group's", beyond, {})


def _check_json(checks: Checks, side: ErucaClient, contents: Contents) -> None:
    for topic in contents.topics:
        checks.same_entries(
            f"Eruca reads all of {_short(topic)} in JSON",
            by_place(side.read_topic_in_json(topic)),
            by_place(contents.of_topic(topic)),
        )


def _filled(ranges: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    return {queue_id: ranges[queue_id] for queue_id in sorted(ranges) if ranges[queue_id][1] > 0}


def _sample(table: dict[str, set[Place]]) -> dict[str, set[Place]]:
    values = sorted(table)
    step = max(1, len(values) // _SAMPLE_SIZE)
    return {value: table[value] for value in values[::step]}


def _short(topic: str) -> str:
    return topic if len(topic) < 20 else f"{topic[:8]}… ({len(topic)} characters)"
