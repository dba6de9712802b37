"""The SDK refuses reserved groups, a single bar and too many topics by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import eruca
from eruca.contract.limits import SUBSCRIPTION_COUNT_MAX
from eruca.contract.names import DEFAULT_GROUPS
from eruca.inbox import Inbox


@pytest.fixture
def client() -> eruca.AsyncClient:
    return eruca.AsyncClient("http://127.0.0.1:1")


WAYS: dict[str, Callable[[eruca.AsyncClient, str], object]] = {
    "push": lambda client, group: client.push_consumer(group),
    "pull": lambda client, group: client.pull_consumer(group, topics="orders"),
    "simple": lambda client, group: client.simple_consumer(group, "orders"),
    "producer": lambda client, group: client.producer(group),
    "transactions": lambda client, group: client.transaction_producer(group),
    "inbox": lambda client, group: Inbox(group),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("group", sorted(DEFAULT_GROUPS | {"CID_RMQ_SYS_TRANS"}))
def test_a_reserved_group_is_refused_where_it_is_named(
    client: eruca.AsyncClient, way: Callable[..., object], group: str
) -> None:
    with pytest.raises(eruca.ValidationError, match="reserved") as refused:
        way(client, group)

    assert refused.value.fix == "use a group of your own"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("TagA |", "'TagA'"),
        ("TagA | TagB", "'TagA || TagB'"),
        ("TagA|TagB|| TagC", "'TagA || TagB || TagC'"),
        ("|", None),
        (" || ", None),
        ("Tag\0A", None),
        ("Tag\nA", None),
    ],
)
def test_a_filter_that_no_tag_can_match_is_refused_with_what_may_be_meant(
    client: eruca.AsyncClient, text: str, meant: str | None
) -> None:
    ways: list[Callable[[], Any]] = [
        lambda: client.push_consumer("g").on("orders", tag=text)(lambda message: None),
        lambda: client.push_consumer("g").subscribe("orders", text, lambda message: None),
        lambda: client.pull_consumer(topics="orders", filter=text),
        lambda: client.simple_consumer("g", "orders", filter={"orders": text}),
    ]
    for way in ways:
        with pytest.raises(eruca.ValidationError, match=r"^filter: ") as refused:
            way()
        assert meant is None or meant in str(refused.value)


def test_a_topic_too_many_is_refused_where_it_is_subscribed_to(client: eruca.AsyncClient) -> None:
    consumer = client.push_consumer("billing")
    for number in range(SUBSCRIPTION_COUNT_MAX):
        consumer.on(f"orders-{number}")(lambda message: None)
    consumer.on("orders-0", tag="again")(lambda message: None)

    with pytest.raises(eruca.ValidationError, match=r"topic: one-more .* 256 topics"):
        consumer.on("one-more")(lambda message: None)


@pytest.mark.parametrize("character", ["\0", "\x01", "\x02", "\ud800"])
@pytest.mark.parametrize("field", ["tag", "keys", "sharding_key", "message_id", "name", "value"])
def test_no_text_of_a_message_holds_what_ends_or_separates_texts(
    character: str, field: str
) -> None:
    text = f"a{character}b"
    fields: dict[str, Any] = {field: text}
    if field in ("name", "value"):
        fields = {"properties": {text: "x"} if field == "name" else {"city": text}}

    with pytest.raises(eruca.ValidationError):
        eruca.Message("orders", b"x", **fields)
