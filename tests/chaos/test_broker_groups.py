"""A broker group under faults keeps every promise: a short run, with other faults each time.

``ERUCA_CHAOS_SEED`` repeats the decisions of a run that has failed, though not its timing. The
directory of a failed run has its history, its logs and its report.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import SystemRandom

import pytest

from chaos.checkers import check
from chaos.cluster import Shape
from chaos.report import counts_of, page_of, text_of
from chaos.run import Plan, run

SECONDS = 30.0
CI_SEED = 51


@pytest.mark.timeout(400)
def test_a_broker_group_keeps_its_promises_under_faults(tmp_path: Path) -> None:
    default = CI_SEED if "CI" in os.environ else SystemRandom().randrange(2**32)
    seed = int(os.environ.get("ERUCA_CHAOS_SEED") or default)
    plan = Plan(seed=seed, seconds=SECONDS, shape=Shape(brokers=("broker-a",), arbiter="postgres"))

    history = asyncio.run(run(plan, tmp_path))

    verdicts = check(history)
    (tmp_path / "report.html").write_text(page_of(history, verdicts))
    print(f"ERUCA_CHAOS_SEED={seed}\n{text_of(history, verdicts)}")  # noqa: T201 - of a failure
    assert {name: found for name, found in verdicts.items() if found} == {}
    assert counts_of(history)["send"]["ok"] > 100
