"""Errors that many operations share, for their declarations."""

from __future__ import annotations

from typing import Final

from eruca.contract.errors import (
    DiskFullError,
    ErucaError,
    NotReadyError,
    StoreFailedError,
    UnavailableError,
)

WRITE_REFUSALS: Final[tuple[type[ErucaError], ...]] = (
    DiskFullError,
    NotReadyError,
    StoreFailedError,
    UnavailableError,
)
"""Reasons for which the store accepts no writes now; all are 503."""
