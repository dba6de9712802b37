"""A lake's catalogue: manifests as they are stored, and how batches follow each other."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eruca.exporting.ranges import Queue, Range
from eruca_spark.lake import LakeError, Manifest, chain_faults

FIRST, SECOND = Queue("orders", "broker-a", 0), Queue("%DLQ%billing", "broker-b", 3)


def manifest(batch: int, *ranges: Range) -> Manifest:
    return Manifest(
        batch=batch,
        query_id="1b4e",
        schema_version=2,
        ranges=ranges,
        rows=sum(one.rows for one in ranges),
        missing_rows=0,
        written_at="2026-11-21T08:00:00.000+00:00",
        files=(("topic=orders/dt=2026-11-21/batch=0/part-0.parquet", 17),),
    )


def test_a_manifest_comes_back_as_it_was_stored() -> None:
    one = manifest(7, Range(FIRST, 0, 10), Range(SECOND, 5, 6))

    assert Manifest.from_json(one.to_json()) == one


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"ranges": 1}', '{"ranges": [], "files": []}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(LakeError, match="unreadable manifest"):
        Manifest.from_json(text)


def test_a_topic_that_was_created_again_starts_over_and_a_gap_stays_one() -> None:
    again = [manifest(0, Range(FIRST, 0, 10, "9f2c-1")), manifest(1, Range(FIRST, 0, 3, "9f2c-7"))]
    same = [manifest(0, Range(FIRST, 0, 10, "9f2c-1")), manifest(1, Range(FIRST, 0, 3, "9f2c-1"))]

    assert Manifest.from_json(again[1].to_json()) == again[1]
    assert chain_faults(again) == []
    assert len(chain_faults(same)) == 1
    assert len(chain_faults([same[0], manifest(1, Range(FIRST, 0, 3))])) == 1


def test_a_manifest_of_an_earlier_version_does_not_say_which_topic() -> None:
    document = json.loads(manifest(0, Range(FIRST, 0, 10, "9f2c-1")).to_json())
    for one in document["ranges"]:
        del one["topic_id"]

    assert Manifest.from_json(json.dumps(document)).ranges == (Range(FIRST, 0, 10),)


def test_batches_that_follow_each_other_are_sound() -> None:
    batches = [
        manifest(0, Range(FIRST, 5, 10)),
        manifest(1, Range(SECOND, 0, 3)),
        manifest(2, Range(FIRST, 10, 12), Range(SECOND, 3, 4)),
    ]

    assert chain_faults([]) == []
    assert chain_faults(batches) == []


def test_a_batch_that_is_missing_is_noticed() -> None:
    batches = [manifest(0, Range(FIRST, 0, 10)), manifest(2, Range(FIRST, 10, 12))]

    assert chain_faults(batches) == ["batch 1 is missing before batch 2"]


@pytest.mark.parametrize("start", [9, 11])
def test_a_hole_or_an_overlap_is_noticed(start: int) -> None:
    batches = [manifest(0, Range(FIRST, 0, 10)), manifest(1, Range(FIRST, start, 12))]

    assert chain_faults(batches) == [
        f"batch 1: expected orders/broker-a/0 to continue at 10, found {start}"
    ]


def test_manifests_of_other_ranges_differ() -> None:
    one = manifest(0, Range(FIRST, 0, 10))

    assert one != replace(one, ranges=(Range(FIRST, 0, 11),))
