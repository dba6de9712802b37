"""Transaction producers over a scripted broker."""

from __future__ import annotations

import eruca
from support.scripted_transport import Request

MESSAGE = eruca.Message("orders", "an order", keys="order-7", delay_seconds=60)


def decisions(requests: list[Request]) -> list[str]:
    """Return the outcomes that were sent to brokers."""
    targets = [request.target for request in requests]
    return [target.rpartition(":")[2] for target in targets if ":" in target]
