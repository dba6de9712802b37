"""The gate of a real broker: known heads, names in bodies, and requests that wait."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca.contract.names import AUDIT_TOPIC, CONTROLLERS_NAMESPACE
from eruca.contract.records import decode_record
from eruca_namesrv.app import create_app as create_namesrv
from eruca_namesrv.settings import NamesrvSettings
from support.brokers import RECORDS, batch, record
from support.closed_brokers import (
    BILLING,
    CONSUMES,
    OWNER,
    PRODUCES,
    SHOP,
    Broker,
    answer_of,
    broker_with,
)
from support.rules import basic, bearer, key_of, write_rules
from support.services import serving

pytestmark = pytest.mark.anyio

KIND: Final = RECORDS["content-type"].encode()
PATIENCE_SECONDS: Final = 20.0  # less than the 30 s for which requests wait here


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def settled(broker: Broker, principal: str, target: str, status: int) -> httpx.Response:
    """Return the first answer with *status*: the rules have come into force."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = await broker.call(principal, "GET", target)
            if answer.status_code == status:
                return answer


async def log_end(broker: Broker) -> int:
    answer = await broker.call(OWNER, "GET", "/v1/log?from_offset=0&bytes_max=1")
    return int(answer.headers["eruca-max-offset"])


async def topics_from(broker: Broker, log_offset: int) -> set[str]:
    """Return the topics of all records from a log offset on."""
    log = (await broker.call(OWNER, "GET", f"/v1/log?from_offset={log_offset}")).content
    topics, at = set(), 0
    while at < len(log):
        size = int.from_bytes(log[at : at + 4])
        topics.add(decode_record(log[at : at + size]).topic)
        at += size
    return topics


@pytest.mark.parametrize(
    ("path", "kind", "body"),
    [
        (b"messages", b"application/json", b'{"body": {"text": "a"}}'),
        (b"queues/0/records", KIND, batch([record("orders")])),  # it is gathered
    ],
    ids=["JSON", "records"],
)
async def test_a_known_head_is_decided_again_when_the_rules_change(
    tmp_path: Path, path: bytes, kind: bytes, body: bytes
) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        reader, writer = await asyncio.open_connection(*broker.address)
        request = (
            b"POST /v1/topics/orders/%b HTTP/1.1\r\nhost: localhost\r\n"
            b"authorization: Bearer %b\r\ncontent-type: %b\r\n"
            b"content-length: %d\r\n\r\n%b" % (path, key_of(SHOP).encode(), kind, len(body), body)
        )

        async def sent() -> tuple[int, bytes]:
            writer.write(request)
            return await answer_of(reader)

        assert [(await sent())[0] for _ in range(3)] == [201, 201, 201]
        broker.allow()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (answer := await sent())[0] == 201:
                pass
        assert answer[0] == 403
        assert b"grant produce on topic:orders to user:shop" in answer[1]
        broker.allow(PRODUCES)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await sent())[0] != 201:
                pass
        writer.close()


async def test_requests_pipelined_past_the_parser_are_decided_each_by_its_own_key(
    tmp_path: Path,
) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        body = b'{"body": {"text": "a"}}'

        def request(authorization: bytes) -> bytes:
            return (
                b"POST /v1/topics/orders/messages HTTP/1.1\r\nhost: localhost\r\n%b"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (authorization, len(body), body)
            )

        good = b"authorization: Bearer %b\r\n" % key_of(SHOP).encode()
        bad = b"authorization: Bearer %b\r\n" % key_of(BILLING).encode()
        reader, writer = await asyncio.open_connection(*broker.address)
        statuses = []
        for _ in range(2):  # the second time the heads are known
            writer.write(b"".join(map(request, (good, bad, b"", good))))
            for _ in range(4):
                statuses.append((await answer_of(reader))[0])
        writer.close()
        assert statuses == [201, 403, 401, 201] * 2
        queues = (await broker.call(OWNER, "GET", "/v1/topics/orders/queues")).json()["queues"]
        assert sum(queue["max_offset"] for queue in queues) == 4


async def test_records_that_are_gathered_are_decided_each_and_keep_their_order(
    tmp_path: Path,
) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        sent = record("orders")

        def request(principal: str, count: int) -> bytes:
            body = batch([sent] * count)
            head = (
                b"POST /v1/topics/orders/queues/0/records HTTP/1.1\r\nhost: localhost\r\n"
                b"authorization: Bearer %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"
            )
            return head % (key_of(principal).encode(), KIND, len(body)) + body

        requests = [(SHOP, 1), (SHOP, 1), (BILLING, 1), (SHOP, 2), (SHOP, 1), (BILLING, 1)]
        reader, writer = await asyncio.open_connection(*broker.address)
        answers = []
        for _ in range(2):  # the second time the heads are known
            writer.write(b"".join(request(*each) for each in requests))
            answers += [await answer_of(reader) for _ in requests]
        writer.close()

        assert [status for status, _ in answers] == [201, 201, 403, 201, 201, 403] * 2
        stored = [json.loads(body) for status, body in answers if status == 201]
        assert [receipt["queue_offset"] for receipt in stored] == [0, 1, 2, 4, 5, 6, 7, 9]
        assert [receipt["count"] for receipt in stored] == [1, 1, 2, 1] * 2


async def test_a_refusal_of_an_equal_head_leaves_a_request_its_caller(tmp_path: Path) -> None:
    async with broker_with(tmp_path, CONSUMES) as broker:
        await broker.call(OWNER, "PUT", "/v1/topics/secret", {})
        sent = await broker.call(
            OWNER, "POST", "/v1/topics/secret/messages", {"body": {"text": "hidden"}}
        )
        assert sent.status_code == 201, sent.text
        body = json.dumps(
            {
                "queues": [
                    {"topic": "secret", "queue_id": queue_id, "offset": 0} for queue_id in range(4)
                ]
            }
        ).encode()
        head = (
            b"POST /v1/pull HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % (key_of(BILLING).encode(), len(body))
        )
        slow_reader, slow = await asyncio.open_connection(*broker.address)
        reader, writer = await asyncio.open_connection(*broker.address)
        for one_reader, one in ((slow_reader, slow), (reader, writer)):
            one.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert (await answer_of(one_reader))[0] == 200  # heads after the first one become known
        slow.write(head + body[:1])
        writer.write(head + body)  # the broker has read the other head before it
        assert (await answer_of(reader))[0] == 403
        broker.allow(CONSUMES, expires_at={BILLING: datetime.now(UTC) - timedelta(seconds=1)})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                writer.write(head + body)
                if (await answer_of(reader))[0] == 401:
                    break
        slow.write(body[1:])
        status, answer = await answer_of(slow_reader)
        assert status == 401, answer
        for one in (slow, writer):
            one.close()


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/v1/topics/orders/messages", b'{"body": {"text": "late"}}'),
        ("PUT", "/v1/topics/orders", b'{"queue_count": 8}'),
    ],
    ids=["hot", "ordinary"],
)
async def test_a_body_that_arrives_after_its_right_is_revoked_changes_nothing(
    tmp_path: Path, method: str, target: str, body: bytes
) -> None:
    rule = PRODUCES | {"allow": ["produce", "administer"]}
    async with broker_with(tmp_path, rule) as broker:
        reader, writer = await asyncio.open_connection(*broker.address)
        writer.write(
            b"%b %b HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % (method.encode(), target.encode(), key_of(SHOP).encode(), len(body))
        )
        before = (await settled(broker, SHOP, "/v1/topics/orders/queues", 200)).json()
        broker.allow()
        await settled(broker, SHOP, "/v1/topics/orders", 403)
        await settled(broker, OWNER, "/v1/topics/orders", 200)  # requests were decided again
        writer.write(body)
        assert (await answer_of(reader))[0] == 403
        writer.close()
        after = (await broker.call(OWNER, "GET", "/v1/topics/orders/queues")).json()
        assert after["queues"] == before["queues"]


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("/v1/topics/orders/queues/0/messages?offset=0&wait_seconds=30", None),
        (
            "/v1/pull",
            {"queues": [{"topic": "orders", "queue_id": 0, "offset": 0}], "wait_seconds": 30},
        ),
        ("/v1/groups/billing/deliveries", {"topic": "orders", "wait_seconds": 30}),
    ],
)
async def test_a_request_that_waits_ends_when_its_right_is_revoked(
    tmp_path: Path, target: str, body: object
) -> None:
    async with broker_with(tmp_path, CONSUMES) as broker:
        method = "GET" if body is None else "POST"
        held = asyncio.create_task(broker.call(BILLING, method, target, body))
        await settled(broker, BILLING, "/v1/topics/orders", 200)
        assert not held.done()
        broker.allow(PRODUCES)
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await held
        assert answer.status_code == 403, answer.text
        assert answer.json()["fix"].endswith(f"to {BILLING}")


async def test_a_log_feed_ends_when_its_key_expires(tmp_path: Path) -> None:
    follows = {"allow": ["query"], "on": ["log"], "to": [BILLING]}
    async with broker_with(tmp_path, follows) as broker:
        end = await log_end(broker)
        broker.allow(follows, expires_at={BILLING: datetime.now(UTC) + timedelta(seconds=3)})

        async def held(offset: int) -> httpx.Response:
            target = f"/v1/log?from_offset={offset}&wait_seconds=30"
            return await broker.call(BILLING, "GET", target)

        async with asyncio.timeout(PATIENCE_SECONDS):
            while (answer := await held(end)).status_code == 200:  # the audit's records
                end = int(answer.headers["eruca-next-offset"])
        assert answer.status_code == 401
        assert key_of(BILLING) not in answer.text


async def test_a_watch_of_members_ends_and_others_go_on(tmp_path: Path) -> None:
    reads = {"allow": ["query"], "on": ["group:billing"], "to": [SHOP]}
    async with broker_with(tmp_path, CONSUMES, reads) as broker:
        assert (await broker.call(OWNER, "PUT", "/v1/groups/billing", {})).status_code == 201
        listed = await broker.call(SHOP, "GET", "/v1/groups/billing/members")
        headers = {"if-none-match": listed.headers["etag"]}
        target = "/v1/groups/billing/members?wait_seconds=30"

        async def watch(principal: str) -> httpx.Response:
            return await broker.client.get(target, headers=headers | bearer(principal))

        async with asyncio.TaskGroup() as tasks:
            revoked = tasks.create_task(watch(SHOP))
            allowed = tasks.create_task(watch(BILLING))
            await settled(broker, SHOP, "/v1/groups/billing", 200)
            broker.allow(CONSUMES)
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert (await revoked).status_code == 403
            assert not allowed.done()
            await broker.call(OWNER, "DELETE", "/v1/groups/billing")
            assert (await allowed).status_code == 404


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        (
            "POST",
            "/v1/pull",
            {
                "queues": [
                    {"topic": "orders", "queue_id": 0, "offset": 0},
                    {"topic": "secret", "queue_id": 0, "offset": 0},
                ]
            },
        ),
        ("POST", "/v1/groups/billing/deliveries", {"topic": "secret"}),
        (
            "PUT",
            "/v1/groups/billing/offsets",
            {"offsets": [{"topic": "secret", "queue_id": 0, "offset": 0}]},
        ),
        (
            "PUT",
            "/v1/groups/billing/members/c",
            {
                "incarnation": "a",
                "subscriptions": [{"topic": "orders"}, {"topic": "secret"}],
            },
        ),
        (
            "POST",
            "/v1/groups/billing/locks",
            {"client_id": "c", "incarnation": "a", "queues": [{"topic": "secret", "queue_id": 0}]},
        ),
        (
            "POST",
            "/v1/transactions",
            {"topic": "secret", "producer_group": "g", "message": {"body": {"text": "a"}}},
        ),
    ],
)
async def test_names_in_a_body_are_decided_before_anything_changes(
    tmp_path: Path, method: str, target: str, body: object
) -> None:
    async with broker_with(tmp_path, CONSUMES) as broker:
        await broker.call(OWNER, "PUT", "/v1/topics/secret", {})
        before = await log_end(broker)
        answer = await broker.call(BILLING, method, target, body)
        assert answer.status_code == 403, answer.text
        assert "topic:secret" in answer.json()["fix"]
        assert await topics_from(broker, before) <= {AUDIT_TOPIC}


async def test_a_name_that_does_not_exist_is_refused_like_one_that_does(tmp_path: Path) -> None:
    async with broker_with(tmp_path) as broker:
        answers = [
            await broker.call(SHOP, "GET", f"/v1/topics/{name}") for name in ("orders", "nothing")
        ]
        texts = [re.sub(r"orders|nothing|[0-9a-f]{16}", "", answer.text) for answer in answers]
        assert [answer.status_code for answer in answers] == [403, 403]
        assert texts[0] == texts[1]


async def test_lists_show_only_what_the_caller_has_a_right_on(tmp_path: Path) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        for topic in ("a", "secret", "z"):
            await broker.call(OWNER, "PUT", f"/v1/topics/{topic}", {})
        page = (await broker.call(SHOP, "GET", "/v1/topics?limit=1")).json()
        assert [topic["topic"] for topic in page["topics"]] == ["orders"]
        assert page["next_cursor"] is None
        assert (await broker.call(SHOP, "GET", "/v1/groups")).json()["groups"] == []
        assert len((await broker.call(OWNER, "GET", "/v1/topics")).json()["topics"]) == 4


async def test_a_transaction_of_another_topic_does_not_exist(tmp_path: Path) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        await broker.call(OWNER, "PUT", "/v1/topics/secret", {})
        begun = await broker.call(
            OWNER,
            "POST",
            "/v1/transactions",
            {"topic": "secret", "producer_group": "g", "message": {"body": {"text": "a"}}},
        )
        target = f"/v1/transactions/{begun.json()['transaction_id']}"
        hidden = await broker.call(SHOP, "GET", target)
        missing = await broker.call(SHOP, "GET", "/v1/transactions/missing")
        assert (hidden.status_code, hidden.json()["code"]) == (404, "transaction-not-found")
        assert (missing.status_code, missing.json()["code"]) == (404, "transaction-not-found")
        decided = await broker.call(SHOP, "POST", f"{target}:commit", {"producer_group": "g"})
        assert decided.status_code == 404
        assert (await broker.call(SHOP, "GET", "/v1/transactions")).json()["transactions"] == []
        assert (await broker.call(OWNER, "GET", target)).json()["state"] == "pending"


async def test_each_transaction_of_a_shared_request_needs_its_own_rights(tmp_path: Path) -> None:
    of_group = {"allow": ["produce"], "on": ["group:g"], "to": [SHOP]}
    async with broker_with(tmp_path, PRODUCES, of_group) as broker:
        await broker.call(OWNER, "PUT", "/v1/topics/secret", {})
        new: dict[str, Any] = {"producer_group": "g", "message": {"body": {"text": "a"}}}

        async def shared(principal: str, verb: str, *items: dict[str, Any]) -> list[dict[str, Any]]:
            answer = await broker.call(
                principal, "POST", f"/v1/transactions:{verb}", {"transactions": items}
            )
            assert answer.status_code == 200, answer.text
            results: list[dict[str, Any]] = answer.json()["results"]
            return results

        of_owner = await shared(OWNER, "begin", new | {"topic": "secret"})
        refused, begun = await shared(
            SHOP, "begin", new | {"topic": "secret"}, new | {"topic": "orders"}
        )
        commit = {"outcome": "commit", "producer_group": "g"}
        decided = await shared(
            SHOP,
            "decide",
            *(
                commit | {"transaction_id": result["receipt"]["transaction_id"]}
                for result in (of_owner[0], begun)
            ),
        )

        assert refused["problem"]["code"] == "forbidden"
        assert decided[0]["problem"]["code"] == "transaction-not-found"
        assert decided[1]["receipt"]["state"] == "committed"


async def test_a_file_with_a_mistake_keeps_the_rules_and_says_so(tmp_path: Path) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        broker.path.write_text("rules = 1\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                metrics = await broker.client.get("/metrics", headers=basic(OWNER))
                if "eruca_access_rules_stale 1.0" in metrics.text:
                    break
        sent = await broker.call(
            SHOP, "POST", "/v1/topics/orders/messages", {"body": {"text": "a"}}
        )
        assert sent.status_code == 201
        broker.allow()
        await settled(broker, SHOP, "/v1/topics/orders", 403)


async def test_refusals_are_counted_and_nothing_shows_a_key(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        for path in ("/v1/topics/secret", "/v1/topics/orders"):
            await broker.call(BILLING, "GET", path)
        await broker.client.get("/v1/topics", headers={"authorization": "Bearer eruca_x_y"})
        shown = [
            (await broker.client.get(path, headers=basic(OWNER))).text
            for path in ("/metrics", "/v1/status")
        ]
        assert 'eruca_access_refusals_total{reason="forbidden"} 2.0' in shown[0]
        assert 'eruca_access_refusals_total{reason="unauthenticated"} 1.0' in shown[0]
    for text in (*shown, *capfd.readouterr()):
        for principal in (OWNER, SHOP, BILLING):
            assert key_of(principal)[-43:] not in text


async def test_explain_says_the_rule_to_its_own_principal_and_to_administrators(
    tmp_path: Path,
) -> None:
    question = {"principal": SHOP, "right": "produce", "resource": "topic:orders"}
    async with broker_with(tmp_path, PRODUCES) as broker:
        for principal in (SHOP, OWNER):
            answer = await broker.call(principal, "POST", "/v1/access:explain", question)
            assert answer.json() == {
                "allowed": True,
                "reason": "the most specific rule that applies grants it",
                "rule": "grant produce on topic:orders to user:shop",
                "fix": None,
            }
        answer = await broker.call(BILLING, "POST", "/v1/access:explain", question)
        assert answer.status_code == 403


async def test_a_route_watch_at_a_name_server_ends(tmp_path: Path) -> None:
    sees = {"allow": ["produce"], "on": ["topic:orders"], "to": [SHOP]}
    path = write_rules(tmp_path / "rules.toml", sees)
    settings = NamesrvSettings.model_validate(
        {"kv_file": tmp_path / "kv.json", "ERUCA_AUTH_FILE": str(path), "settle_seconds": 0}
    )
    async with (
        serving(create_namesrv(settings), settings) as (_, address),
        httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as client,
    ):
        target = "/v1/topics/orders/route?wait_seconds=30"
        held = asyncio.create_task(client.get(target, headers=bearer(SHOP)))
        assert (
            await client.get(f"/v1/kv/{CONTROLLERS_NAMESPACE}", headers=bearer(SHOP))
        ).status_code == 200
        write_rules(path, principals=[SHOP])
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await held).status_code == 403
