"""Vectors of a message's bytes and ids: records, properties, batch bodies, the two kinds of id."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_address
from typing import Any, Final
from zoneinfo import ZoneInfo

from eruca.contract.message_ids import (
    UndecodableIdError,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    encode_unique_id,
    month_start_ms,
)
from eruca.contract.properties import decode_properties, encode_properties
from eruca.contract.records import Host, Record, body_crc, decode_record, encode_record
from support.rocketmq_rules import unique_id_time_ms


def run_record(case: dict[str, Any]) -> None:
    message = case["message"]
    record = replace(
        record_of(message),
        queue_offset=message["queue_offset"],
        log_offset=message["commit_log_offset"],
        body_crc=message["body_crc"],
    )

    encoded = encode_record(record)

    assert encoded.hex() == case["expected_hex"]
    assert len(encoded) == case["expected_size"]
    decoded = decode_record(encoded, check_crc=record.body_crc == body_crc(record.body))
    assert decoded.topic == case["decoded_topic"]
    assert decoded.property_map() == case["decoded_properties"]
    offset_id = encode_offset_id(decoded.store_host, decoded.log_offset)
    assert offset_id == case["decoded_offset_message_id"]
    # The rest survives as well; only SYSFLAG gains the bits that tell the hosts' families.
    decoded.sys_flag = record.sys_flag
    assert decoded == record


def record_of(message: dict[str, Any]) -> Record:
    """Return the record of a message in a vector, without what the broker puts into it."""
    return Record(
        topic=message["topic"],
        body=bytes.fromhex(message["body_hex"] or ""),
        queue_id=message["queue_id"],
        flag=message["flag"],
        sys_flag=message["sys_flag"],
        born_timestamp=message["born_timestamp"],
        born_host=Host.parse(message["born_host"], message["born_port"]),
        store_timestamp=message["store_timestamp"],
        store_host=Host.parse(message["store_host"], message["store_port"]),
        reconsume_times=message["reconsume_times"],
        prepared_offset=message["prepared_transaction_offset"],
        properties=encode_properties(message["properties"] or {}),
    )


def run_body_crc(case: dict[str, Any]) -> None:
    assert body_crc(bytes.fromhex(case["body_hex"] or "")) == case["expected"]


def run_properties_encode(case: dict[str, Any]) -> None:
    text = encode_properties(case["properties"] or {})

    assert text == case["expected_text"]
    assert text.encode().hex() == case["expected_hex"]


def run_properties_decode(case: dict[str, Any]) -> None:
    assert decode_properties(case["text"] or "") == case["expected"]


def run_batch_body(case: dict[str, Any]) -> None:
    encoded = b"".join(
        encode_client_message(
            bytes.fromhex(message["body_hex"] or ""),
            flag=message["flag"],
            properties=encode_properties(message["properties"] or {}),
        )
        for message in case["messages"]
    )

    assert encoded.hex() == case["expected_hex"]


def encode_client_message(body: bytes, *, flag: int, properties: str) -> bytes:
    """Return one message of the body in which RocketMQ's own client sends a batch.

    Total size, magic 0, CRC 0, flag, body with a 4-byte length, properties with a 2-byte one.
    """
    stored = properties.encode()
    size = struct.calcsize(">iiiii") + len(body) + struct.calcsize(">h") + len(stored)
    head = struct.pack(">iiiii", size, 0, 0, flag, len(body))
    return head + body + struct.pack(">h", len(stored)) + stored


def run_offset_id(case: dict[str, Any]) -> None:
    host = Host.parse(case["ip"], case["port"])
    assert host.is_v6 == (case["ip_version"] == 6)

    encoded = encode_offset_id(host, case["offset"])

    assert encoded == case["expected_id"]
    assert decode_offset_id(encoded) == (host, case["offset"])


def run_offset_id_decode(case: dict[str, Any]) -> None:
    got: dict[str, object]
    try:
        decoded = decode_offset_id(case["id"] or "")
        got = {"ip": decoded.host.ip, "port": decoded.host.port, "offset": decoded.log_offset}
    except UndecodableIdError:
        got = {"error": "undecodable"}

    assert got == case["expected"]


def run_unique_id(case: dict[str, Any]) -> None:
    address = bytes.fromhex(case["ip_hex"])
    month_start = month_start_ms(case["now_ms"], ZoneInfo(case["timezone"]))

    encoded = encode_unique_id(
        address,
        case["pid"],
        case["class_loader_hash"],
        case["now_ms"] - month_start,
        case["counter"],
    )

    assert month_start == case["month_start_ms"]
    assert encoded == case["expected_id"]
    assert len(encoded) == case["expected_length"]
    decoded = decode_unique_id(encoded)
    assert decoded.address.hex().upper() == case["decoded_ip_hex"].upper()
    assert str(ip_address(decoded.address)) == case.get("decoded_ip_text", str(ip_address(address)))
    assert decoded.process_id == case["decoded_pid"] & 0xFFFF
    assert decoded.month_ms == case["decoded_ms_since_month_start"]
    assert decoded.counter == case["decoded_counter_u16"]


def run_unique_id_time(case: dict[str, Any]) -> None:
    made_at = unique_id_time_ms(case["id"], case["decoded_at_ms"], ZoneInfo(case["timezone"]))

    assert made_at == case["expected_ms"]


RUNNERS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "commitlog_record/record": run_record,
    "commitlog_record/body_crc": run_body_crc,
    "commitlog_record/properties_encode": run_properties_encode,
    "commitlog_record/properties_decode": run_properties_decode,
    "commitlog_record/batch_body": run_batch_body,
    "message_id/offset_id": run_offset_id,
    "message_id/offset_id_decode": run_offset_id_decode,
    "message_id/unique_id": run_unique_id,
    "message_id/unique_id_time": run_unique_id_time,
}
