"""Rows of broker groups: rules 1 and 3 of their module, and limits."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from pydantic import ValidationError

from eruca.contract.broker_groups import BrokerGroupPut, BrokerGroupView

ONE: Final[dict[str, Any]] = {"replica_id": 1, "uid": "one"}
TWO: Final[dict[str, Any]] = {"replica_id": 2, "uid": "two"}
URLS: Final[dict[str, Any]] = {"urls": {"default": "http://127.0.0.1:10911"}}
ROW: Final[dict[str, Any]] = {
    "epoch": 1,
    "master": ONE,
    "in_sync": [ONE, TWO],
    "replicas": [ONE | URLS, TWO | URLS],
    "min_in_sync": 1,
    "flush_mode": "async",
    "unclean": False,
    "by": "replica 1",
    "reason": "first start",
}


def test_a_row_is_read_as_it_was_written() -> None:
    row = BrokerGroupPut.model_validate(ROW)

    assert row.model_dump(exclude_defaults=True) == {
        name: value for name, value in ROW.items() if name not in ("min_in_sync", "unclean")
    }


@pytest.mark.parametrize(
    ("wrong", "field", "text"),
    [
        ({"master": {"replica_id": 3, "uid": "three"}}, "in_sync", "master 3 (three) is not in"),
        ({"master": {"replica_id": 1, "uid": "wiped"}}, "in_sync", "master 1 (wiped) is not in"),
        ({"in_sync": [ONE, TWO, ONE]}, "in_sync", "replica 1 (one) is in the in-sync set twice"),
        (
            {"replicas": [ONE | URLS, ONE | {"uid": "other"} | URLS]},
            "replicas",
            "replica id 1 is listed 2 times",
        ),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_with_the_field_and_the_value(
    wrong: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        BrokerGroupPut.model_validate(ROW | wrong)

    (fault,) = refused.value.errors()
    assert fault["loc"] == (field,)
    assert text in fault["msg"]


def test_two_stores_of_one_replica_id_may_both_be_in_sync() -> None:
    """The master expects both until the arbiter has removed the former one."""
    wiped = ONE | {"uid": "wiped"}

    row = BrokerGroupPut.model_validate(ROW | {"in_sync": [ONE, wiped]})

    assert [member.uid for member in row.in_sync] == ["one", "wiped"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch": 0},
        {"epoch": True},
        {"in_sync": []},
        {"in_sync": [ONE, *({"replica_id": n, "uid": f"store-{n}"} for n in range(2, 18))]},
        {"replicas": []},
        {"replicas": [ONE]},
        {"replicas": [ONE | URLS | {"kind": "witness"}]},
        {"replicas": [ONE | {"urls": {"default": "http://127.0.0.1/path"}}]},
        {"master": {"replica_id": 0, "uid": "one"}},
        {"master": {"replica_id": 1, "uid": "a b"}},
        {"min_in_sync": 17},
        {"flush_mode": "never"},
        {"by": ""},
        {"reason": "two\nlines"},
        {"reason": "n" * 1_025},
        {"quorum": 2},
    ],
)
def test_a_value_beyond_its_limits_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BrokerGroupPut.model_validate(ROW | wrong)


def test_a_row_may_have_fields_of_a_later_version() -> None:
    later: dict[str, Any] = {
        "broker_name": "a",
        "version": "1-0",
        "changed_at": "2026-11-21T08:00:00Z",
    }
    later |= {"term_seconds": 3, "master": ONE | {"rack": "r7"}}

    view = BrokerGroupView.model_validate_json(json.dumps(ROW | later))

    assert (view.epoch, view.master.uid) == (1, "one")
