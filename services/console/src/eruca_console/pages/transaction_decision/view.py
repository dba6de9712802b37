"""The view of what a decision would change, and the act that decides.

A decision cannot be taken back. So the page says first what it changes, and needs a reason, which
the broker records, and the topic's name typed.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from eruca.contract.errors import ValidationError
from eruca.contract.limits import REASON_SIZE_MAX
from eruca_console.cluster.outcomes import outcome
from eruca_console.cluster.readers import receivers_of
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.pages.transaction.view import DECIDERS, STATES
from eruca_console.shell.forms import check_typed, text_of
from eruca_console.shell.pages import Fields, Page, Shown, Visit

OUTCOMES: Final = ("commit", "rollback")
TITLES: Final = {"commit": N_("Commit a transaction"), "rollback": N_("Roll back a transaction")}


async def view(visit: Visit) -> Shown:
    """Return what a decision would change.

    Raises:
        TransactionNotFoundError: Its broker does not know it.
        ValidationError: A parameter is unknown or invalid.
    """
    check_parameters(visit.query, ("outcome",))
    wanted = _outcome(visit.query.get("outcome", ""), "query.outcome")
    found = await visit.reading.transaction(*_place(visit))
    groups = await outcome(visit.reading.groups())
    transaction = found.value.detail
    values: dict[str, Any] = {
        **_frame(visit, wanted),
        "step": "preview",
        "transaction": transaction,
        "found": found,
        "receivers": receivers_of(groups, transaction.topic),
        "may_be_decided": transaction.state in ("pending", "parked"),
        "reason_max": REASON_SIZE_MAX,
    }
    return Shown(TITLES[wanted], values, _recipe(visit, wanted, "…"))


async def act(visit: Visit, fields: Fields) -> Shown:
    """Decide the transaction.

    Raises:
        AlreadyDecidedError: There is another decision already.
        ValidationError: A field is missing or invalid; nothing was decided.
    """
    wanted = _outcome(text_of(fields, "outcome"), "outcome")
    reason = text_of(fields, "reason")
    if not 1 <= len(reason) <= REASON_SIZE_MAX:
        raise ValidationError(
            f"reason: expected 1 to {REASON_SIZE_MAX} characters, found {len(reason)};"
            " nothing was decided",
            fix="go back, and say why",
        )
    broker_name, transaction_id = _place(visit)
    found = await visit.reading.transaction(broker_name, transaction_id)
    check_typed(fields, found.value.detail.topic)
    transactions = visit.reading.client.admin.transactions
    decide = transactions.commit if wanted == "commit" else transactions.rollback
    receipt = await decide(transaction_id, reason=reason, broker_name=broker_name)
    visit.reading.cache.clear()
    values: dict[str, Any] = {**_frame(visit, wanted), "step": "done", "receipt": receipt}
    return Shown(TITLES[wanted], values, _recipe(visit, wanted, reason))


def _outcome(text: str, name: str) -> str:
    if text not in OUTCOMES:
        raise ValidationError(
            f"{name}: expected commit or rollback, found {text[:20]!r}",
            fix="choose one on the page of the transaction",
        )
    return text


def _place(visit: Visit) -> tuple[str, str]:
    return visit.path["broker"], visit.path["transaction_id"]


def _frame(visit: Visit, wanted: str) -> dict[str, Any]:
    broker_name, transaction_id = _place(visit)
    return {
        "parent": f"/transactions/{broker_name}/{quote(transaction_id, safe='')}",
        "transaction_id": transaction_id,
        "broker_name": broker_name,
        "outcome": wanted,
        "states": STATES,
        "deciders": DECIDERS,
    }


def _recipe(visit: Visit, wanted: str, reason: str) -> recipes.Recipe:
    broker_name, transaction_id = _place(visit)
    return recipes.Recipe(
        "",
        recipes.python(
            visit.namesrv_urls,
            f"client.admin.transactions.{wanted}(",
            f"    {transaction_id!r}, reason={reason!r}, broker_name={broker_name!r}",
            ")",
        ),
        recipes.cli("txn", wanted, transaction_id, "--broker", broker_name, "--reason", reason),
    )


PAGE: Final = Page(
    "transaction_decision",
    "/transactions/{broker}/{transaction_id}/decision",
    "transactions",
    view,
    parents=((N_("Transactions"), "/transactions"),),
    act=act,
    is_live=False,
)
