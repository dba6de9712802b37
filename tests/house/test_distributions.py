"""The metadata of each distribution of the workspace describes it and states its licence."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEMBERS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]["members"]
LICENCE = "Apache-2.0"


def name_of(member: str) -> str:
    return str(tomllib.loads((ROOT / member / "pyproject.toml").read_text())["project"]["name"])


@pytest.fixture(params=MEMBERS)
def member(request: pytest.FixtureRequest) -> Path:
    return ROOT / str(request.param)


@pytest.fixture
def installed(member: Path) -> Distribution:
    return distribution(name_of(str(member)))


def test_the_licence_is_named_and_comes_with_each_distribution(
    member: Path, installed: Distribution
) -> None:
    text = (ROOT / "LICENSE").read_text()

    assert installed.metadata["License-Expression"] == LICENCE
    assert installed.metadata.get_all("License-File") == ["LICENSE"]
    assert installed.read_text("licenses/LICENSE") == text
    assert (member / "LICENSE").read_text() == text


def test_each_distribution_says_who_makes_it_and_what_it_is(installed: Distribution) -> None:
    assert installed.metadata["Author"] == "Eruca maintainers"
    assert installed.metadata["Summary"]
    assert installed.metadata["Description-Content-Type"].startswith("text/markdown")
    # The description is the body of the document that METADATA is.
    assert str(installed.metadata.get_payload()).startswith("# ")  # type: ignore[attr-defined]
    assert installed.metadata["Requires-Python"] == ">=3.11"


def test_each_distribution_is_classified_and_typed(member: Path, installed: Distribution) -> None:
    classifiers = installed.metadata.get_all("Classifier") or []

    assert "Typing :: Typed" in classifiers
    assert not [name for name in classifiers if name.startswith("License ::")]  # the expression is
    packages = [path.parent for path in (member / "src").glob("*/__init__.py")]
    assert packages
    assert all((package / "py.typed").exists() for package in packages)


def test_the_version_of_each_distribution_is_the_workspace_s() -> None:
    """If not: ``python deploy/tools/version.py``, then ``uv lock``."""
    done = subprocess.run(
        [sys.executable, ROOT / "deploy/tools/version.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.stdout, done.returncode) == ("", 0), done.stderr
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for member in MEMBERS:
        required = distribution(name_of(member)).requires or []
        own = [line for line in required if line.startswith("eruca")]
        assert all(line.partition(";")[0].strip().endswith(f"=={workspace}") for line in own)


def test_each_command_and_its_distribution_have_one_version() -> None:
    assert len({distribution(name_of(member)).version for member in MEMBERS}) == 1
