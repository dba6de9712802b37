"""Ending sessions that are over, so that the queues of members that died are free."""

from __future__ import annotations

from typing import Final

from eruca_broker.processors.groups.members import Members
from eruca_chassis.loops import BackgroundLoop

PERIOD_SECONDS: Final = 0.25  # how late a session may end; a look costs nothing while none is due


def session_loop(members: Members) -> BackgroundLoop:
    """Return the loop that ends the sessions of members that were not heard from in time."""
    return BackgroundLoop("sessions", members.expiry_step, period_seconds=PERIOD_SECONDS)
