"""Every example of the controller's document, sent to a controller with rules by an administrator.

It knows the group and a policy, if the example needs them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca_controller.app import create_app
from eruca_controller.settings import ControllerSettings
from support.openapi_documents import kept_document
from support.openapi_examples import Changes, Scenes, check_answer
from support.policies import ANN
from support.rules import bearer, write_rules
from support.services import client_of

pytestmark = pytest.mark.anyio

DOCUMENT: Final = kept_document("controller")
SCENES: Final = Scenes[httpx.AsyncClient](DOCUMENT)
PATH: Final = "/v1/broker-groups/broker-a"
ROW: Final[dict[str, Any]] = SCENES.examples["putBrokerGroup"].body
CREATE: Final = {"if-none-match": "*"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Yield an administrator's client of a controller without any group or policy."""
    first = write_rules(tmp_path / "first.toml", roles={"administrator": [ANN]})
    settings = ControllerSettings.model_validate(
        {
            "store": "file",
            "file": tmp_path / "groups.json",
            "ERUCA_AUTH_FILE": str(first),
        }
    )
    async with client_of(create_app(settings)) as client:
        client.headers.update(bearer(ANN))
        yield client


async def created(client: httpx.AsyncClient) -> str:
    answer = await client.put(PATH, json=ROW, headers=CREATE)
    assert answer.status_code == 201, answer.text
    return answer.headers["etag"]


async def stored(client: httpx.AsyncClient, *, above: int = 0) -> str:
    """Store the example's policy with a number greater than *above*; return its tag."""
    policy = SCENES.examples["putPolicy"].body
    answer = await client.put(f"/v1/policy?above={above}", json=policy, headers=CREATE)
    assert answer.status_code == 201, answer.text
    return answer.headers["etag"]


@SCENES.add("health", 200)
@SCENES.add("readiness", 200)
@SCENES.add("metrics", 200)
@SCENES.add("describeProblem", 200)
@SCENES.add("explainAccess", 200)
@SCENES.add("getAccess", 200)
@SCENES.add("getStatus", 200)
@SCENES.add("previewPolicy", 200)
async def _(_client: httpx.AsyncClient) -> None:
    pass


@SCENES.add("listBrokerGroups", 200)
@SCENES.add("getBrokerGroup", 200)
@SCENES.add("getBrokerGroupHistory", 200)
async def _(client: httpx.AsyncClient) -> None:
    await created(client)


@SCENES.add("putBrokerGroup", 201)
async def _(client: httpx.AsyncClient) -> Changes:
    client.headers.update(CREATE)
    return {"if-match": None}


@SCENES.add("putBrokerGroup", 200)
@SCENES.add("deleteBrokerGroup", 204)
async def _(client: httpx.AsyncClient) -> Changes:
    return {"if-match": await created(client)}


@SCENES.add("getPolicy", 200)
@SCENES.add("getPolicyHistory", 200)
async def _(client: httpx.AsyncClient) -> None:
    await stored(client)


@SCENES.add("getPolicyVersion", 200)
async def _(client: httpx.AsyncClient) -> None:
    await stored(client, above=11)


@SCENES.add("putPolicy", 201)
async def _(client: httpx.AsyncClient) -> Changes:
    client.headers.update(CREATE)
    return {"if-match": None}


@SCENES.add("putPolicy", 200)
async def _(client: httpx.AsyncClient) -> Changes:
    return {"if-match": await stored(client)}


@pytest.mark.parametrize(("label", "status"), SCENES.plays)
async def test_an_example_is_answered_as_documented(
    client: httpx.AsyncClient, label: str, status: int
) -> None:
    example = SCENES.examples[label]
    changes = await SCENES.plays[label, status](client) or {}

    answer = await example.send(client, changes)

    check_answer(DOCUMENT, example, answer, status)


def test_no_example_is_left_out() -> None:
    SCENES.check_that_none_is_missing()
