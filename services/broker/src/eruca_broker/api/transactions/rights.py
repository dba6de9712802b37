"""The rights on a transaction: they are those on its topic and its producer group.

A request names a transaction by its id alone, so the rights follow from what is found. To a caller
without any right on its topic, a transaction does not exist.
"""

from __future__ import annotations

from eruca.contract.access import Right
from eruca.contract.transactions import Decide
from eruca_access.needs import on_group, on_log, on_topic
from eruca_broker.processors.transactions.views import Owner
from eruca_broker.processors.transactions.writes import not_found
from eruca_chassis.admission.gate import Access


def require_sight(access: Access, owner: Owner) -> None:
    """Refuse to show a transaction to a caller without any right on its topic.

    Raises:
        TransactionNotFoundError: The caller has none.
    """
    if not access.may(on_topic(owner.topic)) and not access.may(on_log(Right.QUERY)):
        raise not_found(owner.transaction_id)


def require_decision(access: Access, owner: Owner, decision: Decide) -> None:
    """Refuse a decision of a caller that may not decide the transaction.

    A producer needs the right to produce, to the topic and as a member of the group. An operator
    has to administer the topic. A transaction checker hands on what both of them say.

    Raises:
        TransactionNotFoundError: The caller has no right on its topic at all.
        ForbiddenError: The caller lacks the right.
    """
    require_sight(access, owner)
    administers = on_topic(owner.topic, Right.ADMINISTER)
    if access.may(on_log(Right.ADMINISTER)):
        if decision.by == "operator":
            access.acts_on(administers)
        return
    if decision.by == "operator":
        access.require(administers)
    else:
        access.require(
            on_topic(owner.topic, Right.PRODUCE),
            on_group(owner.producer_group, Right.PRODUCE),
        )
