"""Every example of the query service's document, sent to one that follows a broker."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import insert

import eruca
from eruca_query.projection.tables import SCHEMA, brokers
from support.in_process_cluster import in_process_cluster
from support.openapi_documents import kept_document
from support.openapi_examples import Changes, Scenes, check_answer, shape_differences
from support.postgres import drop_schema
from support.query_services import Queried, queried_by
from support.waiting import until_told

pytestmark = pytest.mark.anyio

DOCUMENT: Final = kept_document("query")
DEAD: Final = "http://127.0.0.1:1"  # where no broker listens
ANYTIME: Final[Changes] = {"since": None, "until": None}


@dataclass(frozen=True, slots=True)
class Stage:
    """A query service that has read a flight, and the name server it asks."""

    queried: Queried
    namesrv: httpx.AsyncClient
    flight: eruca.SendResult


SCENES: Final = Scenes[Stage](DOCUMENT)


@pytest.fixture(scope="module")
async def stage(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str
) -> AsyncIterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("examples")
    drop_schema(postgres_url, SCHEMA)
    async with (
        in_process_cluster(directory, brokers=1) as cluster,
        queried_by(cluster, postgres_url) as queried,
        httpx.AsyncClient(base_url=cluster.namesrv_urls[0], trust_env=False) as namesrv,
    ):
        flight = await _sent_and_consumed(queried, cluster.broker_urls["broker-a"])
        await queried.caught_up()
        yield Stage(queried, namesrv, flight)


async def _sent_and_consumed(queried: Queried, broker_url: str) -> eruca.SendResult:
    async with (
        queried.client.producer() as producer,
        httpx.AsyncClient(base_url=f"{broker_url}/v1", trust_env=False) as broker,
    ):
        flight = await producer.send(
            eruca.Message(
                "flights",
                '{"flight":"UA1545","delay":11}',
                tag="UA",
                keys=["UA1545"],
                properties={"origin": "EWR"},
            )
        )
        place = {"topic": "flights", "queue_id": flight.queue.queue_id, "offset": 1}
        for path, body in (
            ("/groups/billing", {"start": "earliest"}),
            ("/groups/billing/offsets", {"offsets": [place]}),
        ):
            answer = await broker.put(path, json=body)
            assert answer.is_success, answer.text
    return flight


@SCENES.add("health", 200)
@SCENES.add("readiness", 200)
@SCENES.add("metrics", 200)
@SCENES.add("describeProblem", 200)
@SCENES.add("explainAccess", 200)
@SCENES.add("getAccess", 200)
@SCENES.add("getExportSchema", 200)
@SCENES.add("listExportTopics", 200)
@SCENES.add("rebuildProjection", 202)
async def _(_stage: Stage) -> None:
    pass


@SCENES.add("getStatus", 200)
async def _(stage: Stage) -> None:
    """With rows, also right after a rebuild of them was requested."""
    await until_told(
        lambda: stage.queried.get("/v1/status"),
        lambda shown: shown["followed"] and not any(log["rebuild"] for log in shown["followed"]),
    )


@SCENES.add("getMessage", 200)
@SCENES.add("getTimeline", 200)
async def _(stage: Stage) -> Changes:
    return {"message_id": stage.flight.message_id}


@SCENES.add("findMessages", 200)
async def _(stage: Stage) -> Changes:
    """With a broker among those that are asked that does not answer."""
    about = {
        "cluster": "eruca",
        "urls": {"default": DEAD},
        "store_host": "127.0.0.1:1",
        "data_version": 1,
        "topics": [
            {
                "topic": "flights",
                "read_queue_count": 1,
                "write_queue_count": 1,
                "permission": "rw",
            }
        ],
    }
    answer = await stage.namesrv.put("/v1/brokers/broker-b/0", json=about)
    assert answer.status_code == 200, answer.text
    await until_told(  # it asks the name servers every other second
        lambda: stage.queried.get("/v1/messages", topic="flights"),
        lambda shown: shown["incomplete"],
    )
    return ANYTIME


@SCENES.add("getMessageCounts", 200)
async def _(stage: Stage) -> Changes:
    return ANYTIME


@SCENES.add("forgetBroker", 204)
async def _(stage: Stage) -> None:
    """With a broker that was read once, and is not there any more."""
    async with stage.queried.database.transaction() as connection:
        await connection.execute(insert(brokers).values(broker_name="broker-b"))


@SCENES.add("planExport", 200)
async def _(stage: Stage) -> Changes:
    return {"start": json.dumps({f"broker-a/{stage.flight.queue.queue_id}": 0})}


@SCENES.add("exportRecords", 200)
async def _(stage: Stage) -> Changes:
    return {"range": [f"broker-a/{stage.flight.queue.queue_id}:0-1"]}


@pytest.mark.parametrize(("label", "status"), SCENES.plays, ids=str)
async def test_an_example_is_answered_as_documented(stage: Stage, label: str, status: int) -> None:
    example = SCENES.examples[label]
    changes = await SCENES.plays[label, status](stage) or {}

    try:
        answer = await example.send(stage.queried.http, changes)
    finally:
        await stage.namesrv.delete("/v1/brokers/broker-b/0")
        await until_told(  # forgotten by exports, too
            lambda: stage.queried.http.get("/v1/exports/flights/plan"),
            lambda answer: answer.status_code != httpx.codes.SERVICE_UNAVAILABLE,
        )

    check_answer(DOCUMENT, example, answer, status)


async def test_rows_come_as_documented_in_the_other_form_too(stage: Stage) -> None:
    example = SCENES.examples["exportRecords"]
    media_type = "application/x-ndjson"
    documented = example.answers["200"]["content"][media_type]["example"]
    changes = await SCENES.plays["exportRecords", 200](stage) or {}

    stage.queried.http.headers["accept"] = media_type
    answer = await example.send(stage.queried.http, changes)
    del stage.queried.http.headers["accept"]

    assert answer.headers["content-type"] == media_type
    assert list(shape_differences(rows_of(documented), rows_of(answer.text))) == []


def rows_of(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_example_and_every_success_has_its_scene() -> None:
    SCENES.check_that_none_is_missing()
