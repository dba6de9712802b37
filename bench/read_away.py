"""``python -m bench.read_away URL``: read an answer to its end and drop it.

It prints the time in seconds.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from typing import Final

_SIZE: Final = 1024 * 1024


def main(url: str) -> None:
    """Read the answer of *url*; print the time."""
    began = time.perf_counter()
    with urllib.request.urlopen(url) as answer:
        while answer.read(_SIZE):
            pass
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main(*sys.argv[1:])
