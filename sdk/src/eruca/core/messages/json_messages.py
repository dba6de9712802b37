"""Messages as JSON: the form of half messages, and of delayed ones where records cannot have it.

Bodies are sent as
base64, whose size is known in advance. A body that was made from a JSON value is sent as that
value. So the broker and the readers know that it is JSON.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence

import msgspec

from eruca.contract.messages import Body, NewMessage, NewMessages
from eruca.core.messages.message import Message


def json_batch(messages: Sequence[Message], message_ids: Sequence[str]) -> bytes:
    """Return the request body that stores *messages* together, each under its id."""
    new = [
        new_message(message, message_id)
        for message, message_id in zip(messages, message_ids, strict=True)
    ]
    return msgspec.json.encode(NewMessages(new))


def new_message(message: Message, message_id: str) -> NewMessage:
    """Return *message* in the JSON contract's form, with that id."""
    return NewMessage(
        body=_body(message),
        tag=message.tag,
        keys=list(message.keys),
        properties=message.properties,
        sharding_key=message.sharding_key,
        message_id=message_id,
        flag=message.flag,
        deliver_at=message.deliver_at,
        delay_seconds=message.delay_seconds,
        delay_level=message.delay_level,
    )


def _body(message: Message) -> Body:
    if message.is_json:
        return Body(json=msgspec.Raw(message.body))
    return Body(base64=b64encode(message.body).decode("ascii"))
