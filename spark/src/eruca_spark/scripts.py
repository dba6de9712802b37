"""Small shell scripts that start a program in another way than Spark would."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path


def write_script(script: Path, text: str) -> None:
    """Write an executable script, unless it already exists with the same text.

    Concurrent processes write the same script, each under its own temporary name.
    """
    if script.exists() and script.read_text() == text:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as file:
        file.write(text)
    Path(file.name).chmod(0o755)
    Path(file.name).replace(script)


def cache_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory for scripts in the user's cache."""
    home = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "eruca-spark"
