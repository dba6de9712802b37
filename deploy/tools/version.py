"""Give all distributions the one version, which stands in the workspace's ``pyproject.toml``.

``python deploy/tools/version.py`` writes it into each member's file, and into what it requires of
the other members: wheels of one version are installed together. ``--check`` writes nothing, and
names the files that differ. Afterwards run ``uv lock``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_REQUIREMENTS: Final = re.compile(r"(?ms)^(?:dependencies|testing) = \[.*?\]$")


def members() -> list[Path]:
    """Return the ``pyproject.toml`` of each member of the workspace."""
    workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["workspace"]
    return [ROOT / member / "pyproject.toml" for member in workspace["members"]]


def with_version(text: str, version: str, names: list[str]) -> str:
    """Return the text of a member's ``pyproject.toml`` with *version*, required of *names*, too."""
    text = re.sub(r'(?m)^version = "[^"]*"$', f'version = "{version}"', text, count=1)
    own = "|".join(map(re.escape, names))
    required = re.compile(rf'"((?:{own})(?:\[[a-z,]+\])?)(?:==[^"]*)?"')

    def pinned(requirements: re.Match[str]) -> str:
        return required.sub(rf'"\1=={version}"', requirements[0])

    return _REQUIREMENTS.sub(pinned, text)


def main() -> int:
    """Write or check the files; return the exit code."""
    is_check = sys.argv[1:] == ["--check"]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    files = members()
    names = [tomllib.loads(file.read_text())["project"]["name"] for file in files]
    changed = 0
    for file in files:
        text = file.read_text()
        new = with_version(text, version, names)
        if new == text:
            continue
        changed += 1
        print(f"{file.relative_to(ROOT)}: {'differs' if is_check else 'written'}")
        if not is_check:
            file.write_text(new)
    return 1 if is_check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
