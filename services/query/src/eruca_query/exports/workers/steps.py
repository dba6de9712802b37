"""The messages between the service and its workers: steps, and their outcomes.

From the service's view, a step goes through these states, each caused by one message::

    begun     Step       its messages are being pulled
    taken     Taken      the number is known; the rows are being built (if there are any)
    made      Made       the worker keeps them until it is their turn
    sending   Send       the worker writes them to the reader's connection, lent with the message
    sent      Sent       the end

From any state it may end in another way: by ``Forget`` from the service, if nobody needs the rows
any more, or by ``Refused``, ``Damaged``, ``Failed`` or ``ReaderGone`` from the worker.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from eruca.contract.exports import ARROW_MEDIA_TYPE, DamagedRows, ExportCodec
from eruca.contract.wire import PullStatus
from eruca_query.exports.rows.encoders import ArrowEncoder, NdjsonEncoder, RowEncoder


class RowForm(msgspec.Struct, frozen=True, array_like=True):
    """The columns of rows, and their encoding."""

    media_type: str
    columns: tuple[str, ...]
    codec: ExportCodec
    damaged: DamagedRows = "refuse"

    def encoder(self) -> RowEncoder:
        """Return the encoder of this form."""
        if self.media_type == ARROW_MEDIA_TYPE:
            return ArrowEncoder(self.columns, self.codec)
        return NdjsonEncoder()


# --- The service's messages -----------------------------------------------------------------------


class Step(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Messages to pull, and the form of their rows."""

    number: int  # unique among the worker's steps
    url: str  # the broker's
    target: str
    timeout: float  # seconds for the pull
    topic: str
    broker_name: str
    queue_id: int
    offset: int  # of the first message
    form: RowForm


class Send(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """It is the rows' turn: the connection to write them to comes with this message."""

    number: int


class Forget(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The rows are no longer needed."""

    number: int


# --- The worker's messages ------------------------------------------------------------------------


class Taken(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The messages have arrived; their rows are being built. Without messages the step ends here.

    If bodies grow too large for one piece, fewer messages are taken than were pulled. A damaged
    message is taken alone if its row must be marked, else not at all.
    """

    number: int
    status: PullStatus
    count: int
    min_offset: int  # of the queue
    max_offset: int
    damage: str | None = None  # place and fault of a damaged message at the step's offset


class Made(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The rows are built."""

    number: int


class Sent(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """All rows have been written to the reader's connection."""

    number: int
    size: int  # bytes


class ReaderGone(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The reader's connection is closed."""

    number: int


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker cannot be asked, or refuses the pull."""

    number: int
    status: int
    problem: dict[str, Any]
    retry_after_seconds: float | None


class Damaged(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The broker's answer does not contain the expected records."""

    number: int
    detail: str


class Failed(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The worker met an unexpected error, which is in the log."""

    number: int


Order: TypeAlias = Step | Send | Forget
Report: TypeAlias = Taken | Made | Sent | ReaderGone | Refused | Damaged | Failed

encode: Final = msgspec.msgpack.Encoder().encode
decode_order: Final = msgspec.msgpack.Decoder(Order).decode
decode_report: Final = msgspec.msgpack.Decoder(Report).decode
