"""Conformance: every case of every vector file, whose values RocketMQ's own classes computed.

The directory is ``tests/vectors``, or what ``ERUCA_VECTORS`` names. A file or a kind of case that
is not known fails.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.vector_runners import runner_for

DIRECTORY = Path(os.environ.get("ERUCA_VECTORS") or Path(__file__).parents[1] / "vectors")


def cases() -> Iterator[Any]:
    """Yield (file, case) as parameters, with ids like ``latency_fault/duration/12``."""
    for path in sorted(DIRECTORY.glob("*.json")):
        seen: Counter[str] = Counter()
        for case in json.loads(path.read_text("utf-8"))["cases"]:
            parts = (path.stem, case.get("kind"), case.get("id"))
            name = "/".join(str(part) for part in parts if part is not None)
            seen[name] += 1
            yield pytest.param(
                path.stem, case, id=name if seen[name] == 1 else f"{name}/{seen[name]}"
            )


def test_the_directory_holds_vectors() -> None:
    assert any(DIRECTORY.glob("*.json")), f"no vectors in {DIRECTORY}"


@pytest.mark.parametrize(("file", "case"), list(cases()))
def test_vector(file: str, case: dict[str, Any]) -> None:
    runner_for(file, case.get("kind"))(case)
