"""Put the trace context of a send into its messages, as the SDK does itself.

W3C's headers ``traceparent`` and ``tracestate`` become the properties of the same names. A record
has its own properties and is stored as it comes, so only messages in JSON and octets get them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.messages import NewMessage
from eruca_chassis.asgi import TRACEPARENT_HEADER, trace_context_said
from eruca_chassis.connections.exchange import RequestHead

_PARENT: Final = TRACEPARENT_HEADER.decode()
_ROOM: Final = 2 * 1024  # bytes of properties left for the context, ids and delays


def traced(messages: list[NewMessage], request: RequestHead) -> list[NewMessage]:
    """Return *messages* as part of the request's trace.

    A message with its own ``traceparent`` keeps it.
    """
    if TRACEPARENT_HEADER not in request.headers:
        return messages
    context = trace_context_said(request.headers)
    return [_with_context(message, context) for message in messages] if context else messages


def _with_context(message: NewMessage, context: dict[str, str]) -> NewMessage:
    properties = message.properties
    if _PARENT in properties or _size(message) > PROPERTIES_SIZE_MAX - _ROOM:
        return message  # a header must not make a message too large
    return msgspec.structs.replace(message, properties={**properties, **context})


def _size(message: NewMessage) -> int:
    texts: Iterable[str] = (
        message.tag or "",
        message.sharding_key or "",
        *message.keys,
        *message.properties,
        *message.properties.values(),
    )
    return sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts)
