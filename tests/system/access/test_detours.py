"""Rights by detour: no operation does through another name what its caller may not do itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.closed_brokers import BILLING, OWNER, broker_with

pytestmark = pytest.mark.anyio

OPERATES = {"allow": ["administer", "consume"], "on": ["group:billing"], "to": [BILLING]}
READS = {"allow": ["consume"], "on": ["topic:orders"], "to": [BILLING]}
SENDS = {"allow": ["produce"], "on": ["topic:orders"], "to": [BILLING]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("is_dry", [False, True], ids=["redrive", "dry_run"])
async def test_only_who_may_send_to_the_topic_of_origin_redrives(
    tmp_path: Path, *, is_dry: bool
) -> None:
    async with broker_with(tmp_path, OPERATES, READS) as broker:
        sent = {"body": {"text": "a"}}
        for method, target, body in (
            ("POST", "/v1/topics/orders/messages", sent),
            ("PUT", "/v1/groups/billing", {"start": "earliest", "retries_max": 0}),
        ):
            assert (await broker.call(OWNER, method, target, body)).status_code == 201
        received = await broker.call(
            BILLING, "POST", "/v1/groups/billing/deliveries", {"topic": "orders"}
        )
        [delivery] = received.json()["deliveries"]
        nacked = await broker.call(
            BILLING,
            "POST",
            "/v1/groups/billing/deliveries:nack",
            {"handles": [delivery["handle"]]},
        )
        assert nacked.status_code == 200, nacked.text
        target = "/v1/groups/billing/dead-letters:redrive"
        wish = {"filter": {}, "dry_run": is_dry}

        refused = await broker.call(BILLING, "POST", target, wish)
        broker.allow(OPERATES, READS, SENDS)
        while (allowed := await broker.call(BILLING, "POST", target, wish)).status_code == 403:
            pass

        assert refused.status_code == 403
        assert refused.json()["fix"] == (
            "grant produce or administer on topic:orders to service:billing"
        )
        assert [one["outcome"] for one in allowed.json()["outcomes"]] == ["redriven"]


async def test_a_reset_says_nothing_of_a_topic_on_which_its_caller_has_no_right(
    tmp_path: Path,
) -> None:
    async with broker_with(tmp_path, OPERATES, READS) as broker:
        await broker.call(OWNER, "PUT", "/v1/topics/secret", {})
        await broker.call(OWNER, "PUT", "/v1/groups/billing", {})
        statuses = [
            (
                await broker.call(
                    BILLING,
                    "POST",
                    "/v1/groups/billing/offsets:reset",
                    {"topic": topic, "to": "latest", "dry_run": True},
                )
            ).status_code
            for topic in ("secret", "missing", "orders")
        ]
        assert statuses == [403, 403, 200]
