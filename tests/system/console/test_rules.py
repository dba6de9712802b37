"""Rules at a controller: changed by a form, compared, and brought back from an earlier version."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Iterator
from typing import Final

import httpx
import pytest

from support.accessibility import violations
from support.browser import browsing, chromium
from support.controlled_consoles import (
    Controlled,
    act,
    browsing_as,
    changed,
    controlled_console,
    field,
    previewed,
)
from support.waiting import until_told

pytestmark = pytest.mark.anyio

OK: Final = httpx.codes.OK
PROGRAM: Final = chromium()
SHOP: Final = {"kind": "rule", "effect": "grant", "produce": "yes", "to": "user:shop"}


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    with controlled_console(tmp_path_factory.mktemp("controlled")) as controlled:
        yield controlled


@pytest.fixture
async def ann(controlled: Controlled) -> AsyncIterator[httpx.AsyncClient]:
    async with browsing_as(controlled, controlled.administrator_key) as client:
        yield client


async def version(client: httpx.AsyncClient) -> str:
    return field(await client.get("/rules/change?kind=role"), "version")


async def lines(client: httpx.AsyncClient, query: str) -> list[str]:
    file = await client.get(f"/rules/now?{query}&format=csv")
    assert file.status_code == OK, file.text
    return file.text.splitlines()[1:]


def link(page: httpx.Response, text: str, word: str) -> str:
    """Return the address of the link that changes or removes the entry with *text*."""
    found = re.search(rf'href="([^"]+)" aria-label="{word}: [^"]*{re.escape(text)}', page.text)
    assert found is not None, page.text
    return html.unescape(found[1])


async def test_a_rule_is_previewed_made_changed_and_removed(ann: httpx.AsyncClient) -> None:
    shown = await previewed(ann, **SHOP, on="topic:made")
    assert "user:shop" in shown.text
    assert "produce topic:made" in shown.text
    assert "To confirm, type" not in shown.text  # nobody loses anything
    assert await lines(ann, "q=topic:made") == []

    done = await changed(ann, **SHOP, on="topic:made")
    assert done.status_code == OK, done.text
    assert "Services apply it within two seconds." in done.text
    [line] = await lines(ann, "q=topic:made")
    assert line.endswith("grant produce on topic:made to user:shop")

    page = await ann.get("/rules/now?holder=user:shop")
    form = await ann.get(link(page, "topic:made", "Change"))
    assert re.search(r'name="produce" value="yes" checked', form.text)
    assert "Nothing is changed yet." in form.text
    assert "Not possible." not in form.text
    place, seen = field(form, "entry"), field(form, "version")
    wish = {**SHOP, "entry": place, "version": seen, "on": "topic:made", "query": "yes"}
    assert (await changed(ann, **wish)).status_code == OK
    [line] = await lines(ann, "q=topic:made")
    assert "produce, query" in line

    page = await ann.get("/rules/now?holder=user:shop")
    shown = await ann.get(link(page, "topic:made", "Remove"))
    assert "These lose something: user:shop." in shown.text
    assert "To confirm, type: 2" in shown.text
    removal = {"kind": "rule", "entry": place, "version": field(shown, "version"), "remove": "yes"}
    refused = await changed(ann, "3", **removal)
    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert "nothing was done" in refused.text
    assert (await changed(ann, "2", **removal)).status_code == OK
    assert await lines(ann, "q=topic:made") == []


@pytest.mark.parametrize(
    ("wish", "field_name", "fault"),
    [
        ({"kind": "rule", "on": "topic:a", "to": "user:x", "query": "yes"}, "effect", "grant or"),
        ({**SHOP, "on": "table:a"}, "on", "unknown kind of resource"),
        ({**SHOP, "on": ""}, "on", "at least 1 item"),
        ({**SHOP, "on": "topic:a", "to": "shop"}, "to", "expected user:NAME"),
        ({**SHOP, "on": "topic:a", "from": "10.0.0.0/99"}, "from", "not appear to be"),
        ({**SHOP, "on": "topic:a", "until": "soon"}, "until", "expected a time"),
        ({**SHOP, "on": "topic:a", "produce": ""}, "rights", "at least one right"),
        ({"kind": "role", "name": "a b", "members": "user:x"}, "name", "match pattern"),
        ({"kind": "role", "name": "ab", "members": "x"}, "members", "expected user:NAME"),
        ({"kind": "role", "name": "administrator", "members": ""}, "name", "exists already"),
        ({"kind": "quota", "to": "user:x"}, "to", "one limit at least"),
        ({"kind": "quota", "to": "user:x", "connections_max": "0"}, "connections_max", "greater"),
        ({"kind": "namespace", "name": "team", "to": "user:x"}, "name", "such as team-"),
    ],
)
async def test_a_fault_is_named_at_its_field(
    ann: httpx.AsyncClient, wish: dict[str, str], field_name: str, fault: str
) -> None:
    before = await version(ann)
    page = await previewed(ann, **wish)

    assert re.search(rf'id="{field_name}-fault">[^<]*{fault}', page.text), page.text
    assert act(page) == ""
    form = {**wish, "version": before, "reason": "none", "csrf": field(page, "csrf")}
    refused = await ann.post("/rules/change", data=form)
    assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
    assert f"{field_name}: " in refused.text
    assert await version(ann) == before


async def test_roles_quotas_and_namespaces_are_entries_too(ann: httpx.AsyncClient) -> None:
    made = [
        {"kind": "role", "name": "packers", "members": "user:bob\nuser:eve"},
        {"kind": "quota", "to": "role:packers", "connections_max": "5"},
        {"kind": "namespace", "name": "pack-", "to": "role:packers"},
    ]
    for wish in made:
        typed = "0"
        page = await previewed(ann, **wish)
        if found := re.search(r"To confirm, type: (\d+)", page.text):
            typed = found[1]
        assert (await changed(ann, typed, **wish)).status_code == OK

    listed = await lines(ann, "holder=user:bob")

    assert [line.partition(",")[0] for line in listed] == ["role", "quota", "namespace"]
    overlapping = await previewed(ann, kind="namespace", name="pack-a-", to="user:x")
    assert re.search(r'id="name-fault">[^<]*overlap', overlapping.text)


async def test_a_change_of_rules_that_are_not_the_shown_ones_is_refused(
    ann: httpx.AsyncClient,
) -> None:
    page = await previewed(ann, **SHOP, on="topic:first")
    seen = field(page, "version")
    assert (await changed(ann, **SHOP, on="topic:second")).status_code == OK

    form = {**SHOP, "on": "topic:first", "version": seen, "reason": "late"}
    late = await ann.post("/rules/change", data={**form, "csrf": field(page, "csrf")})
    stale = await ann.get(f"/rules/change?kind=rule&entry=0&version={seen}")

    assert late.status_code == stale.status_code == httpx.codes.CONFLICT
    assert await lines(ann, "q=topic:first") == []


async def test_two_versions_are_compared_and_one_comes_back(ann: httpx.AsyncClient) -> None:
    before = (await version(ann)).partition("-")[0]
    assert (await changed(ann, **SHOP, on="topic:brief")).status_code == OK
    after = (await version(ann)).partition("-")[0]

    compared = await ann.get(f"/rules/compare?from={before}&to={after}")
    assert '<tr class="came">' in compared.text
    assert "grant produce on topic:brief to user:shop" in compared.text
    assert "produce topic:brief" in compared.text
    file = await ann.get(f"/rules/compare?from={after}&to={before}&format=csv")
    assert file.text.splitlines()[1:] == ["'-,grant produce on topic:brief to user:shop"]
    none = await ann.get(f"/rules/compare?from={after}")
    assert "Both versions have the same lines." in none.text

    shown = await ann.get(f"/rules/change?restore={before}")
    assert "To confirm, type: 1" in shown.text
    assert (await changed(ann, "1", restore=before)).status_code == OK
    assert await lines(ann, "q=topic:brief") == []
    assert "it is tested" in (await ann.get("/rules")).text


@pytest.mark.skipif(
    PROGRAM is None, reason="there is no Chromium here: apt-get install chromium-headless-shell"
)
async def test_the_pages_are_accessible(controlled: Controlled, ann: httpx.AsyncClient) -> None:
    assert PROGRAM is not None
    assert (await changed(ann, **SHOP, on="topic:seen")).status_code == OK
    now = await ann.get("/rules/now?q=topic:seen")
    async with browsing(PROGRAM) as browser:
        page = await browser.new_page()
        for name, value in ann.cookies.items():
            cookie = {"name": name, "value": value, "url": controlled.console}
            await page.command("Network.setCookie", **cookie)
        for path in (
            "/rules",
            "/rules/now",
            link(now, "topic:seen", "Change"),
            link(now, "topic:seen", "Remove"),
            "/rules/change?kind=rule&on=table:x&step=preview",
            "/rules/change?restore=1",
            "/rules/compare?from=1",
        ):
            await page.open(controlled.console + path)
            assert (path, await violations(page)) == (path, [])


async def test_nobody_locks_himself_out(ann: httpx.AsyncClient) -> None:
    seen = await version(ann)
    wish = {"kind": "role", "entry": "administrator", "version": seen, "remove": "yes"}

    shown = await previewed(ann, **wish)

    assert "You could not change the rules any more." in shown.text
    assert act(shown) == ""


@pytest.mark.parametrize(
    "path",
    [
        "/rules/change",
        "/rules/change?kind=key",
        "/rules/change?kind=rule&restore=1",
        "/rules/change?kind=rule&entry=0",
        "/rules/change?restore=x",
        "/rules/change?kind=rule&colour=red",
        "/rules/compare?from=0",
        "/rules/compare?from=1e3",
        "/rules/now?sort=size",
    ],
)
async def test_an_address_that_says_nothing_is_refused(ann: httpx.AsyncClient, path: str) -> None:
    assert (await ann.get(path)).status_code == httpx.codes.UNPROCESSABLE_ENTITY


async def test_without_a_version_of_this_number_the_page_says_so(ann: httpx.AsyncClient) -> None:
    compared = await ann.get("/rules/compare?from=99999")
    assert "the policy has no version 99999" in compared.text
    assert (await ann.get("/rules/change?restore=99999")).status_code == httpx.codes.NOT_FOUND


async def test_somebody_without_the_right_sees_it_named_and_changes_nothing(
    controlled: Controlled, ann: httpx.AsyncClient
) -> None:
    page = await ann.get("/keys")
    form = {name: field(page, name) for name in ("csrf", "version")}
    made = await ann.post("/keys", data={**form, "step": "new", "principal": "user:reader"})
    key = re.search(r"eruca_[a-z0-9]+_[\w-]{43}", made.text)
    assert key is not None
    reading = {"kind": "rule", "effect": "grant", "query": "yes"}
    assert (await changed(ann, **reading, on="cluster", to="user:reader")).status_code == OK
    before = await version(ann)

    async def may_read() -> bool:
        async with browsing_as(controlled, key[0]) as reader:
            return (await reader.get("/rules/now?format=csv")).status_code == OK

    await until_told(may_read)
    async with browsing_as(controlled, key[0]) as reader:
        shown = await previewed(reader, **SHOP, on="topic:theirs")
        assert "grant administer on cluster to user:reader" in shown.text
        assert act(shown) == ""
        token = field(shown, "csrf")
        form = {**SHOP, "on": "topic:theirs", "version": before, "reason": "mine", "csrf": token}
        refused = await reader.post("/rules/change", data=form)
        assert refused.status_code == httpx.codes.FORBIDDEN
    assert await version(ann) == before
