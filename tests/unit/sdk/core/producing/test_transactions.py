"""Verdicts of a program's functions, and checks as those functions see them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eruca.contract.errors import ValidationError
from eruca.contract.transactions import ProducerCheck
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.transactions import transaction_check, verdict_of
from support.scripted_transactions import check_of


def test_a_function_says_one_of_three_things() -> None:
    assert [verdict_of(said) for said in ("commit", "rollback", "unknown", None)] == [
        "commit",
        "rollback",
        "unknown",
        "unknown",
    ]


@pytest.mark.parametrize("said", [True, False, 0, "COMMIT", "committed", b"commit", [], object()])
def test_anything_else_is_no_answer(said: object) -> None:
    with pytest.raises(ValidationError, match="expected a verdict on a transaction"):
        verdict_of(said)


def test_a_check_shows_the_message_where_a_commit_would_store_it() -> None:
    check = transaction_check(ProducerCheck.model_validate(check_of("t", number=3)))

    assert (check.transaction_id, check.producer_group, check.number) == ("t", "group", 3)
    assert check.begun_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert check.message.queue == MessageQueue("orders", "a", 1)
    assert (check.message.topic, check.message.message_id) == ("orders", "t")
    assert check.message.text() == "an order"
    assert (check.message.tag, check.message.keys) == ("paid", ["order-7"])
    assert check.message.properties == {"colour": "red"}


def test_a_check_that_makes_no_sense_is_an_error() -> None:
    senseless = check_of("t") | {"message": {"nothing": 1}}

    with pytest.raises(ValueError, match="missing required field"):
        transaction_check(ProducerCheck.model_validate(senseless))
