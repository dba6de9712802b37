"""Traces of sends: stored with the messages, unless they are ill-formed or too large."""

from __future__ import annotations

import httpx
import pytest

from support.pulled_messages import pulled

pytestmark = pytest.mark.anyio
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.mark.parametrize("kind", ["one", "batch", "octets"])
async def test_the_trace_of_a_send_goes_with_its_messages(
    client: httpx.AsyncClient, kind: str
) -> None:
    trace = {"traceparent": PARENT, "tracestate": "vendor=1"}
    path = "/topics/orders/messages"
    message = {"body": {"text": "order 17"}, "properties": {"colour": "red"}}
    if kind == "octets":
        octets = trace | {"content-type": "application/octet-stream"}
        sent = await client.post(
            path, content=b"order 17", headers=octets, params={"properties": "colour=red"}
        )
    else:
        body = message if kind == "one" else {"messages": [message]}
        sent = await client.post(path, json=body, headers=trace)
    place = sent.json()["messages"][0] if kind == "batch" else sent.json()

    assert (await pulled(client, place))["properties"] == {"colour": "red"} | trace


@pytest.mark.parametrize(
    ("headers", "said", "properties"),
    [
        ({"traceparent": PARENT.upper()}, {}, {}),
        ({"traceparent": PARENT + "-more"}, {}, {}),
        ({"traceparent": PARENT.replace("a", "0")}, {}, {}),
        ({"traceparent": "01" + PARENT[2:] + "-" + "x" * 100}, {}, {}),
        ({"traceparent": "01" + PARENT[2:] + "-x"}, {}, {"traceparent": "01" + PARENT[2:] + "-x"}),
        ({"tracestate": "vendor=1"}, {}, {}),
        ({"traceparent": PARENT, "tracestate": "x" * 513}, {}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "x\x01y"}, {}, {"traceparent": PARENT}),
        ({"traceparent": PARENT}, {"traceparent": "its own"}, {"traceparent": "its own"}),
    ],
)
async def test_a_trace_that_is_ill_formed_or_not_the_messages_is_left_out(
    client: httpx.AsyncClient,
    headers: dict[str, str],
    said: dict[str, str],
    properties: dict[str, str],
) -> None:
    sent = await client.post(
        "/topics/orders/messages",
        json={"body": {"text": "order 17"}, "properties": said},
        headers=headers,
    )

    assert (await pulled(client, sent.json()))["properties"] == properties


async def test_a_trace_makes_no_message_too_large(client: httpx.AsyncClient) -> None:
    sent = await client.post(
        "/topics/orders/messages",
        json={"body": {"text": "order 17"}, "properties": {"long": "x" * 32_600}},
        headers={"traceparent": PARENT, "tracestate": "x" * 512},
    )

    assert sent.status_code == httpx.codes.CREATED


async def test_the_same_send_in_another_trace_is_the_same(client: httpx.AsyncClient) -> None:
    path, message = "/topics/orders/messages", {"body": {"text": "order 17"}}
    first, again = [
        await client.post(
            path,
            json=message,
            headers={"idempotency-key": "order-17", "traceparent": PARENT.replace("a", digit)},
        )
        for digit in "ac"
    ]

    assert again.headers["idempotent-replayed"] == "true"
    assert again.json() == first.json()
