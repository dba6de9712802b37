"""Every example of the transaction checker's document, sent to one that follows a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from eruca_postgres.database import Database
from eruca_postgres.positions import write_position
from eruca_txn_checker.projection.tables import SCHEMA
from support.checkers import Checked, checked_by
from support.in_process_cluster import in_process_cluster
from support.openapi_documents import kept_document
from support.openapi_examples import Changes, Scenes, check_answer
from support.postgres import drop_schema
from support.waiting import until_told

pytestmark = pytest.mark.anyio

DOCUMENT: Final = kept_document("txn-checker")
SCENES: Final = Scenes[Checked](DOCUMENT)
MESSAGE: Final = {"body": {"json": {"order": 1545, "amount": "19.90"}}, "keys": ["order-1545"]}
_groups: Final = (f"orders-{number}" for number in count())


@pytest.fixture(scope="module")
async def checked(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str
) -> AsyncIterator[Checked]:
    """Yield a checker that asks about each transaction at once, and once."""
    directory: Path = tmp_path_factory.mktemp("examples")
    drop_schema(postgres_url, SCHEMA)
    async with (
        in_process_cluster(directory, brokers=1) as cluster,
        checked_by(cluster, postgres_url, interval_seconds=600) as checked,
    ):
        yield checked


async def begun(checked: Checked) -> Changes:
    """Begin a transaction of a group that nobody else is in."""
    group = next(_groups)
    transaction_id = await checked.begin(producer_group=group, message=MESSAGE)
    return {"transaction_id": transaction_id, "producer_group": group}


async def asked(checked: Checked) -> Changes:
    """Begin a transaction and be asked about it."""
    changes = await begun(checked)
    [check] = await checked.take(group=changes["producer_group"])
    return changes | {"check_id": check["check_id"]}


@SCENES.add("health", 200)
@SCENES.add("readiness", 200)
@SCENES.add("metrics", 200)
@SCENES.add("describeProblem", 200)
@SCENES.add("explainAccess", 200)
@SCENES.add("getAccess", 200)
async def _(_checked: Checked) -> None:
    pass


@SCENES.add("takeChecks", 200)
async def _(checked: Checked) -> Changes:
    return await begun(checked)


@SCENES.add("answerCheck commit", 200)
@SCENES.add("answerCheck rollback", 200)
@SCENES.add("answerCheck unknown", 200)
async def _(checked: Checked) -> Changes:
    return await asked(checked)


@SCENES.add("putWebhook", 201)
async def _(_checked: Checked) -> Changes:
    return {"producer_group": next(_groups)}


@SCENES.add("putWebhook", 200)
@SCENES.add("getWebhook", 200)
@SCENES.add("deleteWebhook", 204)
async def _(checked: Checked) -> Changes:
    changes = {"producer_group": next(_groups)}
    await SCENES.examples["putWebhook"].send(checked.http, changes)
    return changes


@SCENES.add("listTransactions", 200)
@SCENES.add("getTransaction", 200)
async def _(checked: Checked) -> Changes:
    changes = await asked(checked)
    answer = await checked.answer(changes["check_id"], "unknown", client_id="me")
    assert answer.status_code == 200, answer.text
    await checked.seen(changes["transaction_id"], lambda shown: shown["checks_sent"])
    return changes


@SCENES.add("commitTransaction", 200)
@SCENES.add("rollBackTransaction", 200)
async def _(checked: Checked) -> Changes:
    changes = await begun(checked)
    await checked.seen(changes["transaction_id"])
    return changes


@SCENES.add("forgetBroker", 204)
async def _(checked: Checked) -> None:
    """With a broker that was read once, and is not there any more."""
    async with checked.app.parts[Database].transaction() as connection:
        await write_position(connection, "broker-b", 7, end_offset=7)


@SCENES.add("getStatus", 200)
async def _(checked: Checked) -> None:
    async def status() -> dict[str, Any]:
        shown: dict[str, Any] = (await checked.http.get("/v1/status")).json()
        return shown

    await until_told(status, lambda shown: shown["brokers"] and shown["followed"])


@pytest.mark.parametrize(("label", "status"), SCENES.plays, ids=str)
async def test_an_example_is_answered_as_documented(
    checked: Checked, label: str, status: int
) -> None:
    example = SCENES.examples[label]
    changes = await SCENES.plays[label, status](checked) or {}

    answer = await example.send(checked.http, changes)

    check_answer(DOCUMENT, example, answer, status)


def test_every_example_and_every_success_has_its_scene() -> None:
    SCENES.check_that_none_is_missing()
