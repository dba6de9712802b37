"""The row of an export that a record should have, by the SDK's decoder of single records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from eruca.contract.message_ids import encode_offset_id
from eruca.contract.properties import KEYS, SHARDING_KEY, TAGS, UNIQ_KEY, split_keys
from eruca.contract.records import decode_record
from eruca.rows.message_batches import MS_MAX, MS_MIN
from eruca.rows.property_columns import COLUMN_PROPERTIES

EPOCH = datetime.fromtimestamp(0, UTC)


def without_surrogates(text: str) -> str:
    """Return a text with each lone surrogate replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def moment(ms: int) -> datetime | None:
    """Return a time; None if Arrow's readers do not support it."""
    return EPOCH + timedelta(milliseconds=ms) if MS_MIN <= ms <= MS_MAX else None


def expected_row(encoded: bytes, topic: str = "orders") -> dict[str, Any]:
    """Return what the record says, read by itself."""
    record = decode_record(encoded, check_crc=False)
    properties = {
        without_surrogates(name): without_surrogates(value)
        for name, value in record.property_map().items()
    }
    return {
        "topic": topic,
        "broker_name": "broker-a",
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "log_offset": record.log_offset,
        "stored_at": moment(min(max(record.store_timestamp, MS_MIN), MS_MAX)),
        "born_at": moment(record.born_timestamp),
        "message_id": properties.get(UNIQ_KEY),
        "offset_message_id": encode_offset_id(
            record.store_host, record.log_offset % 2**64 - (record.log_offset < 0) * 2**64
        ),
        "tag": properties.get(TAGS),
        "keys": split_keys(properties.get(KEYS)),
        "sharding_key": properties.get(SHARDING_KEY),
        "body": record.body,
        "properties": {n: v for n, v in properties.items() if n not in COLUMN_PROPERTIES},
        "reconsume_times": record.reconsume_times,
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "prepared_offset": record.prepared_offset,
        "size": record.size,
        "damage": None,
    }
