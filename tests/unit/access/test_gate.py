"""The gate's memory of when a key was used last."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from eruca.contract.errors import UnauthenticatedError
from eruca_access.gate import LAST_USE_SECONDS, PolicyGate
from eruca_access.sources import FileSource
from eruca_chassis.admission.gate import Asked
from eruca_chassis.admission.needs import KNOWN
from support.rules import key_of, write_rules

ANN, BEN = "user:ann", "user:ben"


def head(key: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {key}".encode()}


def used(gate: PolicyGate) -> set[str]:
    return {key.principal for key in gate.status().keys or () if key.last_used_at is not None}


def test_a_key_is_used_once_it_is_proved(tmp_path: Path) -> None:
    gate = PolicyGate(FileSource(write_rules(tmp_path / "rules.toml", principals=[ANN, BEN])))
    assert used(gate) == set()
    wrong = key_of(BEN)[:-1] + ("a" if key_of(BEN)[-1] != "a" else "b")
    with pytest.raises(UnauthenticatedError):
        gate.authenticate(head(wrong))
    before = time.time()
    caller, _ = gate.authenticate(head(key_of(ANN)))
    assert used(gate) == {ANN}
    [at] = [key.last_used_at for key in gate.status().keys or () if key.last_used_at]
    assert before - 0.001 <= at.timestamp() <= time.time()
    asked = Asked(KNOWN, {}, b"", head(key_of(ANN)), "10.0.0.1", "listTopics")
    for _ in range(2):  # the first use of a credential in an hour, and a later one
        assert gate.used(caller, asked) <= time.monotonic() + LAST_USE_SECONDS
