"""Clocks that disagree: a broker's, and instances'; checks come when they are due all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.checkers import checked_by
from support.clocks import WrongClock
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.times import moment

pytestmark = pytest.mark.anyio

HOUR = 3_600.0


@pytest.fixture(params=[-HOUR, HOUR], ids=["behind", "ahead"])
async def cluster(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[InProcessCluster]:
    """One whose broker's clock is an hour behind everybody else's, or ahead."""
    clock = WrongClock(ahead_seconds=request.param)
    async with in_process_cluster(tmp_path, brokers=1, broker_clock=clock) as cluster:
        yield cluster


def seconds_to_answer(check: dict[str, Any]) -> float:
    until, asked = (datetime.fromisoformat(check[name]) for name in ("answer_until", "asked_at"))
    return (until - asked).total_seconds()


async def test_a_producer_has_the_interval_to_answer(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url, interval_seconds=600) as checked:
        await checked.begin()

        [check] = await checked.take(wait_seconds=10)

    assert 540 < seconds_to_answer(check) <= 600


async def test_the_next_check_follows_after_the_interval_and_does_not_overlap(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url) as checked:
        await checked.begin()

        [first] = await checked.take(wait_seconds=10)
        [second] = await checked.take(wait_seconds=10)

    assert (first["number"], second["number"]) == (1, 2)
    assert moment(second["asked_at"]) >= moment(first["answer_until"])


async def test_a_checker_that_is_started_again_uses_up_no_check(
    cluster: InProcessCluster, database_url: str
) -> None:
    once = partial(checked_by, cluster, database_url, interval_seconds=600, checks_max=1)
    async with once() as checked:
        transaction_id = await checked.begin()
        await checked.take(wait_seconds=10)

    async with once() as checked:
        await checked.begin()
        await checked.take(wait_seconds=10)

        seen = await checked.at_broker(transaction_id)

    assert (seen["state"], seen["checks"]) == ("pending", 1)


@pytest.mark.parametrize("ahead_seconds", [-HOUR, HOUR])
async def test_instances_whose_clocks_disagree_share_checks(
    cluster: InProcessCluster, database_url: str, ahead_seconds: float
) -> None:
    wrong = WrongClock(ahead_seconds=ahead_seconds)
    async with (
        checked_by(cluster, database_url, interval_seconds=600) as working,
        checked_by(cluster, database_url, interval_seconds=600, clock=wrong) as other,
    ):
        await working.begin()

        [check] = await other.take(wait_seconds=10)

    assert 540 < seconds_to_answer(check) <= 600
