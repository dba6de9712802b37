"""The messages that a replica lacks, counted in the log of another one that has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from eruca.aio.http.transport import problem_error, target_of
from eruca.contract.errors import ErucaError, TransportError
from eruca.contract.limits import LOG_READ_SIZE_MAX
from eruca.contract.names import EVENTS_TOPIC, OP_HALF_TOPIC
from eruca.contract.wire import LOG_MEDIA_TYPE, NEXT_OFFSET_HEADER
from eruca.core.messages.log_block import split_log_block

if TYPE_CHECKING:
    from eruca.aio.http.transport import HttpTransport

COUNTED_BYTES_MAX: Final = 256 * 1024**2  # that are read for a number; some seconds
ANSWER_SECONDS: Final = 10.0
_NO_MESSAGES: Final = frozenset({EVENTS_TOPIC, OP_HALF_TOPIC})


@dataclass(frozen=True, slots=True)
class MissingMessages:
    """A number of messages."""

    count: int
    is_all: bool  # False: there are more, which were not read


async def missing_messages(
    transport: HttpTransport, url: str, from_offset: int, to_offset: int
) -> MissingMessages | None:
    """Return the number of messages between two log offsets of the replica at *url*.

    None: it does not answer, or has no record that begins at *from_offset*. Then the two logs
    differ already before.
    """
    count, position = 0, from_offset
    while position < min(to_offset, from_offset + COUNTED_BYTES_MAX):
        try:
            found, after = await _read(transport, url, position, to_offset)
        except ErucaError:
            return None
        count += found
        if after <= position:
            break  # it shows no more
        position = after
    return MissingMessages(count, position >= to_offset)


async def _read(
    transport: HttpTransport, url: str, position: int, to_offset: int
) -> tuple[int, int]:
    """Return the number of messages of one block, and the log offset after it."""
    target = target_of("/v1/log", from_offset=position, bytes_max=LOG_READ_SIZE_MAX)
    headers = [("accept", LOG_MEDIA_TYPE)]
    answer = await transport.request("GET", url, target, headers=headers, timeout=ANSWER_SECONDS)
    if answer.status != 200:
        raise problem_error(answer, f"GET {url}{target}")
    try:
        after = int(answer.headers[NEXT_OFFSET_HEADER])
        records = [*split_log_block("", answer.body)]
    except (KeyError, ValueError) as error:
        raise TransportError(f"{url}: the answer is no part of a log: {error}") from error
    messages = (r for r in records if r.log_offset < to_offset and r.topic not in _NO_MESSAGES)
    return sum(1 for _ in messages), after
