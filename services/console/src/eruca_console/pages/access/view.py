"""The view of the rules at each broker, and of the rule that decides one question."""

from __future__ import annotations

from typing import Any, Final

import pydantic

from eruca.contract.access import AccessQuestion, Right
from eruca.contract.errors import ValidationError
from eruca_console.cluster.outcomes import outcomes
from eruca_console.core import recipes
from eruca_console.core.listing import check_parameters
from eruca_console.core.texts import N_
from eruca_console.shell.pages import Page, Shown, Visit

FIELDS: Final = ("principal", "right", "resource")


async def view(visit: Visit) -> Shown:
    """Return the rules in force and, if it is asked, who may do what.

    Raises:
        ValidationError: A parameter is unknown or invalid.
    """
    check_parameters(visit.query, FIELDS)
    given = {name: visit.query.get(name, "").strip() for name in FIELDS}
    question = _question(given) if any(given.values()) else None
    reading = visit.reading
    live = await reading.brokers()
    groups = {group.broker_name: group for group in live.value}
    statuses = await outcomes(groups, lambda name: reading.access_status(groups[name]))
    answers = (
        {}
        if question is None
        else await outcomes(groups, lambda name: reading.explained(groups[name], question))
    )
    values: dict[str, Any] = {
        "live": live,
        "names": [name for name, one in statuses.items() if one.is_known or one.is_forbidden],
        "silent": {
            **{
                name: one.error
                for name, one in statuses.items()
                if one.error is not None and not one.is_forbidden
            },
            **await reading.absent(),
        },
        "statuses": statuses,
        "question": question,
        "answers": answers,
        "rights": [right.value for right in Right],
        "given": {**given, "principal": given["principal"] or visit.caller.name or ""},
    }
    url = f"{await reading.any_broker_url()}/v1/access"
    recipe = recipes.Recipe(recipes.curl(url, has_key=visit.has_key), "", "")
    return Shown(N_("Access"), values, recipe)


def _question(given: dict[str, str]) -> AccessQuestion:
    try:
        return AccessQuestion.model_validate(given)
    except pydantic.ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = ".".join(map(str, fault["loc"]))
        raise ValidationError(
            f"query.{name}: {fault['msg']}",
            fix="such as principal=user:checkout, right=produce, resource=topic:orders",
        ) from None


PAGE: Final = Page("access", "/access", "access", view, is_live=False)
