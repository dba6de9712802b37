"""What the service and its workers tell each other: steps, and what came of them.

A step, seen from the service, goes through these states; each has one word as its cause::

    begun     Step       its messages are being pulled
    taken     Taken      so many are there; their rows are being made (if there are any)
    made      Made       the worker keeps them until it is their turn
    sending   Send       the worker writes them to the reader's connection, which came with the word
    sent      Sent       the end

From any of them it may end in another way: ``Forget``, when nobody wants the rows any more, and
from the worker ``Refused``, ``Damaged``, ``Failed``, ``ReaderGone``.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from eruca.contract.exports import ARROW_MEDIA_TYPE, DamagedRows, ExportCodec
from eruca.contract.wire import PullStatus
from eruca_query.exports.rows.encoders import ArrowEncoder, NdjsonEncoder, RowEncoder


class RowForm(msgspec.Struct, frozen=True, array_like=True):
    """Which columns, and as what."""

    media_type: str
    columns: tuple[str, ...]
    codec: ExportCodec
    damaged: DamagedRows = "refuse"

    def encoder(self) -> RowEncoder:
        """Return what makes rows of this form."""
        if self.media_type == ARROW_MEDIA_TYPE:
            return ArrowEncoder(self.columns, self.codec)
        return NdjsonEncoder()


# --- The service's words --------------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Messages to pull, and what is to be made of them."""

    number: int  # no other step of the worker's has it
    url: str  # the broker's
    target: str
    timeout: float  # seconds for the pull
    topic: str
    broker_name: str
    queue_id: int
    offset: int  # of the first message
    form: RowForm


class Send(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """It is the rows' turn: with this word comes the connection to write them to."""

    number: int


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Nobody wants the rows any more."""

    number: int


# --- The worker's words ---------------------------------------------------------------------------


class Taken(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The messages are there; rows are made of them, unless there is none, which ends the step.

    Fewer than were pulled where bodies grow too large for one piece. A damaged message is taken
    alone, if its row is to be marked, else not at all.
    """

    number: int
    status: PullStatus
    count: int
    min_offset: int  # of the queue
    max_offset: int
    damage: str | None = None  # of the message at the step's offset: where it lies, and its fault


class Made(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The rows are there."""

    number: int


class Sent(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All of them are on their way to the reader."""

    number: int
    size: int  # bytes


class ReaderGone(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The reader closed its connection, or somebody did."""

    number: int


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


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The worker met an error that it did not expect, which is in the log."""

    number: int


Order: TypeAlias = Step | Send | Forget
Report: TypeAlias = Taken | Made | Sent | ReaderGone | Refused | Damaged | Failed

encode: Final = msgspec.msgpack.Encoder().encode
decode_order: Final = msgspec.msgpack.Decoder(Order).decode
decode_report: Final = msgspec.msgpack.Decoder(Report).decode
