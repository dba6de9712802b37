"""The doctor's findings on services that follow brokers' logs: each fault has a fix."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eruca.cli.diagnosing.findings import BEHIND_BYTES, Verdict
from eruca.cli.diagnosing.follower_findings import Following, judged
from eruca.contract.queries import FollowedLog, QueryStatus
from eruca.contract.transactions import CheckerStatus, CheckingRules, FollowedBroker

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def query(
    *,
    behind_bytes: int | None = 0,
    followed_by: str | None = "q",
    faults: dict[str, str] | None = None,
) -> Following:
    log = FollowedLog(
        broker_name="broker-a",
        log_offset=1,
        end_offset=1,
        behind_bytes=behind_bytes,
        as_of=NOW,
        read_at=NOW,
        followed_by=followed_by,
        rows=1,
        oldest_stored_at=NOW,
        gaps=0,
        rebuild=None,
    )
    status = QueryStatus(
        version="1", name="q", started_at=NOW, brokers=[], faults=faults or {}, followed=[log]
    )
    return Following.of_query(status)


def checker(*, behind_bytes: int = 0, faults: dict[str, str] | None = None) -> Following:
    log = FollowedBroker(
        broker_name="broker-a",
        log_offset=1,
        end_offset=1,
        behind_bytes=behind_bytes,
        read_at=NOW,
        followed_by="c",
    )
    rules = CheckingRules(
        timeout_seconds=6,
        interval_seconds=30,
        checks_max=15,
        age_seconds_max=3600,
        counts_unreachable=True,
    )
    status = CheckerStatus(
        version="1",
        name="c",
        started_at=NOW,
        rules=rules,
        brokers=[],
        faults=faults or {},
        followed=[log],
        held_requests=0,
        held_requests_max=1,
    )
    return Following.of_checker(status)


@pytest.mark.parametrize("following", [query(), query(behind_bytes=None), checker()])
def test_one_that_is_up_with_every_log_is_fine(following: Following) -> None:
    found = [*judged("http://h:1", "query service", following, {"broker-a"})]

    assert {finding.verdict for finding in found} == {Verdict.OK}


@pytest.mark.parametrize(
    ("following", "registered", "verdict", "detail"),
    [
        (
            query(behind_bytes=BEHIND_BYTES + 1),
            {"broker-a"},
            Verdict.WARNING,
            "64 MiB behind broker-a",
        ),
        (
            checker(behind_bytes=BEHIND_BYTES + 1),
            {"broker-a"},
            Verdict.WARNING,
            "64 MiB behind broker-a",
        ),
        (query(), {"broker-a", "broker-b"}, Verdict.WARNING, "no instance follows broker-b"),
        (query(followed_by=None), {"broker-a"}, Verdict.WARNING, "no instance follows broker-a"),
        (
            checker(faults={"broker-b": "cannot connect"}),
            {"broker-a", "broker-b"},
            Verdict.FAULT,
            "cannot follow broker-b: cannot connect",
        ),
    ],
)
def test_what_is_wrong_is_told_with_a_fix(
    following: Following, registered: set[str], verdict: Verdict, detail: str
) -> None:
    found = [*judged("http://h:1", "query service", following, registered)]

    [wrong] = [finding for finding in found if finding.verdict is not Verdict.OK]
    assert (wrong.verdict, wrong.detail) == (verdict, detail)
    assert wrong.fix
