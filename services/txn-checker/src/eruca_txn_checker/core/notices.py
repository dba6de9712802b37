"""The notices that instances send each other (:mod:`eruca_postgres.notices`), and who heeds them.

===========  =====================================================  ========================
Notice       Sent in the transaction that                           Wakes, at all instances
===========  =====================================================  ========================
``CHECKS``   opens checks, opens them again, or changes a webhook   producers, webhooks
``DUE``      keeps an answer whose broker did not take it, changes  the loops of due
             a webhook, or notes a group that nobody waited for     transactions
===========  =====================================================  ========================
"""

from __future__ import annotations

from typing import Final

CHECKS: Final = "checks"
DUE: Final = "due"
