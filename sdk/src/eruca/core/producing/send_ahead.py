"""Sending ahead: which batches of an ordered lane may be sent before earlier ones are answered.

A lane sends one batch at a time. While batches wait for that, it sends several ahead, in order, on
one connection. Each batch names its position then (:class:`eruca.contract.wire.LanePosition`), and
a broker stores it only if it has stored the one before it. States of a lane::

    state   may be sent                           event                                 then
    alone   the first batch, if none is under     a batch with a position was stored    ahead
            way; with a position, as sequence 0   any failure                           alone
            of a new epoch, if others wait
    ahead   each batch, once all before it are    a failure, or nothing is left to      alone
            under way; as the next sequence       send

Invariants:

1. A batch under way with a position follows batches of its epoch that are all stored or under way.
2. A new epoch begins when nothing is under way: the outcome of every earlier request is known, or
   given up.
3. The connection of an epoch ends with it. If it is lost, no later batch of the epoch is sent on
   another one, where it could be stored and acknowledged before the failure is known.
4. After a failure, what is not stored is sent again in its order. Then copies repeat a suffix.
5. A batch without a position is alone under way.
6. After a failure of a batch with a position, the next one has one, too, if it may: a later epoch
   shuts out what is still on its way. It does so even if the lane has no connection of its own, and
   can send nothing ahead.
7. Several batches under way have at most :data:`AHEAD_BYTES_MAX` bytes together. A larger batch is
   alone under way: it fills the link by itself, and the next one would wait behind it while its own
   time limit runs.

A batch that is sent in parts, because one of its messages was refused, is sent alone.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from eruca.contract.wire import LANE_NUMBER_MAX, LanePosition

AHEAD_BYTES_MAX: Final = 1024 * 1024  # of several batches; half of a full one by default


class AheadState(Enum):
    """States of a lane."""

    ALONE = "alone"
    AHEAD = "ahead"


class Turn(NamedTuple):
    """The way in which a batch is sent."""

    position: LanePosition | None  # None: as a batch of no lane
    is_ahead: bool  # on the lane's own connection, before earlier batches are answered


class Seat:
    """A batch's place in its lane, until it is stored or has failed for good.

    Args:
        size: Of the batch, in bytes, estimated.
    """

    __slots__ = ("is_divided", "is_under_way", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.is_under_way = False
        self.is_divided = False  # it is sent in parts


class SendAhead:
    """The decisions of one lane.

    Args:
        lane: Its random name, 8 bytes.
    """

    def __init__(self, lane: bytes) -> None:
        self._lane = lane
        self._state = AheadState.ALONE
        self._seats: list[Seat] = []  # unfinished batches, in order
        self._epoch = 0
        self._sequence = 0  # of the last batch with a position
        self._url = ""  # of the broker that knows the epoch
        self._opening: Seat | None = None  # sequence 0, under way
        self.is_wanted = False  # whether batches have waited for earlier ones
        self.is_unsettled = False  # whether requests of the epoch may still arrive at the broker

    @property
    def is_ahead(self) -> bool:
        """True if several batches may be under way."""
        return self._state is AheadState.AHEAD

    @property
    def wants_position(self) -> bool:
        """True if the next batch that is sent alone begins an epoch, if it may."""
        return self.is_wanted or self.is_unsettled

    @property
    def under_way_count(self) -> int:
        """Number of batches under way."""
        return sum(seat.is_under_way for seat in self._seats)

    @property
    def bytes_under_way(self) -> int:
        """Number of bytes of the batches under way."""
        return sum(seat.size for seat in self._seats if seat.is_under_way)

    def enter(self, size: int) -> Seat:
        """Return the seat of the next batch, of *size* bytes."""
        seat = Seat(size)
        self._seats.append(seat)
        return seat

    def is_next(self, seat: Seat) -> bool:
        """Tell whether a batch is the next one to send, and need not wait for an earlier one."""
        before = self._seats[: self._seats.index(seat)]
        if self._state is AheadState.AHEAD:
            bytes_under_way = self.bytes_under_way
            has_room = not bytes_under_way or bytes_under_way + seat.size <= AHEAD_BYTES_MAX
            return has_room and all(earlier.is_under_way for earlier in before)
        return not before and not self.under_way_count

    def turn(
        self, seat: Seat, url: str, *, may_have_position: bool, has_connection: bool
    ) -> Turn | None:
        """Return how to send a batch to *url* now, which is under way then; None: it must wait.

        Args:
            seat: The batch's.
            url: Of its broker.
            may_have_position: Whether the batch and the broker allow a position.
            has_connection: Whether the lane has a connection of its own to send ahead on.
        """
        assert not seat.is_under_way, "a batch has one request under way"
        assert seat in self._seats, "a finished batch is not sent again"
        may_have_position = may_have_position and not seat.is_divided
        if self._state is AheadState.AHEAD:
            if (
                may_have_position
                and has_connection
                and url == self._url
                and self._sequence < LANE_NUMBER_MAX
            ):
                if not self.is_next(seat):
                    return None
                self._sequence += 1
                seat.is_under_way = True
                return Turn(LanePosition(self._lane, self._epoch, self._sequence), is_ahead=True)
            if self.under_way_count:
                return None
            self._state = AheadState.ALONE
        if not self.is_next(seat):
            return None
        seat.is_under_way = True
        self._opening = None
        opens = self.is_unsettled or (self.is_wanted and has_connection)
        if not (may_have_position and opens and self._epoch < LANE_NUMBER_MAX):
            return Turn(None, is_ahead=False)
        self._epoch += 1
        self._sequence = 0
        self._url = url
        self._opening = seat
        return Turn(LanePosition(self._lane, self._epoch, 0), is_ahead=False)

    def stored(self, seat: Seat) -> None:
        """Record that the broker has stored the batch, or a part of it."""
        assert seat.is_under_way
        seat.is_under_way = False
        if not seat.is_divided:
            self._seats.remove(seat)
        if self._opening is seat:
            assert self._state is AheadState.ALONE, "an epoch opens while nothing else is under way"
            self._opening = None
            self.is_unsettled = False
            self._state = AheadState.AHEAD

    def failed(self, seat: Seat) -> None:
        """Record that an attempt has failed, whatever became of the batch."""
        assert seat.is_under_way
        seat.is_under_way = False
        if self._opening is seat or self._state is AheadState.AHEAD:
            self.is_unsettled = True
        self._opening = None
        self._state = AheadState.ALONE

    def leave(self, seat: Seat) -> None:
        """Record that a batch is finished: stored, failed for good, or withdrawn."""
        if seat.is_under_way:
            self.failed(seat)
        if seat in self._seats:
            self._seats.remove(seat)

    def rest(self) -> None:
        """Record that the lane has nothing to send."""
        assert not self._seats, "an unfinished batch is something to send"
        self._state = AheadState.ALONE
        self.is_wanted = False
