"""From the log to JSON: a stored record as a client without the SDK sees it.

A body that was sent as JSON is shown as that value. A body compressed by zlib is shown decompressed
if that fits into the caller's remaining room. Any other compressed body is shown as stored, in
base64, and ``body.compression`` names its format. Text that is not UTF-8 is shown with U+FFFD in
its place, so that one odd record never makes a queue unreadable.
"""

from __future__ import annotations

import binascii
import zlib
from typing import Final, NamedTuple

from eruca.contract import properties as names
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.messages import LogRecordView, PulledBody, PulledMessage
from eruca.contract.records import COMPRESSION_MASK, Host, Record, SysFlag
from eruca.core.messages.json_bodies import json_text
from eruca_broker.core.damage import Damage
from eruca_broker.core.records.times import rfc3339

_FORMATS: Final = {
    0: "zlib",  # before clients could choose
    int(SysFlag.COMPRESSION_LZ4): "lz4",
    int(SysFlag.COMPRESSION_ZSTD): "zstd",
    int(SysFlag.COMPRESSION_ZLIB): "zlib",
}


class Rendered(NamedTuple):
    """A message for JSON, and the growth of its answer."""

    message: PulledMessage
    body_size: int  # bytes, uncompressed


def render(record: Record, *, body_room: int) -> Rendered:
    """Return *record* for JSON, its body decompressed if that takes *body_room* bytes at most."""
    properties = record.property_map()
    body, compression = plain_body(record, body_room)
    message = PulledMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        log_offset=record.log_offset,
        size=record.size,
        message_id=_optional_text(properties.get(names.UNIQ_KEY)),
        offset_message_id=encode_offset_id(record.store_host, record.log_offset),
        tag=_optional_text(properties.get(names.TAGS)),
        keys=[_text(key) for key in names.split_keys(properties.get(names.KEYS))],
        sharding_key=_optional_text(properties.get(names.SHARDING_KEY)),
        properties={
            _text(name): _text(value)
            for name, value in properties.items()
            if name not in names.RESERVED
        },
        body=_pulled_body(
            body, compression, is_json=properties.get(names.BODY_FORMAT) == names.JSON_FORMAT
        ),
        flag=record.flag,
        reconsume_times=record.reconsume_times,
        born_at=rfc3339(record.born_timestamp),
        born_host=host_text(record.born_host),
        stored_at=rfc3339(record.store_timestamp),
        store_host=host_text(record.store_host),
    )
    return Rendered(message, len(body))


def render_damage(damage: Damage, topic: str, queue_id: int) -> PulledMessage:
    """Return the answer for a damaged message of a queue: its place, and its fault."""
    return PulledMessage(
        topic=topic,
        queue_id=queue_id,
        queue_offset=damage.queue_offset,
        log_offset=damage.log_offset,
        size=damage.size,
        damage=damage.reason,
        message_id=None,
        offset_message_id=None,
        tag=None,
        keys=[],
        sharding_key=None,
        properties={},
        body=None,
        flag=None,
        reconsume_times=None,
        born_at=None,
        born_host=None,
        stored_at=None,
        store_host=None,
    )


def render_log_record(record: Record, *, body_room: int) -> tuple[LogRecordView, int]:
    """Return *record* with the fields for the log's readers, and its decompressed body's size."""
    message, body_size = render(record, body_room=body_room)
    view = LogRecordView(
        log_offset=record.log_offset,
        size=record.size,
        message=message,
        sys_flag=record.sys_flag,
        prepared_offset=record.prepared_offset,
        system_properties={
            name: _text(value)
            for name, value in record.property_map().items()
            if name in names.RESERVED
        },
    )
    return view, body_size


def plain_body(record: Record, body_room: int) -> tuple[bytes, str | None]:
    """Return the body and, if it is still compressed, the name of its format.

    It is not decompressed if that takes more than *body_room* bytes.
    """
    if not record.sys_flag & SysFlag.COMPRESSED:
        return record.body, None
    compression = _FORMATS.get(record.sys_flag & COMPRESSION_MASK, "unknown")
    if compression != "zlib":
        return record.body, compression
    # Bounded: a few kilobytes of zlib can stand for gigabytes.
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(record.body, max(body_room, 1))
    except zlib.error:
        return record.body, compression
    return (plain, None) if decompressor.eof else (record.body, compression)


def _pulled_body(body: bytes, compression: str | None, *, is_json: bool) -> PulledBody:
    if is_json and compression is None and (value := json_text(body)) is not None:
        return PulledBody(json=value)
    if compression is None:
        try:
            return PulledBody(text=body.decode())
        except UnicodeDecodeError:
            pass
    encoded = binascii.b2a_base64(body, newline=False).decode()
    return PulledBody(base64=encoded, compression=compression)


def _text(text: str) -> str:
    # The codec lets lone surrogates through; JSON's encoder does not.
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _optional_text(text: str | None) -> str | None:
    return None if text is None else _text(text)


def host_text(host: Host) -> str:
    """Return ``IP:port``."""
    return f"[{host.ip}]:{host.port}" if host.is_v6 else f"{host.ip}:{host.port}"
