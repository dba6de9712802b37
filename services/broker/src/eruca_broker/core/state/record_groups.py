"""Groups of records: an event and what it says has happened, in the log together or not at all.

Some events head a **group**: the records behind them, ``group_size`` bytes of them, were handed to
the disk in the same write, into one segment and with nothing in between. So the only group that a
crash can tear is the last thing in the log; the start sees that, by the last event and the log's
end, and cuts the log in front of the event. "Fired" and "delivered" are thus one fact, and so are
"decided" and "committed", "redriven" and "sent again". No later event has to take one back.

A new kind of event that others belong to is named here, and needs nothing else.
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
