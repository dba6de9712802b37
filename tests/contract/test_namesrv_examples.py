"""Every example of the name server's document, sent to a name server that knows the example."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.openapi_documents import kept_document
from support.openapi_examples import check_answer, examples_of
from support.services import client_of

pytestmark = pytest.mark.anyio

DOCUMENT: Final = kept_document("namesrv")
EXAMPLES: Final = {example.label: example for example in examples_of(DOCUMENT)}
PATHS: Final = {
    "/v1/brokers/broker-a/0": EXAMPLES["registerBroker"].body,
    "/v1/kv/ORDER_TOPIC_CONFIG/flights": EXAMPLES["putKv"].body,
}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a name server that knows the broker and the key of the examples."""
    settings = NamesrvSettings(kv_file=tmp_path / "kv.json", expected_brokers="broker-a")
    async with client_of(create_app(settings)) as client:
        for path, body in PATHS.items():
            answer = await client.put(path, json=body)
            assert answer.status_code == 200, answer.text
        yield client


@pytest.mark.parametrize("label", EXAMPLES)
async def test_an_example_is_answered_as_documented(client: httpx.AsyncClient, label: str) -> None:
    example = EXAMPLES[label]
    [status] = [int(status) for status in example.answers if status < "300"]

    answer = await example.send(client, {})

    check_answer(DOCUMENT, example, answer, status)
