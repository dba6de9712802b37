"""The sync SDK is what its generator writes from the async one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GENERATOR = Path(__file__).parents[2] / "sdk" / "tools" / "generate_sync.py"


def test_the_sync_modules_are_up_to_date() -> None:
    """If not: ``python sdk/tools/generate_sync.py``."""
    done = subprocess.run(
        [sys.executable, GENERATOR, "--check"], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.returncode) == ("", 0), done.stderr
