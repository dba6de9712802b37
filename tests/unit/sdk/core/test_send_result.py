"""Send results: what is worked out when it is asked for."""

from __future__ import annotations

from datetime import UTC, datetime

from eruca.contract.records import Host
from eruca.core.message_queue import MessageQueue
from eruca.core.send_result import SendResult


def test_a_result_tells_the_offset_id_and_the_time() -> None:
    host = Host.parse("10.66.51.58", 10_911)
    queue = MessageQueue("orders", "broker-a", 0)

    result = SendResult("ID", queue, 5, 0x134F1F5, 1_700_000_000_000, "flushed", host)

    assert result.offset_message_id == "0A42333A00002A9F000000000134F1F5"
    assert result.stored_at == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
