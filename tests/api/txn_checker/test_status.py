"""The checker's status."""

from __future__ import annotations

import pytest

from eruca.contract.names import CHECKERS_NAMESPACE
from eruca_postgres.instance import Instance
from support.checkers import Checked, checked_by
from support.in_process_cluster import InProcessCluster
from support.waiting import until_told

pytestmark = pytest.mark.anyio


async def test_the_status_says_what_is_set_and_how_far_it_has_read(checked: Checked) -> None:
    await checked.seen(await checked.begin())

    status = (await checked.http.get("/v1/status")).json()

    assert status["name"].startswith("txn-checker-")
    assert status["rules"]["interval_seconds"] == 1.0
    assert status["brokers"] == ["broker-a"]
    assert status["faults"] == {}
    [followed] = status["followed"]
    assert followed["followed_by"] == status["name"]
    assert followed["log_offset"] <= followed["end_offset"]


async def test_metrics_count_what_was_done(cluster: InProcessCluster, database_url: str) -> None:
    async with checked_by(cluster, database_url, interval_seconds=60) as checked:
        await checked.begin()
        [check] = await checked.take()
        await checked.answer(check["check_id"], "commit")
        # A check may be read, shown and answered before the checker has the broker's own answer;
        # and a checker that has no turn for a while loses its claim, and takes it again.
        wanted = {
            "eruca_txn_checker_checks_total 1.0",
            'eruca_txn_checker_fault{broker="broker-a"} 0.0',
        }
        answer = await until_told(
            lambda: checked.http.get("/metrics"),
            lambda answer: wanted <= {*answer.text.splitlines()},
        )
        samples = answer.text.splitlines()

        assert "eruca_txn_checker_questions_total 1.0" in samples
        assert 'eruca_txn_checker_answers_total{answer="commit"} 1.0' in samples
        assert any(line.startswith('eruca_txn_checker_behind_bytes{broker="') for line in samples)


async def test_producers_find_it_through_the_name_servers_until_it_stops(
    cluster: InProcessCluster, database_url: str
) -> None:
    path = f"{cluster.namesrv_urls[0]}/v1/kv/{CHECKERS_NAMESPACE}"

    async with checked_by(cluster, database_url) as checked:
        found = await until_told(
            lambda: checked.http.get(path), lambda answer: answer.json()["entries"]
        )
        entries = found.json()["entries"]
        assert entries == {checked.app.parts[Instance].name: str(checked.http.base_url).rstrip("/")}

    async with checked_by(cluster, database_url) as other:
        left = await until_told(
            lambda: other.http.get(path), lambda answer: answer.json()["entries"]
        )
        assert list(left.json()["entries"]) == [other.app.parts[Instance].name]


async def test_what_a_killed_instance_left_at_the_name_servers_is_taken_out(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url) as checked:
        path = f"{cluster.namesrv_urls[0]}/v1/kv/{CHECKERS_NAMESPACE}"
        for name in ("txn-checker-0dead0", "another-service-1"):
            await checked.http.put(f"{path}/{name}", json={"value": "http://127.0.0.1:1"})

        async with checked_by(cluster, database_url):
            left = await until_told(
                lambda: checked.http.get(path),
                lambda answer: "txn-checker-0dead0" not in answer.json()["entries"],
            )

        assert "another-service-1" in left.json()["entries"]


async def test_the_document_shows_every_route_with_an_example(checked: Checked) -> None:
    document = (await checked.http.get("/openapi.json")).json()

    assert "DecisionReceipt" in document["components"]["schemas"]
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if not path.startswith("/v1/") or method == "delete":
                continue
            content = operation["responses"]["200"]["content"]["application/json"]
            assert "example" in content or "examples" in content, (method, path)
