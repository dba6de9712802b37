"""The data source as it is sent to executors: all of it, by value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SEND = """
import sys
import pyspark_eruca
from eruca_spark.session import SENT
from pyspark import cloudpickle

for package in SENT:
    cloudpickle.register_pickle_by_value(package)
sys.stdout.buffer.write(cloudpickle.dumps(pyspark_eruca.DefaultSource))
"""
RECEIVE = """
import pickle
import sys

for name in ("pyspark_eruca", "eruca"):  # as on a machine that lacks them
    sys.modules[name] = None
print(pickle.load(sys.stdin.buffer).name())
"""


def test_a_machine_without_the_source_can_load_it(tmp_path: Path) -> None:
    """A function behind a decorator in C would be sent by its name alone."""
    sent = subprocess.run(
        [sys.executable, "-c", SEND], cwd=tmp_path, capture_output=True, check=True
    ).stdout

    loaded = subprocess.run(
        [sys.executable, "-c", RECEIVE], cwd=tmp_path, input=sent, capture_output=True, check=False
    )

    assert (loaded.stdout, loaded.stderr) == (b"eruca\n", b"")
