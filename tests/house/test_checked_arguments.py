"""Every public call of the SDK checks what it is given by its annotations, or itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import eruca
from eruca.core.checked_arguments import checked_argument_names, checked_calls

# These are on the way of every message, so they check by hand.
CHECKED_BY_HAND: Final = frozenset(
    {"AsyncProducer.send", "AsyncProducer.send_oneway", "AsyncProducer.submit"}
)


def public_calls() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the calls with arguments of what the async SDK is made of; the sync one calls them."""
    for name in vars(eruca)["__all__"]:
        if not name.startswith("Async"):
            continue
        for called, call in inspect.getmembers(getattr(eruca, name), inspect.isfunction):
            has_arguments = len(inspect.signature(call).parameters) > 1
            is_ours = called == "leave"  # how a client ends what was made from it
            if has_arguments and not is_ours and not called.startswith("_"):
                yield f"{name}.{called}", call


def test_every_public_call_checks_its_arguments_by_annotations_that_can_be_resolved() -> None:
    calls = dict(public_calls())
    unchecked = {title for title, call in calls.items() if checked_argument_names(call) is None}

    assert len(calls) > 50
    assert unchecked == CHECKED_BY_HAND


def test_an_annotation_that_cannot_be_resolved_is_an_error_and_lets_nothing_through() -> None:
    @checked_calls()
    class Careless:
        def call(self, value: NotImported) -> None:  # type: ignore[name-defined] # noqa: F821
            """Take anything."""

    with pytest.raises(NameError, match="NotImported"):
        checked_argument_names(Careless.call)
    with pytest.raises(NameError, match="NotImported"):
        Careless().call(7)
