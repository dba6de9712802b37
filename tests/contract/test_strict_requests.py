"""A value of another type than the contract's is refused, not taken for what it might have meant.

Of each example of a body, every number, flag and text is sent once as something else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from pydantic import BaseModel

from eruca.contract.fields import Request
from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support import brokers
from support.openapi_documents import kept_document
from support.openapi_examples import Example, examples_of
from support.services import client_of

pytestmark = pytest.mark.anyio

ANY_JSON: Final = "json"  # the member of a message's body that takes any value
EXAMPLES: Final = {
    f"{service} {example.label}": (service, example)
    for service in ("broker", "namesrv")
    for example in examples_of(kept_document(service))
    if example.body is not None and example.body_type == "application/json"
}


@asynccontextmanager
async def opened(service: str, directory: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of the service, whose base URL has no path."""
    if service == "namesrv":
        async with client_of(create_app(NamesrvSettings(kv_file=directory / "kv.json"))) as client:
            yield client
        return
    async with brokers.open_broker(directory) as app, brokers.client_of(app) as client:
        (await client.put("/topics/flights", json={})).raise_for_status()
        client.base_url = client.base_url.copy_with(path="/")
        yield client


@pytest.mark.parametrize("label", EXAMPLES)
async def test_each_value_is_taken_in_its_own_type_only(tmp_path: Path, label: str) -> None:
    service, example = EXAMPLES[label]
    async with opened(service, tmp_path) as client:
        for pointer, wrong in misspelt(example.body):
            answer = await sent(client, example, wrong)

            assert answer.status_code == 422, (pointer, answer.text)
            problem = answer.json()
            assert problem["errors"][0]["pointer"].startswith("/body"), (pointer, problem)
            assert problem["fix"], pointer


async def sent(client: httpx.AsyncClient, example: Example, body: object) -> httpx.Response:
    path = example.path
    for name, value in example.path_values.items():
        path = path.replace(f"{{{name}}}", str(value))
    return await client.request(example.method, path, params=dict(example.query), json=body)


def misspelt(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Return *value* with one of its scalars in another type, for each of them."""
    match value:
        case dict():
            for name, member in value.items():
                if name != ANY_JSON:
                    for pointer, wrong in misspelt(member, f"{at}/{name}"):
                        yield pointer, {**value, name: wrong}
        case list():
            for index, item in enumerate(value):
                for pointer, wrong in misspelt(item, f"{at}/{index}"):
                    yield pointer, [*value[:index], wrong, *value[index + 1 :]]
        case bool():
            yield at, str(value).lower()
            yield at, int(value)
        case int() | float():
            yield at, str(value)
            yield at, True
        case str():
            yield at, 7
            yield at, True


def test_every_request_is_strict_and_so_is_what_is_in_it() -> None:
    kinds = [*_subclasses(Request)]
    assert kinds

    assert [kind.__name__ for kind in kinds if not kind.model_config.get("strict")] == []


def _subclasses(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for child in model.__subclasses__():
        yield child
        yield from _subclasses(child)
