"""``python -m bench.read_away URL``: read an answer to its end, and keep nothing of it."""

from __future__ import annotations

import sys
import urllib.request
from typing import Final

_SIZE: Final = 1024 * 1024


def main(url: str) -> None:
    """Read it."""
    with urllib.request.urlopen(url) as answer:
        while answer.read(_SIZE):
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
