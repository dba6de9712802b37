"""Functions that a program hands to a call: refused where they cannot be called as they will be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import eruca

CALLS: dict[str, Callable[[eruca.AsyncClient, Any], object]] = {
    "check": lambda client, given: client.transaction_producer("g", check=given),
    "on_assigned": lambda client, given: client.push_consumer(
        "g", listeners=eruca.Listeners(on_assigned=given)
    ),
    "on_revoked": lambda client, given: client.push_consumer(
        "g", listeners=eruca.Listeners(on_revoked=given)
    ),
    "on_lost": lambda client, given: client.push_consumer(
        "g", listeners=eruca.Listeners(on_lost=given)
    ),
    "on_damaged": lambda client, given: client.push_consumer(
        "g", listeners=eruca.Listeners(on_damaged=given)
    ),
}


@pytest.mark.anyio
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("given", [lambda: None, lambda first, second: None], ids=["none", "two"])
async def test_a_function_of_the_wrong_arity_is_refused_by_name(
    name: str, given: Callable[..., Any]
) -> None:
    async with eruca.AsyncClient("http://127.0.0.1:1") as client:
        with pytest.raises(eruca.ValidationError, match=f"{name}: .* that takes 1 argument"):
            CALLS[name](client, given)


@pytest.mark.anyio
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "given",
    [lambda first: None, lambda first, second=0: None, lambda *all_of_it: None, [].append, print],
)
async def test_a_function_that_can_be_called_is_taken(name: str, given: Callable[..., Any]) -> None:
    async with eruca.AsyncClient("http://127.0.0.1:1") as client:
        CALLS[name](client, given)
