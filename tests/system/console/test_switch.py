"""The switch of a broker's master through a page, over a group of two replicas."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

import eruca
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.waiting import until_told

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    settings = {**SMALL_STORE, "ERUCA_CONTROLLER_STORE": "file"}
    async with LocalCluster(replicas=2, consoles=1, settings=settings) as cluster:
        yield cluster


async def test_a_master_is_switched_after_its_name_was_typed(cluster: LocalCluster) -> None:
    [url] = cluster.console_urls
    async with (
        httpx.AsyncClient(
            base_url=url, headers={"accept": "text/html"}, timeout=60, trust_env=False
        ) as http,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):

        async def page(path: str) -> str:
            answer = await http.get(path)
            assert answer.status_code == httpx.codes.OK, answer.text
            return answer.text

        async def master() -> int | None:
            [group] = await client.admin.brokers()
            return next((one.replica_id for one in group.brokers if one.role == "master"), None)

        preview = await until_told(
            lambda: page("/brokers/broker-a/switch"), lambda text: 'name="to"' in text
        )
        before = await master()
        [to] = re.findall(r"<option>(\d+)</option>", preview)
        assert int(to) != before
        token = re.search(r'name="csrf" value="([^"]+)"', preview)
        assert token is not None
        form = {"csrf": token[1], "to": to}

        refused = await http.post("/brokers/broker-a/switch", data={**form, "typed": "broker"})
        assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        wrong = {**form, "to": "9", "typed": "broker-a"}
        refused = await http.post("/brokers/broker-a/switch", data=wrong)
        assert refused.status_code == httpx.codes.CONFLICT, refused.text
        assert await master() == before

        done = await http.post("/brokers/broker-a/switch", data={**form, "typed": "broker-a"})
        assert done.status_code == httpx.codes.OK, done.text
        assert f"Replica {to} is the master of epoch" in done.text
        assert await until_told(master, lambda found: found == int(to))

        broker = await until_told(
            lambda: page("/brokers/broker-a"), lambda text: f"<dt>Master</dt><dd>{to}</dd>" in text
        )
        masters = re.findall(r'<td class="number">(\d+)</td>\s*<td>[\d, ]+</td>', broker)
        assert masters[0] == to, "the history has the newest change first"
