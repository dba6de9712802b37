"""``eruca-spark``, ``python -m eruca_spark``, and the script for ``spark-submit``."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from typing import Final

NO_SPARK: Final = (
    "eruca-spark needs Spark, which is not installed; install eruca-spark[pyspark], or run it by "
    f"the spark-submit of your own: spark-submit {__file__}"
)


def run() -> None:
    """Run the command line; or say how to get Spark, which some installations bring themselves."""
    if find_spec("pyspark") is None:
        raise SystemExit(NO_SPARK)
    try:
        from eruca_spark.main import run as run_command  # here: it imports Spark
    except KeyboardInterrupt:  # importing takes a while; after it, the command line handles this
        raise SystemExit(128 + signal.SIGINT) from None
    run_command()


if __name__ == "__main__":
    run()
