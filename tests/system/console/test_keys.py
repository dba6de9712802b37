"""Rules and keys at a controller: by version, with authors; a new key is shown once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from typing import Final

import httpx
import pytest

from support.controlled_consoles import (
    ANN,
    Controlled,
    browsing_as,
    controlled_console,
    field,
    log_in,
)
from support.waiting import until_told

pytestmark = pytest.mark.anyio

KEY: Final = re.compile(r"eruca_[a-z0-9]+_[\w-]{43}")


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    with controlled_console(tmp_path_factory.mktemp("controlled")) as controlled:
        yield controlled


@pytest.fixture
async def ann(controlled: Controlled) -> AsyncIterator[httpx.AsyncClient]:
    async with browsing_as(controlled, controlled.administrator_key) as client:
        yield client


async def act(client: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    page = await client.get(path)
    form = {"csrf": field(page, "csrf"), "version": field(page, "version"), **fields}
    return await client.post("/keys", data=form)


async def made(client: httpx.AsyncClient, principal: str) -> str:
    done = await act(client, "/keys", step="new", principal=principal, days="30")
    assert done.status_code == httpx.codes.OK, done.text
    assert done.headers["cache-control"] == "no-store"
    found = KEY.search(done.text)
    assert found is not None
    return found[0]


async def may_log_in(controlled: Controlled, key: str) -> bool:
    async with httpx.AsyncClient(base_url=controlled.console, trust_env=False) as client:
        return (await log_in(client, key)).status_code == httpx.codes.SEE_OTHER


async def test_a_new_key_is_shown_once_and_is_valid(
    controlled: Controlled, ann: httpx.AsyncClient
) -> None:
    key = await made(ann, "user:checkout")

    listed = await ann.get("/keys?q=checkout")
    assert key.split("_")[1] in listed.text
    assert key not in listed.text
    assert KEY.search((await ann.get("/rules")).text) is None
    await until_told(lambda: may_log_in(controlled, key))
    file = await ann.get("/keys?format=csv")
    assert "user:checkout" in file.text
    assert KEY.search(file.text) is None


async def test_a_form_that_is_sent_twice_makes_no_second_key(ann: httpx.AsyncClient) -> None:
    page = await ann.get("/keys")
    form = {name: field(page, name) for name in ("csrf", "version")}
    form |= {"step": "new", "principal": "user:twice"}

    first = await ann.post("/keys", data=form)
    second = await ann.post("/keys", data=form)

    assert first.status_code == httpx.codes.OK
    assert second.status_code == httpx.codes.CONFLICT
    assert "nothing was done" in second.text
    listed = await ann.get("/keys?q=twice&format=csv")
    assert listed.text.count("user:twice") == 1


async def test_a_rotated_key_has_a_successor_and_an_end(
    controlled: Controlled, ann: httpx.AsyncClient
) -> None:
    old = await made(ann, "user:rotated")

    key_id = old.split("_")[1]
    done = await act(ann, f"/keys?act=rotate&key={key_id}", step="rotate", key=key_id)

    assert done.status_code == httpx.codes.OK, done.text
    found = KEY.search(done.text)
    assert found is not None
    for key in (old, found[0]):
        await until_told(lambda key=key: may_log_in(controlled, key))  # type: ignore[misc]
    lines = (await ann.get("/keys?q=rotated&format=csv")).text.splitlines()[1:]
    rows = [line.split(",") for line in lines]
    assert {row[0]: bool(row[3]) for row in rows} == {key_id: True, found[0].split("_")[1]: False}


async def test_a_revoked_key_is_refused_once_its_id_was_typed(
    controlled: Controlled, ann: httpx.AsyncClient
) -> None:
    key = await made(ann, "user:leaver")
    key_id = key.split("_")[1]
    await until_told(lambda: may_log_in(controlled, key))
    path = f"/keys?act=revoke&key={key_id}"

    refused = await act(ann, path, step="revoke", key=key_id, typed="another")
    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    done = await act(ann, path, step="revoke", key=key_id, typed=key_id)

    assert done.status_code == httpx.codes.OK, done.text
    await until_told(lambda: may_log_in(controlled, key), lambda may: not may)


async def test_a_page_in_chinese_has_no_english_words_of_ours(ann: httpx.AsyncClient) -> None:
    ann.headers["accept-language"] = "zh"
    page = await ann.get("/rules?number=1")

    assert '<span class="badge good">允许</span>' in page.text
    assert ">allowed<" not in page.text
    assert ">refused<" not in page.text
    assert "永不过期" in (await ann.get("/keys")).text


async def test_the_history_says_who_changed_what_and_why(ann: httpx.AsyncClient) -> None:
    key = await made(ann, "user:noted")

    page = await ann.get("/rules")

    assert page.status_code == httpx.codes.OK
    assert f"key {key.split('_')[1]} of user:noted" in page.text
    assert ANN in page.text
    assert re.search(r"What version \d+ changed", page.text)
    assert '<span class="badge good">valid</span>' in page.text
    first = await ann.get("/rules?number=1")
    assert "What version 1 changed" in first.text
    file = await ann.get("/rules?format=csv")
    assert file.text.startswith("number,version,changed_at,by,reason,rules,keys")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"step": "new", "principal": "nobody"}, "principal"),
        ({"step": "new", "principal": "user:x", "days": "0"}, "days"),
        ({"step": "new", "principal": "user:x", "days": "forever"}, "days"),
        ({"step": "new", "principal": "user:x", "days": "00000199999999"}, "days"),
        ({"step": "melt"}, "step"),
        ({"step": "revoke", "key": "none", "typed": "none"}, "no key none"),
    ],
)
async def test_what_is_invalid_is_named_and_changes_nothing(
    ann: httpx.AsyncClient, fields: dict[str, str], named: str
) -> None:
    before = field(await ann.get("/keys"), "version")

    refused = await act(ann, "/keys", **fields)

    assert refused.status_code in (httpx.codes.UNPROCESSABLE_ENTITY, httpx.codes.NOT_FOUND)
    assert named in refused.text
    assert "sha256" not in refused.text
    assert field(await ann.get("/keys"), "version") == before


async def test_somebody_without_the_right_changes_no_key(
    controlled: Controlled, ann: httpx.AsyncClient
) -> None:
    key = await made(ann, "user:guest")

    async def sees_a_page() -> bool:  # the console knows the key, and the controller's gate, too
        async with browsing_as(controlled, key) as guest:
            return (await guest.get("/rules")).status_code == httpx.codes.OK

    await until_told(sees_a_page)
    version = field(await ann.get("/keys"), "version")
    async with httpx.AsyncClient(
        base_url=controlled.console, headers={"accept": "text/html"}, trust_env=False
    ) as guest:
        await log_in(guest, key)
        for path in ("/keys", "/rules"):
            page = await guest.get(path)
            assert "grant query on cluster to user:guest" in page.text
            assert "You may not see this." in page.text
        token = field(await guest.get("/topic-settings"), "csrf")
        form = {"csrf": token, "version": version, "step": "new", "principal": "user:guest"}
        refused = await guest.post("/keys", data=form)
        assert refused.status_code == httpx.codes.FORBIDDEN
    assert field(await ann.get("/keys"), "version") == version
