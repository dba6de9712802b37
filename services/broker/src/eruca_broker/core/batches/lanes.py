"""The lanes of producers that send ahead: which batch of a lane is stored next.

A producer that sends batches in order, without waiting for each answer, names each batch's position
in its lane (``eruca.contract.wire``). A batch is accepted only if the one before it was accepted in
the same epoch. So what follows a refused batch is refused as well, and first copies are stored in
order::

    known of the lane         the batch has                    then
    nothing                   sequence 0                       accepted; next is 1
    nothing                   another sequence                 refused
    epoch e, next n           epoch e, sequence n              accepted; next is n + 1
    epoch e, next n           epoch e, another sequence        refused
    epoch e, closed           epoch e                          refused
    epoch e                   an earlier epoch                 refused
    epoch e                   a later epoch, sequence 0        accepted; next is 1
    epoch e                   a later epoch, another sequence  refused

An epoch is closed when a batch that was accepted is taken back. What was accepted after it is taken
back with it: the writer does that. The table is memory only and bounded. A lane that it has lost
begins again with sequence 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from eruca.contract.errors import LaneGapError
from eruca.contract.wire import LanePosition

LANES_MAX: Final = 16_384  # lanes that are known; the one that was used longest ago is forgotten


class _Lane(NamedTuple):
    epoch: int
    next_sequence: int | None  # None: the epoch is closed


class Lanes:
    """The lanes of all producers of a broker.

    Args:
        count_max: Maximum number of lanes that are known.
    """

    def __init__(self, count_max: int = LANES_MAX) -> None:
        assert count_max >= 1
        self._count_max = count_max
        self._lanes: dict[bytes, _Lane] = {}  # the one that was used last is the last

    def __len__(self) -> int:
        return len(self._lanes)

    def check(self, position: LanePosition) -> None:
        """Raise LaneGapError unless a batch at *position* may be accepted now."""
        lane, epoch, sequence = position
        known = self._lanes.get(lane)
        if known is None or epoch > known.epoch:
            if sequence:
                raise _gap(position, f"sequence 0: epoch {epoch} is new here")
        elif epoch < known.epoch:
            raise _gap(position, f"epoch {known.epoch} or a later one")
        elif known.next_sequence is None:
            raise _gap(position, f"an epoch after {epoch}, which has ended with a refused batch")
        elif sequence != known.next_sequence:
            raise _gap(position, f"sequence {known.next_sequence}")

    def accept(self, position: LanePosition) -> None:
        """Record that a batch, which :meth:`check` has let pass, is accepted."""
        lane, epoch, sequence = position
        known = self._lanes.pop(lane, None)
        assert known is None or epoch > known.epoch or sequence == known.next_sequence
        self._lanes[lane] = _Lane(epoch, sequence + 1)
        if len(self._lanes) > self._count_max:
            del self._lanes[next(iter(self._lanes))]

    def close(self, position: LanePosition) -> None:
        """Record that an accepted batch was taken back: nothing of its epoch may follow."""
        known = self._lanes.get(position.lane)
        if known is not None and known.epoch == position.epoch:
            self._lanes[position.lane] = known._replace(next_sequence=None)


def _gap(position: LanePosition, expected: str) -> LaneGapError:
    return LaneGapError(
        f"lane {position.lane.hex()}: expected {expected}, found epoch {position.epoch}, sequence "
        f"{position.sequence}"
    )
