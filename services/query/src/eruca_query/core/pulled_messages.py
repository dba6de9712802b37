"""Convert brokers' JSON messages to compare them with those of the read model."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from eruca.contract.fields import OFFSET_MAX
from eruca.contract.messages import PulledMessage
from eruca.contract.records import Host
from eruca_query.core.found_messages import FoundMessage, ms_of

_INT32_MAX: Final = 2**31 - 1
_HIGHEST: Final = {  # the ranges of records, which offset ids and tables share
    "log_offset": OFFSET_MAX,
    "queue_id": _INT32_MAX,
    "queue_offset": OFFSET_MAX,
    "size": _INT32_MAX,
}


def found_of(broker_name: str, message: PulledMessage) -> FoundMessage:
    """Convert a message that a broker returned.

    Raises:
        ValueError: A number is out of range, or a time or an address is invalid.
    """
    if message.stored_at is None or message.born_at is None or message.store_host is None:
        raise ValueError(f"it has no times: {message.damage}")
    for name, highest in _HIGHEST.items():
        value = getattr(message, name)
        if not 0 <= value <= highest:
            raise ValueError(f"expected {name} from 0 to {highest}, found {value}")
    return FoundMessage(
        broker_name=broker_name,
        store_host=Host.from_text(message.store_host),
        log_offset=message.log_offset,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        stored_ms=_ms_of(message.stored_at),
        born_ms=_ms_of(message.born_at),
        size=message.size,
        unique_id=message.message_id,
        tag=(message.tag or "").encode("utf-8", "surrogatepass"),
        keys=" ".join(message.keys).encode("utf-8", "surrogatepass"),
    )


def _ms_of(text: str) -> int:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return ms_of(time)
