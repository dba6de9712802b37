"""Print the tests that failed in the last run, a line each, as pytest's cache has them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / ".pytest_cache/v/cache/lastfailed"

if __name__ == "__main__" and CACHE.exists():
    sys.stdout.writelines(f"{test}\n" for test in json.loads(CACHE.read_text()))
