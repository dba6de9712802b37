"""What the service and its workers tell each other: steps, and what came of them.

Over a stream socket: the service tells a step, the worker how many messages it has got, as soon as
it has them, and then the rows; or that something went wrong. Words of several steps may be mixed,
so each has its step's number. Words are MessagePack behind their size; behind :class:`Rows` come
the rows themselves.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import msgspec

from eruca.contract.exports import ARROW_MEDIA_TYPE, ExportCodec
from eruca.contract.wire import PullStatus
from eruca_query.exports.rows.encoders import ArrowEncoder, NdjsonEncoder, RowEncoder

WORD_SIZE: Final = struct.Struct(">I")


class RowForm(msgspec.Struct, frozen=True, array_like=True):
    """Which columns, and as what."""

    media_type: str
    columns: tuple[str, ...]
    codec: ExportCodec

    def encoder(self) -> RowEncoder:
        """Return what makes rows of this form."""
        if self.media_type == ARROW_MEDIA_TYPE:
            return ArrowEncoder(self.columns, self.codec)
        return NdjsonEncoder()


class Step(msgspec.Struct, frozen=True, array_like=True):
    """Messages to pull, and what is to be made of them."""

    number: int  # no other step that is under way in the worker has it
    url: str  # the broker's
    target: str
    timeout: float  # seconds for the pull
    topic: str
    broker_name: str
    queue_id: int
    offset: int  # of the first message
    form: RowForm


class Taken(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The messages are there; their rows follow, unless there is none.

    Fewer than were pulled where bodies grow too large for one piece.
    """

    number: int
    status: PullStatus
    count: int
    min_offset: int  # of the queue
    max_offset: int


class Rows(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """So many bytes of rows follow."""

    number: int
    size: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker cannot be asked, or refuses."""

    number: int
    status: int
    problem: dict[str, Any]
    retry_after_seconds: float | None


class Damaged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What the broker sent is not the records that it is to be."""

    number: int
    detail: str


Word: TypeAlias = Taken | Rows | Refused | Damaged

_ENCODER: Final = msgspec.msgpack.Encoder()
decode_step: Final = msgspec.msgpack.Decoder(Step).decode
decode_word: Final = msgspec.msgpack.Decoder(Word).decode


def encode(said: Step | Word) -> bytes:
    """Return a step or a word behind its size."""
    data = _ENCODER.encode(said)
    return WORD_SIZE.pack(len(data)) + data
