"""The log-in at an issuer: the code flow with PKCE, against a real small one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from support.code_issuers import CLIENT_ID, CodeIssuer, code_issuing
from support.forked import started_by_fork
from support.rules import write_rules
from support.waiting import until_told, wait_until

pytestmark = pytest.mark.anyio

ANN: Final = "oidc:corp/ann"
OWNER: Final = "user:owner"


class Console(NamedTuple):
    """A console that logs people in at an issuer."""

    url: str
    issuer: CodeIssuer


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    directory: Path = tmp_path_factory.mktemp("issuer")
    with code_issuing() as issuer:
        rules = write_rules(
            directory / "rules.toml", roles={"administrator": [OWNER, ANN]}, more=issuer.lines()
        )
        settings = {
            "ERUCA_AUTH_FILE": str(rules),
            "ERUCA_CONSOLE_PORT": "0",
            "ERUCA_CONSOLE_NAMESRV_URLS": "http://127.0.0.1:1",
            "ERUCA_CONSOLE_OIDC_ISSUER": issuer.url,
            "ERUCA_CONSOLE_OIDC_CLIENT_ID": CLIENT_ID,
        }
        with started_by_fork("eruca_console", settings) as process:
            process.wait_until_listening()
            wait_until(lambda: issuer.jwks_count)
            yield Console(process.url, issuer)


@pytest.fixture(autouse=True)
def _honest(console: Console) -> Iterator[None]:
    yield
    console.issuer.refuses, console.issuer.life_seconds = False, 300
    console.issuer.subject, console.issuer.changes = "ann", {}


@asynccontextmanager
async def browser(console: Console) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(
        base_url=console.url, headers={"accept": "text/html"}, trust_env=False
    ) as client:
        yield client


async def led_back(client: httpx.AsyncClient, target: str = "/topic-settings") -> str:
    """Return the URL at which the issuer sends the browser back."""
    begun = await client.get("/login/issuer", params={"next": target})
    assert begun.status_code == httpx.codes.SEE_OTHER, begun.text
    assert "SameSite=Lax" in begun.headers["set-cookie"]
    there = await client.get(begun.headers["location"])
    assert there.status_code == httpx.codes.FOUND
    return there.headers["location"]


async def log_in(client: httpx.AsyncClient) -> httpx.Response:
    return await client.get(await led_back(client))


async def is_in(client: httpx.AsyncClient) -> bool:
    answer = await client.get("/topics?sort=nothing")  # refused before the cluster is asked
    return answer.status_code != httpx.codes.SEE_OTHER


async def test_a_person_logs_in_and_out(console: Console) -> None:
    async with browser(console) as client:
        assert "Log in with your organisation" in (await client.get("/login")).text

        done = await log_in(client)

        assert done.status_code == httpx.codes.OK, done.text
        assert 'content="0;url=/topic-settings"' in done.text
        assert any(
            re.match(r"eruca-console-\d+=[\w-]{43}; Path=/; HttpOnly; SameSite=Strict", one)
            for one in done.headers.get_list("set-cookie")
        )
        assert not any("eyJ" in one for one in done.headers.get_list("set-cookie"))
        page = await client.get("/topics?sort=nothing")
        assert f"<b>{ANN}</b>" in page.text
        token = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert token is not None
        await client.post("/logout", data={"csrf": token[1]})
        assert not await is_in(client)
        assert "/logout?client_id=console" in (await client.get("/login")).text


async def test_an_answer_is_taken_once_and_by_the_browser_that_asked(console: Console) -> None:
    async with browser(console) as client, browser(console) as thief:
        back = await led_back(client)

        stolen = await thief.get(back)
        assert stolen.status_code == httpx.codes.UNAUTHORIZED
        assert not await is_in(thief)

        assert (await client.get(back)).status_code == httpx.codes.OK
        again = await client.get(back)
        assert again.status_code == httpx.codes.UNAUTHORIZED
        assert "not begun in this browser" in again.text


async def test_a_code_of_another_log_in_is_refused_by_its_challenge(console: Console) -> None:
    async with browser(console) as client, browser(console) as other:
        of_other = parse_qs(urlsplit(await led_back(other)).query)["code"][0]
        back = await led_back(client)
        own = parse_qs(urlsplit(back).query)["code"][0]

        refused = await client.get(back.replace(own, of_other))

        assert refused.status_code == httpx.codes.UNAUTHORIZED
        assert "invalid_grant" in refused.text
        assert not await is_in(client)


@pytest.mark.parametrize(
    "changes", [{"nonce": "another"}, {"aud": "another"}, {"iss": "http://x"}, {"exp": 1}]
)
async def test_an_id_token_of_another_log_in_is_refused(
    console: Console, changes: dict[str, object]
) -> None:
    console.issuer.changes = changes
    async with browser(console) as client:
        refused = await log_in(client)

        assert refused.status_code == httpx.codes.UNAUTHORIZED
        assert "not of this log-in" in refused.text
        assert "eyJ" not in refused.text
        assert not await is_in(client)


async def test_a_refusal_of_the_issuer_is_told(console: Console) -> None:
    console.issuer.refuses = True
    async with browser(console) as client:
        refused = await log_in(client)

        assert refused.status_code == httpx.codes.UNAUTHORIZED
        assert "access_denied" in refused.text


async def test_a_token_is_renewed_while_the_session_lasts(console: Console) -> None:
    console.issuer.life_seconds = 2
    async with browser(console) as client:
        renewals = console.issuer.fetches.count("/realms/eruca/token")
        await log_in(client)

        await until_told(
            lambda: is_in(client),
            lambda _: console.issuer.fetches.count("/realms/eruca/token") >= renewals + 4,
        )

        assert await is_in(client)


async def test_a_session_never_becomes_another_persons(console: Console) -> None:
    console.issuer.life_seconds = 2
    async with browser(console) as client:
        await log_in(client)

        console.issuer.subject = "bob"

        await until_told(lambda: is_in(client), lambda found: not found)
