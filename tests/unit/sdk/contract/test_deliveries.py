"""Requests about deliveries: what is refused before anything is looked at."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from eruca.contract.deliveries import (
    DeliveryAcks,
    DeliveryExtension,
    DeliveryNacks,
    DeliveryRequest,
)
from eruca.contract.limits import HANDLE_COUNT_MAX


def test_a_request_for_messages_needs_no_more_than_a_topic() -> None:
    request = DeliveryRequest(topic="flights")

    assert (request.filter, request.filter_type, request.count_max) == ("*", "tag", 1)
    assert (request.invisible_seconds, request.wait_seconds, request.start) == (60, 0, None)


@pytest.mark.parametrize(
    "handles",
    [[], ["a", "a"], ["a b"], [""], ["x" * 1_025], [str(n) for n in range(HANDLE_COUNT_MAX + 1)]],
)
@pytest.mark.parametrize("model", [DeliveryAcks, DeliveryNacks, DeliveryExtension])
def test_handles_are_some_distinct_and_of_their_alphabet(model: Any, handles: list[str]) -> None:  # noqa: ANN401
    with pytest.raises(ValidationError):
        model(handles=handles)


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_seconds": -1},
        {"delay_seconds": float("nan")},
        {"reason": "Not A Word"},
        {"error": "x" * 70_000},
        {"surprise": 1},
    ],
)
def test_what_a_nack_cannot_say_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DeliveryNacks.model_validate({"handles": ["a"], **fields})
