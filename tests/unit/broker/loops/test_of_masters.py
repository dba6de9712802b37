"""Loops of masters: the end of a term is no failure, anything else is."""

from __future__ import annotations

import pytest

from eruca.contract.errors import (
    DiskFullError,
    ErucaError,
    NotMasterForSureError,
    OutcomeUnknownError,
)
from eruca_broker.loops.of_masters import until_demoted

pytestmark = pytest.mark.anyio


async def run(outcome: float | ErucaError) -> float | None:
    async def step() -> float | None:
        if isinstance(outcome, ErucaError):
            raise outcome
        return outcome

    return await until_demoted(step)()


async def test_a_step_of_a_master_is_as_it_is() -> None:
    assert await run(0.5) == 0.5
    with pytest.raises(DiskFullError):
        await run(DiskFullError("full"))


@pytest.mark.parametrize("ended", [NotMasterForSureError("over"), OutcomeUnknownError("over")])
async def test_the_end_of_a_term_is_no_failure(ended: ErucaError) -> None:
    assert await run(ended) is None
