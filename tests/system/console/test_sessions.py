"""Sessions in a closed cluster: each caller sees what its own key may see, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.rules import key_of, write_rules
from support.waiting import until_told

pytestmark = pytest.mark.anyio

ANN: Final = "user:ann"  # the operator
SHOP: Final = "user:shop"  # may see orders only
CLERK: Final = "user:clerk"  # refused once: only the first ten refusals of a minute are recorded
GONE: Final = "user:gone"  # whose key is revoked by a test
SERVICES: Final = "service:all"
RULES: Final = (
    {"allow": ["consume"], "on": ["topic:orders", "group:shop"], "to": [SHOP]},
    {"allow": ["consume"], "on": ["topic:orders"], "to": [CLERK]},
)
ROLES: Final = {"administrator": [ANN, SERVICES, GONE], "broker": [SERVICES]}
COOKIE: Final = re.compile(r"eruca-console-\d+=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict")


class Closed(NamedTuple):
    """A cluster with rules."""

    console: str
    rules: Path


@pytest.fixture(scope="module")
async def closed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Closed]:
    path = tmp_path_factory.mktemp("rules") / "rules.toml"
    rules = write_rules(path, *RULES, roles=ROLES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ERUCA_API_KEY", key_of(SERVICES))
        patch.setenv("ERUCA_AUTH_FILE", str(rules))
        settings = {**SMALL_STORE, "ERUCA_CONSOLE_SESSIONS_MAX": "4"}
        async with LocalCluster(consoles=1, settings=settings) as cluster:
            async with eruca.AsyncClient(cluster.namesrv_urls) as operator:
                for topic in ("orders", "salaries"):
                    await operator.admin.create_topic(topic, queue_count=1)
            [console] = cluster.console_urls
            yield Closed(console, rules)


@asynccontextmanager
async def browser(closed: Closed, *, host: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"accept": "text/html", **({"host": host} if host else {})}
    async with httpx.AsyncClient(
        base_url=closed.console, headers=headers, trust_env=False
    ) as client:
        yield client


async def token_of(client: httpx.AsyncClient, path: str = "/login") -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', (await client.get(path)).text)
    assert found is not None
    return found[1]


async def log_in(client: httpx.AsyncClient, key: str, target: str = "/topics") -> httpx.Response:
    form = {"csrf": await token_of(client), "key": key, "next": target}
    return await client.post("/login", data=form)


@pytest.mark.parametrize("path", ["/overview", "/topics", "/topics/orders", "/groups/shop"])
async def test_without_a_session_every_page_leads_to_the_log_in_and_back(
    closed: Closed, path: str
) -> None:
    async with browser(closed) as client:
        answer = await client.get(path)
        assert answer.status_code == httpx.codes.SEE_OTHER
        assert answer.headers["location"] == f"/login?next={path.replace('/', '%2F')}"

        logged_in = await log_in(client, key_of(ANN), path)
        assert (logged_in.status_code, logged_in.headers["location"]) == (303, path)
        assert COOKIE.fullmatch(logged_in.headers["set-cookie"])
        assert key_of(ANN) not in logged_in.headers["set-cookie"]


async def test_the_log_in_shows_no_page_that_needs_none(closed: Closed) -> None:
    """The frame of the log-in and of an error must not ask the cluster."""
    async with browser(closed) as client:
        assert (await client.get("/login")).status_code == httpx.codes.OK
        assert (await client.get("/no/such/page")).status_code == httpx.codes.NOT_FOUND
        stream = await client.get("/topics", headers={"accept": "text/event-stream"})
        assert stream.text == "event: ended\ndata: the session is over\n\n"
        part = await client.get("/topics", headers={"hx-request": "true"})
        assert part.headers["hx-redirect"].startswith("/login?")


@pytest.mark.parametrize(
    "key",
    ["", "nonsense", "two words", key_of("user:stranger")],
    ids=["none", "nonsense", "words", "stranger"],
)
async def test_a_wrong_key_is_refused_and_not_repeated(closed: Closed, key: str) -> None:
    async with browser(closed) as client:
        answer = await log_in(client, key)

        assert answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.UNPROCESSABLE_ENTITY)
        assert "This key is not accepted." in answer.text
        assert "set-cookie" not in answer.headers
        assert not key or key not in answer.text


async def test_each_caller_sees_what_its_own_key_may_see(closed: Closed) -> None:
    async with browser(closed) as ann, browser(closed) as shop:
        await log_in(ann, key_of(ANN))
        await log_in(shop, key_of(SHOP))
        for _ in range(2):  # an answer that the other has just got is none of ours
            assert "salaries" in (await ann.get("/topics")).text
            text = (await shop.get("/topics")).text
            assert "orders" in text
            assert "salaries" not in text
        assert (await ann.get("/topics/salaries")).status_code == httpx.codes.OK

        refused = await shop.get("/topics/salaries")
        assert refused.status_code == httpx.codes.FORBIDDEN
        assert "topic:salaries" in refused.text
        assert SHOP in refused.text
        assert "<dt>Missing right</dt>" in refused.text

        overview = (await shop.get("/overview")).text
        assert "grant query on cluster to user:shop" in overview
        assert f"<b>{SHOP}</b>" in overview


async def test_audit_records_are_for_those_who_may_read_them(closed: Closed) -> None:
    async with browser(closed) as ann, browser(closed) as shop:
        await log_in(ann, key_of(ANN))
        await log_in(shop, key_of(SHOP))
        assert (await shop.get("/topics/salaries")).status_code == httpx.codes.FORBIDDEN

        refused = await shop.get("/audit")
        assert refused.status_code == httpx.codes.FORBIDDEN
        assert "<dt>Missing right</dt>" in refused.text

        found = await until_told(
            lambda: ann.get("/audit", params={"event": "refusal", "principal": SHOP}),
            lambda answer: "salaries" in answer.text,
        )
        assert 'aria-current="true">refusal' in found.text
        file = await ann.get("/audit", params={"principal": SHOP, "format": "csv"})
        assert "topic:salaries" in file.text
        assert ANN not in file.text


async def test_everybody_may_ask_what_they_may_do(closed: Closed) -> None:
    async with browser(closed) as ann, browser(closed) as shop:
        await log_in(ann, key_of(ANN))
        await log_in(shop, key_of(SHOP))
        question = {"principal": SHOP, "right": "produce", "resource": "topic:orders"}
        for client in (ann, shop):
            text = (await client.get("/access", params=question)).text
            assert '<span class="badge warn">refused</span>' in text
            assert f"grant produce on topic:orders to {SHOP}" in text
        consume = {**question, "right": "consume"}
        text = (await shop.get("/access", params=consume)).text
        assert '<span class="badge good">allowed</span>' in text

        about_ann = {**question, "principal": ANN}
        text = (await shop.get("/access", params=about_ann)).text
        assert "grant administer on cluster to user:shop" in text
        assert '<span class="badge good">' not in text


async def test_an_act_is_the_callers_own(closed: Closed) -> None:
    form = {"body": "x", "tag": "by-hand"}
    async with browser(closed) as ann, browser(closed) as shop, browser(closed) as clerk:
        await log_in(ann, key_of(ANN))
        await log_in(shop, key_of(SHOP))
        await log_in(clerk, key_of(CLERK))
        for topic in ("salaries", "orders"):  # it may consume orders, and send nothing
            token = await token_of(shop, "/topics")
            answer = await shop.post(f"/topics/{topic}/send", data={"csrf": token, **form})
            assert answer.status_code == httpx.codes.FORBIDDEN
            assert f"grant produce on topic:{topic} to {SHOP}" in answer.text

        sent = await ann.post(
            "/topics/orders/send", data={"csrf": await token_of(ann, "/topics"), **form}
        )
        assert sent.status_code == httpx.codes.OK, sent.text
        # A switch needs the right to administer; there is no replica, so the broker refuses it.
        switch = {"to": "1", "typed": "broker-a"}
        for client, caller, status in ((clerk, CLERK, 403), (ann, ANN, 409)):
            token = await token_of(client, "/topics")
            answer = await client.post("/brokers/broker-a/switch", data={"csrf": token, **switch})
            assert answer.status_code == status, answer.text
            file = await until_told(
                lambda caller=caller: ann.get(  # type: ignore[misc]
                    "/audit", params={"principal": caller, "format": "csv"}
                ),
                lambda answer: "switchMaster" in answer.text,
            )
            assert file.status_code == httpx.codes.OK


async def test_settings_are_changed_with_the_callers_own_rights_and_recorded(
    closed: Closed,
) -> None:
    topic = {"topic": "orders", "write_queue_count": "2", "read_queue_count": "2"}
    group = {"group": "shop", "retries_max": "20"}
    async with browser(closed) as ann, browser(closed) as shop:
        await log_in(ann, key_of(ANN))
        await log_in(shop, key_of(SHOP))
        for path, form in (("/topic-settings", topic), ("/group-settings", group)):
            token = await token_of(shop, "/topics")
            answer = await shop.post(path, data={"csrf": token, **form})
            assert "administer" in answer.text
            assert '<span class="badge good">set</span>' not in answer.text
            assert (await shop.post(path, data=form)).status_code == httpx.codes.FORBIDDEN

            done = await ann.post(path, data={"csrf": await token_of(ann, "/topics"), **form})
            assert '<span class="badge good">set</span>' in done.text, done.text

        for name in ("putTopic", "putGroup"):
            file = await until_told(
                lambda: ann.get("/audit", params={"principal": ANN, "format": "csv"}),
                lambda answer, name=name: name in answer.text,  # type: ignore[misc]
            )
            assert file.status_code == httpx.codes.OK


async def test_a_form_needs_the_token_of_its_session(closed: Closed) -> None:
    async with browser(closed) as ann, browser(closed) as other:
        await log_in(ann, key_of(ANN))
        await log_in(other, key_of(SHOP))
        foreign = await token_of(other, "/topics")

        refused = await ann.post("/logout", data={"csrf": foreign})
        assert refused.status_code == httpx.codes.FORBIDDEN
        assert (await ann.get("/topics")).status_code == httpx.codes.OK
        cross = await ann.post(
            "/logout",
            data={"csrf": await token_of(ann, "/topics")},
            headers={"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        )
        assert cross.status_code == httpx.codes.FORBIDDEN


async def test_after_the_log_out_the_session_is_over(closed: Closed) -> None:
    async with browser(closed) as ann:
        answer = await log_in(ann, key_of(ANN))
        cookie = answer.headers["set-cookie"].partition(";")[0]
        out = await ann.post("/logout", data={"csrf": await token_of(ann, "/topics")})
        assert "Max-Age=0" in out.headers["set-cookie"]

    async with browser(closed) as again:  # somebody has kept the cookie
        answer = await again.get("/topics", headers={"cookie": cookie})
        assert answer.status_code == httpx.codes.SEE_OTHER


async def test_a_revoked_key_ends_its_session(closed: Closed) -> None:
    async with browser(closed) as gone:
        await log_in(gone, key_of(GONE))
        assert (await gone.get("/topics")).status_code == httpx.codes.OK

        write_rules(closed.rules, *RULES, roles={**ROLES, "administrator": [ANN, SERVICES]})

        await until_told(lambda: gone.get("/topics"), lambda answer: answer.status_code == 303)
        write_rules(closed.rules, *RULES, roles=ROLES)
        again = await gone.get("/topics")
        assert again.status_code == httpx.codes.SEE_OTHER, "an ended session never comes back"


async def test_beyond_the_number_of_sessions_the_one_idle_longest_ends(closed: Closed) -> None:
    async with browser(closed) as first:
        await log_in(first, key_of(ANN))
        for _ in range(4):
            async with browser(closed) as another:
                await log_in(another, key_of(SHOP))

        assert (await first.get("/topics")).status_code == httpx.codes.SEE_OTHER


async def test_a_key_is_not_taken_over_plain_http_from_another_machine(closed: Closed) -> None:
    async with browser(closed, host="10.1.2.3:10941") as client:
        page = await client.get("/login")
        assert "Nobody can log in here." in page.text
        assert 'name="key"' not in page.text
        token = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert token is not None
        answer = await client.post("/login", data={"csrf": token[1], "key": key_of(ANN)})
        assert answer.status_code == httpx.codes.FORBIDDEN
        assert "set-cookie" not in answer.headers
