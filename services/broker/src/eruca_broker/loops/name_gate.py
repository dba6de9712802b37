"""The gate between a broker's name and its work."""

from __future__ import annotations

from eruca.contract.errors import ConflictError
from eruca_chassis.readiness import Readiness


class NameGate:
    """Keeps a broker from working while another one has its name at the name servers."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._is_shut = False

    def judge(self, refusal: ConflictError | None) -> None:
        """Close the gate because of a *refusal*; open it once there is none."""
        if refusal is not None:
            self._readiness.not_ready(
                f"its name is in use, so consumers would not see its messages: {refusal.detail}",
                fix=refusal.fix,
            )
        elif self._is_shut:
            self._readiness.ready()
        self._is_shut = refusal is not None
