"""Everything may be stopped, killed and started again, in any order: no transaction is lost."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from support.checker_stage import Stage
from support.checkers import message_ids
from support.waiting import until_told

pytestmark = pytest.mark.anyio

ALL = ("namesrv", "broker-a", "postgres", "checker-1")


async def begin_some(stage: Stage, count: int) -> dict[str, str]:
    """Begin transactions; return what each is to become, by id."""
    outcomes = ("commit", "rollback")
    ids = [await stage.begin() for _ in range(count)]
    return {id_: outcomes[number % 2] for number, id_ in enumerate(ids)}


async def answer_all(stage: Stage, truth: dict[str, str]) -> None:
    """Answer checks with the truth until every transaction is decided so."""
    states = {"commit": "committed", "rollback": "rolled_back"}

    async def answer_some() -> list[str]:
        for check in await stage.take(count_max=32, wait_seconds=0.2):
            await stage.checker.post(
                f"/v1/checks/{check['check_id']}",
                json={"answer": truth[str(check["transaction_id"])]},
            )
        shown = [await stage.broker.get(f"/v1/transactions/{id_}") for id_ in truth]
        return [answer.json()["state"] for answer in shown]

    expected = [states[outcome] for outcome in truth.values()]
    await until_told(answer_some, lambda found: found == expected)


async def check_messages(stage: Stage, truth: dict[str, str]) -> None:
    """Each committed message is seen once, and no other: of all tests on this stage."""
    stage.outcomes |= truth
    committed = [id_ for id_, outcome in stage.outcomes.items() if outcome == "commit"]
    assert sorted(await message_ids(stage.broker)) == sorted(committed)


@pytest.mark.parametrize("seed", range(4))
async def test_all_of_it_is_stopped_and_started_again_in_any_order(stage: Stage, seed: int) -> None:
    random = Random(seed)
    truth = await begin_some(stage, 6)
    await stage.take()  # and the checker that took it is gone, too
    for name in random.sample(ALL, len(ALL)):
        is_killed = name != "postgres" and random.random() < 0.5
        await (stage.kill(name) if is_killed else stage.stop(name))

    for name in random.sample(ALL, len(ALL)):
        await stage.start(name, is_waited_for=False)
    for name in ("namesrv", "broker-a"):
        await stage.ready(name)
    await stage.ready("checker-1")
    await answer_all(stage, truth)

    await check_messages(stage, truth)


async def test_postgres_is_stopped_and_started_beneath_a_checker(stage: Stage) -> None:
    truth = await begin_some(stage, 4)
    await stage.take()
    await stage.stop("postgres")
    said = await until_told(
        lambda: stage.checker.get("/readyz"), lambda answer: answer.status_code == 503
    )

    await stage.start("postgres")
    await stage.ready("checker-1")
    await answer_all(stage, truth)

    assert "PostgreSQL does not answer" in said.json()["detail"]
    await check_messages(stage, truth)


async def test_an_answer_that_was_kept_when_its_instance_died_is_told_by_the_next(
    stage: Stage,
) -> None:
    truth = await begin_some(stage, 1)
    [transaction_id] = truth
    [check] = await stage.take()
    await stage.broker_networks["broker-a"].cut()
    refused = await stage.checker.post(f"/v1/checks/{check['check_id']}", json={"answer": "commit"})
    await stage.kill("checker-1")

    await stage.broker_networks["broker-a"].heal()
    await stage.start("checker-1")
    committed = await stage.until_state(transaction_id, "committed")

    assert refused.status_code == 503
    assert committed["decision"]["by"] == "check"
    await check_messages(stage, truth)


async def test_rows_that_were_lost_are_made_again_from_the_log(stage: Stage) -> None:
    """All of PostgreSQL's data is gone; what is over stays over, what is pending is asked."""
    truth = await begin_some(stage, 4)
    await stage.take()
    await stage.kill("checker-1")
    stage.drop_schema()

    await stage.start("checker-1")
    await answer_all(stage, truth)

    for transaction_id, outcome in truth.items():
        state = {"commit": "committed", "rollback": "rolled_back"}[outcome]
        shown = await until_told(
            partial(stage.checker.get, f"/v1/transactions/{transaction_id}"),
            lambda answer, state=state: answer.json().get("state") == state,  # type: ignore[misc]  # of this turn
        )
        assert shown.json()["decision"]["by"] == "check"
    await check_messages(stage, truth)
