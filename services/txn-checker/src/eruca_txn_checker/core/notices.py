"""The notices between instances (:mod:`eruca_postgres.notices`), and the loops that they wake.

===========  =====================================================  ========================
Notice       Sent in the transaction that                           Wakes, at all instances
===========  =====================================================  ========================
``CHECKS``   opens or reopens checks, or changes a webhook          producers, webhooks
``DUE``      stores an answer that the broker did not accept,       the loops of due
             changes a webhook, or records a newly reachable group  transactions
===========  =====================================================  ========================
"""

from __future__ import annotations

from typing import Final

CHECKS: Final = "checks"
DUE: Final = "due"
