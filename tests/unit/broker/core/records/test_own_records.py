"""Records that the broker makes itself equal those of the general encoder."""

from __future__ import annotations

import pytest

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Host, Record, encode_unstamped
from eruca.contract.transaction_events import TransactionChecked
from eruca_broker.core.records.half_messages import OP_PLACE, op_message
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, encode_event
from eruca_broker.core.state.topic_events import TopicDeleted

NOW = 1_700_000_000_000
HOSTS = [Host.parse("10.0.0.7", 10_911), Host.parse("fd00::7", 10_911)]


def general(
    topic: str, queue_id: int, body: bytes, host: Host, properties: dict[str, str]
) -> bytes:
    return encode_unstamped(
        Record(
            topic=topic,
            queue_id=queue_id,
            body=body,
            born_timestamp=NOW,
            born_host=host,
            store_host=host,
            properties=encode_properties(properties),
        )
    )


@pytest.mark.parametrize("host", HOSTS, ids=["IPv4", "IPv6"])
def test_an_op_message_is_what_the_general_encoder_makes(host: Host) -> None:
    expected = general(*OP_PLACE, b"17,", host, {TAGS: "d"})
    assert op_message(17, now_ms=NOW, host=host) == expected


@pytest.mark.parametrize("host", HOSTS, ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("transaction_id", ["a", "é" * 255])
def test_a_transactions_event_is_what_the_general_encoder_makes(
    host: Host, transaction_id: str
) -> None:
    body = (
        f'{{"event":"transaction_checked","transaction_id":"{transaction_id}","number":1,'
        '"checker":"c","checked_at":1700000000000}'
    ).encode()
    properties = {TAGS: "transaction_checked", UNIQ_KEY: transaction_id}
    expected = general(EVENTS_TOPIC, EVENTS_QUEUE_ID, body, host, properties)
    event = TransactionChecked(transaction_id, 1, "c", NOW)
    assert encode_event(event, now_ms=NOW, host=host) == expected


def test_another_event_has_no_id() -> None:
    event = TopicDeleted("orders")
    body = b'{"event":"topic_deleted","topic":"orders"}'
    expected = general(EVENTS_TOPIC, EVENTS_QUEUE_ID, body, HOSTS[0], {TAGS: "topic_deleted"})
    assert encode_event(event, now_ms=NOW, host=HOSTS[0]) == expected
