"""The transaction checker as an application: its document, its routes, and its limits.

:mod:`.wiring` makes the parts that answer the requests.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from eruca_access.explaining import explaining_router
from eruca_access.settings import gate_of
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.versions import version_of
from eruca_txn_checker.api import brokers, checks, status, transactions, webhooks
from eruca_txn_checker.settings import TxnCheckerSettings
from eruca_txn_checker.wiring import wired

_DESCRIPTION: Final = """
The transaction checker asks producer groups about transactions that nobody has decided: six seconds
after they began, then every 30 seconds, 15 times. A transaction without an answer expires then: it
is rolled back, and parked for an operator. All of these are settings.

A producer gets a check as the answer to a request that is held for it, or through a webhook. It may
also commit or roll back at the broker itself, at any time. The first decision wins.

The data served here comes from the brokers' logs and may be a moment old. Answers to checks and
operators' decisions are forwarded to the broker. Every refusal is an `application/problem+json`
document with a stable `code`.
"""
_TAGS: Final = (
    {"name": "checks", "description": "For producers: wait for checks and answer them"},
    {"name": "webhooks", "description": "For producer groups that prefer to be called"},
    {"name": "transactions", "description": "For operators: pending, parked and past transactions"},
    {"name": "status", "description": "The checker's state and its progress in the logs"},
)


def create_app(settings: TxnCheckerSettings, clock: Clock | None = None) -> ServiceApp:
    """Return the transaction checker's application; its lifespan opens the database."""
    gate = gate_of(settings, "txn-checker")
    return ServiceApp(
        title="Eruca transaction checker",
        summary="Asks producer groups about transactions that nobody has decided",
        description=_DESCRIPTION,
        version=version_of("eruca-txn-checker"),
        tags=_TAGS,
        routers=[
            checks.router,
            webhooks.router,
            transactions.router,
            status.router,
            brokers.router,
            explaining_router(gate),
        ],
        lifespan=partial(wired, settings=settings, clock=clock or SystemClock()),
        guard=settings.guard(),
        gate=gate,
        client_share=settings.client_share,
    )
