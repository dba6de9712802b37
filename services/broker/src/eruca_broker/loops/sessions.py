"""End expired sessions, so that the queues of members that died become free."""

from __future__ import annotations

from typing import Final

from eruca_broker.loops.of_masters import until_demoted
from eruca_broker.processors.groups.members import Members
from eruca_chassis.loops import BackgroundLoop

PERIOD_SECONDS: Final = 0.25  # maximum delay of a session's end; a look is cheap


def session_loop(members: Members) -> BackgroundLoop:
    """Return the loop that ends the sessions of members without heartbeats."""
    step = until_demoted(members.expiry_step)
    return BackgroundLoop("sessions", step, period_seconds=PERIOD_SECONDS)
