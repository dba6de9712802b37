"""The id of a check: what a producer answers to.

It follows from what it names, so that it is the same after the rows were lost and read again, and
it tells nobody else's.
"""

from __future__ import annotations

import hashlib
from typing import Final

_SIZE: Final = 20  # bytes of the digest; far beyond accidents


def check_id_of(broker_name: str, transaction_id: str, number: int) -> str:
    """Return the id of a transaction's *number*-th check."""
    named = f"{broker_name}\n{transaction_id}\n{number}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[: 2 * _SIZE]
