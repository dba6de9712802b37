"""Groups of records: an event and the records that it announces, all in the log or none.

Some events head a **group**: the ``group_size`` bytes of records behind them. They were written in
the same write, into one segment and with nothing in between. So the only group that a crash can
tear is the last thing in the log. The start detects that by the last event and the log's end, and
truncates the log in front of the event. So "fired" and "delivered" are one fact, and so are
"decided" and "committed", "redriven" and "sent again". No later event has to revoke one.

A new kind of event that heads a group must be listed here, and needs nothing else.
"""

from __future__ import annotations

from typing import Final

from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionCarried,
    TransactionDecided,
    TransactionParked,
)
from eruca_broker.core.state.lease_events import DeliveriesLeased, DeliveriesNacked
from eruca_broker.core.state.timers_events import DeadLettersRedriven, TimersFired

GROUP_HEADS: Final = (
    TimersFired,
    DeadLettersRedriven,
    DeliveriesLeased,
    DeliveriesNacked,
    TransactionBegun,
    TransactionDecided,
    TransactionParked,
    TransactionCarried,
)
"""Events that head a group, which may be empty."""
