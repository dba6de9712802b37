"""Decisions of a maintenance: which files it merges and drops, which manifests it joins."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from eruca.exporting.ranges import Queue, Range
from eruca_spark.lake import LakeError, Manifest, chain_faults, joined_ranges
from eruca_spark.maintenance.plan import (
    NO_DAY,
    Change,
    LakeFile,
    after,
    expired,
    folded,
    mergeable,
    merged_path,
)

QUEUE, OTHER = Queue("orders", "broker-a", 0), Queue("orders", "broker-a", 1)
DAY = "topic=orders/dt=2026-11-21"


def manifest(batch: int, *files: tuple[str, int], **change: object) -> Manifest:
    one = Manifest(
        batch=batch,
        query_id="1b4e",
        schema_version=2,
        ranges=(Range(QUEUE, batch * 10, batch * 10 + 10),),
        rows=10,
        missing_rows=0,
        written_at="2026-11-21T08:00:00.000+00:00",
        files=files,
    )
    return replace(one, **change)  # type: ignore[arg-type]


def file(batch: int, size: int, partition: str = DAY) -> tuple[str, int]:
    return f"{partition}/batch={batch}/part.parquet", size


def sizes(manifests: list[Manifest], target: int) -> list[list[int]]:
    groups = mergeable(manifests, target)
    return [[one.size for one in group] for some in groups.values() for group in some]


def test_small_files_are_merged_up_to_the_target_and_others_stay() -> None:
    manifests = [manifest(n, file(n, size)) for n, size in enumerate([40, 40, 40, 90, 10, 20])]

    assert sizes(manifests, 100) == [[40, 40, 40], [10, 20]]
    assert sizes(manifests, 1_000) == [[40, 40, 40, 90, 10, 20]]
    assert sizes(manifests, 20) == []


def test_partitions_are_not_mixed_and_damaged_messages_stay() -> None:
    unknown = f"topic=orders/dt={NO_DAY}"
    other = "topic=orders/dt=2026-11-22"
    manifests = [
        manifest(n, file(n, 10), file(n, 20, other), file(n, 5, unknown)) for n in range(2)
    ]

    assert sizes(manifests, 100) == [[10, 10], [20, 20]]


def test_a_merged_file_knows_its_first_batch() -> None:
    group = [LakeFile(*file(3, 10)), LakeFile(*file(7, 10))]
    merged = LakeFile(merged_path(group, "9f2c", 0), 20)

    assert (merged.partition, merged.first_batch, merged.batch) == (DAY, 3, 7)
    again = LakeFile(merged_path([merged, LakeFile(*file(9, 1))], "9f2d", 0), 21)
    assert (again.first_batch, again.batch) == (3, 9)


def test_days_expire_and_damaged_messages_with_the_day_of_their_manifest() -> None:
    unknown = f"topic=orders/dt={NO_DAY}"
    manifests = [
        manifest(0, file(0, 10), file(0, 1, unknown)),
        manifest(
            1,
            file(1, 10),
            file(1, 10, "topic=orders/dt=2026-11-22"),
            file(1, 1, unknown),
            written_at="2026-11-22T00:10:00.000+00:00",
        ),
    ]

    found = expired(manifests, date(2026, 11, 22))
    assert {one: [file.batch for file in some] for one, some in found.items()} == {
        DAY: [0, 1],
        unknown: [0],
    }
    assert expired(manifests, date(2026, 11, 21)) == {}


def test_manifests_say_what_a_merge_has_left_and_saying_it_again_changes_nothing() -> None:
    manifests = [manifest(n, file(n, 10)) for n in range(3)]
    removed = tuple(LakeFile(*file(n, 10)) for n in range(2))
    added = (LakeFile(merged_path(removed, "9f2c", 0), 19),)
    change = Change("9f2c", DAY, removed, (10, 10), added)

    altered = after(manifests, change)
    assert [(one.batch, [size for _, size in one.files]) for one in altered] == [(0, []), (1, [19])]
    assert after([*altered, manifests[2]], change) == []
    assert Change.from_json(change.to_json()) == change


def test_dropped_rows_are_counted_once() -> None:
    one = manifest(0, file(0, 10), file(0, 5, "topic=orders/dt=2026-11-22"))
    change = Change("9f2c", DAY, (LakeFile(*file(0, 10)),), (7,), is_drop=True)

    [altered] = after([one], change)
    assert (altered.rows, altered.dropped_rows, len(altered.files)) == (10, 7, 1)
    assert after([altered], change) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"removed": [], "added": [], "rows": []}'])
def test_an_unreadable_intent_is_refused(text: str) -> None:
    with pytest.raises(LakeError, match="unreadable intent"):
        Change.from_json(text)


def test_manifests_without_files_are_joined_with_the_next_but_not_with_the_newest() -> None:
    manifests = [
        manifest(0, dropped_rows=10),
        manifest(1, file(1, 10)),
        manifest(2, missing_rows=1, rows=9),
        manifest(3, damaged_rows=2),
        manifest(4),
    ]

    joined = folded(manifests)
    assert [(one.first, one.batch) for one in joined] == [(0, 1), (2, 3)]
    assert [(one.rows, one.dropped_rows) for one in joined] == [(20, 10), (19, 0)]
    assert [(one.missing_rows, one.damaged_rows) for one in joined] == [(0, 0), (1, 2)]
    assert [one.ranges for one in joined] == [(Range(QUEUE, 0, 20),), (Range(QUEUE, 20, 40),)]
    assert chain_faults([*joined, manifests[4]]) == []
    assert Manifest.from_json(joined[0].to_json()) == joined[0]
    assert folded([*joined, manifests[4]]) == []


def test_manifests_of_two_queries_or_around_a_missing_batch_are_not_joined() -> None:
    assert folded([manifest(0), manifest(1, query_id="other"), manifest(2)]) == []
    assert folded([manifest(0), manifest(2), manifest(3)]) == []
    assert chain_faults([manifest(0), manifest(3, first_batch=2)]) == [
        "batch 1 is missing before batch 2"
    ]


def test_ranges_that_do_not_continue_each_other_stay_apart() -> None:
    """A gap stays visible, and so does a topic that was created again."""
    first = [Range(QUEUE, 0, 10, "a"), Range(OTHER, 0, 5, "a")]
    gap, again = [Range(QUEUE, 12, 20, "a")], [Range(QUEUE, 0, 3, "b"), Range(OTHER, 5, 9, "a")]

    assert joined_ranges([first, gap, again]) == (
        Range(QUEUE, 0, 10, "a"),
        Range(OTHER, 0, 9, "a"),
        Range(QUEUE, 12, 20, "a"),
        Range(QUEUE, 0, 3, "b"),
    )


def test_a_manifest_of_a_lake_without_maintenance_is_stored_as_before() -> None:
    text = manifest(0, file(0, 10)).to_json()

    assert "first_batch" not in text
    assert "dropped_rows" not in text
