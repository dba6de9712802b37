"""``python -m eruca_spark``, and the script for ``spark-submit``."""

from __future__ import annotations

from eruca_spark.main import run

if __name__ == "__main__":
    run()
