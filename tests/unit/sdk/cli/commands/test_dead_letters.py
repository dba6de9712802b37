"""Dead letters as the command line lists them."""

from __future__ import annotations

from eruca.aio.dead_letters import HeldDeadLetter
from eruca.cli.commands.dead_letters import _row
from eruca.contract.retries import DeadLetter


def test_a_damaged_dead_letter_is_listed_with_what_is_wrong_instead_of_its_error() -> None:
    names = DeadLetter.model_fields
    letter = DeadLetter.model_validate(
        dict.fromkeys(names) | {"dead_letter_id": 7, "size": 300, "damage": "at log offset 5: bad"}
    )

    row = _row(HeldDeadLetter("broker-a", letter))

    assert row[0] == "broker-a/7"
    assert row[5] == "damaged at log offset 5: bad"
    assert [value for at, value in enumerate(row) if at not in {0, 5}] == [None] * 6
