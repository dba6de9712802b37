"""``python -m eruca``: the command line, as the script ``eruca``."""

from __future__ import annotations

from eruca.cli.main import run

if __name__ == "__main__":
    run()
