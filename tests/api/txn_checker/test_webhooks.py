"""Producer groups that are called: signed, in time, tried again, and only where that is allowed."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca_txn_checker.checking.webhooks import Webhooks
from support.checkers import Checked, begin, checked_by, messages
from support.http_peers import Script, peer, read_request
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.waiting import until_told

pytestmark = pytest.mark.anyio

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
PATH = "/v1/producer-groups/orders/webhook"


def answered(status: int = 200, body: object = None, **headers: str) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} said", f"content-length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


COMMIT = answered(body={"answer": "commit"})


class Receiver:
    """A webhook: keeps what it is sent, and gives its answers one after the other."""

    def __init__(self, *answers: bytes) -> None:
        self.url = ""
        self.received: list[tuple[dict[str, str], bytes]] = []
        self._answers = list(answers)

    async def script(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, headers, body = await read_request(reader)
        self.received.append((headers, body))
        if self._answers:
            writer.write(self._answers.pop(0))
            await writer.drain()
        else:
            await reader.read()  # it never says anything


@asynccontextmanager
async def receiver(*answers: bytes) -> AsyncIterator[Receiver]:
    made = Receiver(*answers)
    script: Script = made.script
    async with peer(script) as running:
        made.url = running.url
        yield made


async def set_webhook(checked: Checked, url: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = await checked.http.put(PATH, json={"url": f"{url}/checks", "secret": SECRET, **more})
    assert answer.status_code in (200, 201), answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def test_a_group_is_called_with_a_signed_check_and_its_answer_decides(
    checked: Checked,
) -> None:
    async with receiver(COMMIT) as webhook:
        await set_webhook(checked, webhook.url)
        transaction_id = await checked.begin()

        seen = await checked.until_state(transaction_id, "committed")

    [(headers, body)] = webhook.received
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(b"k" * 32, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    sent = json.loads(body)
    assert sent["type"] == "eruca.transaction.check"
    assert sent["data"]["transaction_id"] == transaction_id
    assert sent["data"]["message"]["body"] == {"text": "order 17"}
    [check] = seen["checks_sent"]
    assert (check["check_id"], check["asked"]) == (headers["webhook-id"], "webhook")
    assert check["answered_by"] == "webhook"
    assert await messages(checked.broker) == ["order 17"]
    assert (await checked.http.get(PATH)).json()["last_answer_at"] is not None


async def test_checks_of_a_broker_that_is_away_hold_up_no_calls_for_others(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        in_process_cluster(tmp_path, brokers=2) as cluster,
        checked_by(
            cluster, database_url, interval_seconds=600, webhook_calls_per_group_max=1
        ) as checked,
        receiver(COMMIT) as webhook,
    ):
        away = await checked.begin()
        await checked.seen(away, lambda shown: shown["checks_sent"])
        await cluster.stop_broker("broker-a")
        there = await begin(checked.brokers["broker-b"])

        await set_webhook(checked, webhook.url)
        seen = await checked.until_state(there, "committed")

        assert [sent["answer"] for sent in seen["checks_sent"]] == ["commit"]


async def test_a_call_that_fails_is_repeated_with_the_same_id(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with (
        checked_by(cluster, database_url, interval_seconds=600) as checked,
        receiver(answered(503), answered(429), COMMIT) as webhook,
    ):
        await set_webhook(checked, webhook.url)
        transaction_id = await checked.begin()

        seen = await checked.until_state(transaction_id, "committed")

    assert len(webhook.received) == 3
    assert len({headers["webhook-id"] for headers, _ in webhook.received}) == 1
    assert seen["checks"] == 1


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (answered(404), "404"),
        (answered(302, location="http://127.0.0.1:1/"), "302"),
        (answered(200, {"answer": "perhaps"}), "perhaps"),
        (answered(200), "expected the answer"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 70000\r\n\r\n" + b"x" * 70_000, "65536 bytes"),
    ],
)
async def test_what_is_no_answer_is_said_of_the_check_and_not_repeated(
    cluster: InProcessCluster, database_url: str, answer: bytes, fault: str
) -> None:
    async with (
        checked_by(cluster, database_url, interval_seconds=600) as checked,
        receiver(answer, COMMIT) as webhook,
    ):
        await set_webhook(checked, webhook.url)
        transaction_id = await checked.begin()

        seen = await checked.seen(
            transaction_id, lambda shown: shown["checks_sent"] and shown["checks_sent"][0]["fault"]
        )

        assert fault in seen["checks_sent"][0]["fault"]
        assert seen["state"] == "pending"
        assert fault in (await checked.http.get(PATH)).json()["last_error"]
        assert len(webhook.received) == 1


async def test_a_webhook_that_says_nothing_is_called_again_with_the_next_check(
    checked: Checked,
) -> None:
    async with receiver() as silent:
        await set_webhook(checked, silent.url, timeout_seconds=0.05)
        transaction_id = await checked.begin()
        await checked.seen(
            transaction_id,
            lambda shown: any("no answer" in (c["fault"] or "") for c in shown["checks_sent"]),
        )

        async with receiver(COMMIT) as webhook:
            await set_webhook(checked, webhook.url)
            seen = await checked.until_state(transaction_id, "committed")

    assert seen["checks"] >= 2


async def test_a_slow_group_does_not_hold_up_another(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with (
        checked_by(
            cluster, database_url, interval_seconds=600, webhook_calls_per_group_max=2
        ) as checked,
        receiver() as silent,
        receiver(COMMIT) as webhook,
    ):
        await checked.http.put(
            "/v1/producer-groups/slow/webhook", json={"url": silent.url, "timeout_seconds": 10}
        )
        await set_webhook(checked, webhook.url)
        for _ in range(5):
            await checked.begin(producer_group="slow")
        transaction_id = await checked.begin()

        await checked.until_state(transaction_id, "committed")

        assert len(silent.received) <= 2


async def test_a_group_with_a_webhook_is_not_asked_otherwise_until_that_is_deleted(
    checked: Checked,
) -> None:
    async with receiver(*[answered(404)] * 50) as webhook:
        await set_webhook(checked, webhook.url)
        await checked.begin()
        waiting = asyncio.create_task(checked.take())
        await until_told(lambda: _received(webhook), bool)
        assert not waiting.done()

        deleted = await checked.http.delete(PATH)
        [check] = await waiting

    assert deleted.status_code == 204
    assert check["number"] > 1
    assert (await checked.http.get(PATH)).json()["code"] == "webhook-not-found"
    assert (await checked.http.delete(PATH)).status_code == 404


async def _received(webhook: Receiver) -> list[tuple[dict[str, str], bytes]]:
    return webhook.received


async def test_a_webhook_that_is_turned_off_is_not_called(checked: Checked) -> None:
    async with receiver(COMMIT) as webhook:
        await set_webhook(checked, webhook.url, enabled=False)
        await checked.begin()

        [check] = await checked.take()

    assert check["number"] == 1
    assert webhook.received == []


async def test_the_secret_is_told_once_and_kept_when_none_is_given(checked: Checked) -> None:
    body = {"url": "https://orders.example.com/checks"}

    made = await checked.http.put(PATH, json=body)
    kept = await checked.http.put(PATH, json=body)
    given = await checked.http.put(PATH, json=body | {"secret": SECRET})
    shown = await checked.http.get(PATH)

    assert (made.status_code, kept.status_code, given.status_code) == (201, 200, 200)
    assert made.json()["secret"].startswith("whsec_")
    assert kept.json()["secret"] is None
    assert given.json()["secret"] == SECRET
    assert shown.json()["secret"] is None


async def test_what_is_not_named_of_a_webhook_stays_as_it_is(checked: Checked) -> None:
    body = {"url": "https://orders.example.com/checks"}
    await checked.http.put(PATH, json=body | {"timeout_seconds": 7.5, "enabled": False})

    kept = (await checked.http.put(PATH, json=body)).json()
    enabled = (await checked.http.put(PATH, json=body | {"enabled": True})).json()

    assert (kept["timeout_seconds"], kept["enabled"]) == (7.5, False)
    assert (enabled["timeout_seconds"], enabled["enabled"]) == (7.5, True)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/checks",
        "http://[::1]/checks",
        "http://[::ffff:127.0.0.1]/checks",
        "http://localhost:8080/checks",
        "http://10.1.2.3/checks",
        "http://169.254.169.254/latest/meta-data",
        "http://user:password@orders.example.com/checks",
        "https://orders.example.com/checks#there",
        "ftp://orders.example.com/checks",
    ],
)
async def test_a_url_that_must_not_be_called_is_refused(
    cluster: InProcessCluster, database_url: str, url: str
) -> None:
    async with checked_by(cluster, database_url, webhook_reach="public") as checked:
        refused = await checked.http.put(PATH, json={"url": url})

        assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert refused.json()["errors"][0]["pointer"] == "/body/url"


async def test_a_secret_that_no_database_stores_is_refused(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(cluster, database_url) as checked:
        refused = await checked.http.put(
            PATH, json={"url": "http://127.0.0.1:1/checks", "secret": "s" * 32 + "\0"}
        )

        assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert refused.json()["errors"][0]["pointer"] == "/body/secret"


async def test_a_name_is_looked_up_when_it_is_called(
    cluster: InProcessCluster, database_url: str
) -> None:
    """A name that leads to this machine, which the reach does not include."""
    async with (
        receiver(COMMIT) as webhook,
        checked_by(cluster, database_url, interval_seconds=600) as lenient,
    ):
        port = webhook.url.rpartition(":")[2]
        await set_webhook(lenient, f"http://localhost:{port}")
        transaction_id = await lenient.begin()
        await lenient.until_state(transaction_id, "committed")

        async with checked_by(
            cluster, database_url, interval_seconds=600, webhook_reach="private"
        ) as strict:
            await lenient.app.parts[Webhooks].stop()
            refused = await strict.begin()
            seen = await strict.seen(
                refused, lambda shown: shown["checks_sent"] and shown["checks_sent"][0]["fault"]
            )

    assert "outside the allowed reach" in seen["checks_sent"][0]["fault"]
    assert len(webhook.received) == 1
