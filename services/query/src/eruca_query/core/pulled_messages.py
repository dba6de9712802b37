"""Messages as brokers tell of them in JSON, for comparing with those of the read model."""

from __future__ import annotations

from datetime import datetime

from eruca.contract.messages import PulledMessage
from eruca.contract.records import Host
from eruca_query.core.found_messages import FoundMessage, ms_of


def found_of(broker_name: str, message: PulledMessage) -> FoundMessage:
    """Return what a broker's message says of itself."""
    return FoundMessage(
        broker_name=broker_name,
        store_host=Host.from_text(message.store_host),
        log_offset=message.log_offset,
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
        stored_ms=ms_of(datetime.fromisoformat(message.stored_at)),
        born_ms=ms_of(datetime.fromisoformat(message.born_at)),
        size=message.size,
        unique_id=message.message_id,
        tag=(message.tag or "").encode("utf-8", "surrogatepass"),
        keys=" ".join(message.keys).encode("utf-8", "surrogatepass"),
    )
