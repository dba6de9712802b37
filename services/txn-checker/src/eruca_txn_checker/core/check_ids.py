"""The id of a check, which a producer's answer names.

It is derived from the transaction and the check's number. So it is the same after the rows were
lost and rebuilt, and it does not reveal other checks' ids.
"""

from __future__ import annotations

import hashlib
from typing import Final

_SIZE: Final = 20  # bytes of the digest; collisions are out of the question


def check_id_of(broker_name: str, transaction_id: str, number: int) -> str:
    """Return the id of a transaction's *number*-th check."""
    named = f"{broker_name}\n{transaction_id}\n{number}"
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[: 2 * _SIZE]
