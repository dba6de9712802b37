"""The row of a damaged message: its place and its fault, since nothing else is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eruca.contract.exports import PLACE_COLUMNS
from eruca.contract.messages import PulledMessage
from eruca.rows.arrow_schema import arrow_schema


@dataclass(frozen=True, slots=True)
class DamagedRow:
    """One damaged message, as its broker describes it."""

    broker_name: str
    message: PulledMessage
    columns: Sequence[str]  # the requested ones, ``damage`` among them

    def batch(self) -> pa.RecordBatch:
        """Return the row."""
        assert self.message.damage is not None
        assert "damage" in self.columns, "a damaged row would look like a valid one"
        row = {name: getattr(self.message, name, None) for name in (*PLACE_COLUMNS, "damage")}
        row["broker_name"] = self.broker_name
        return pa.RecordBatch.from_pylist(
            [{name: row.get(name) for name in self.columns}], schema=arrow_schema(self.columns)
        )

    def are_json(self) -> NDArray[np.bool_]:
        """Return False: the row has no body that was sent as JSON."""
        return np.zeros(1, np.bool_)
