"""The Python that Spark starts for its workers on this machine.

Spark puts the archive ``pyspark.zip`` first on the path of each process that it starts. Modules in
an archive have no cache of compiled code, so each process compiles pyspark again. That takes a
second on an idle machine. On a busy machine it takes more than the ten seconds that Spark waits:
"Python worker failed to connect back". A script removes the archives from the path, so that workers
import the installed package.

Source: Spark 4.3, ``PythonUtils.sparkPythonPath``, ``PythonWorkerFactory.createSimpleWorker``.
"""

from __future__ import annotations

import shlex
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from eruca_spark.scripts import cache_dir, write_script

_WRAPPER: Final = """#!/bin/sh
set -f
path=
IFS=:
for part in $PYTHONPATH; do
  case "$part" in
    */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip) ;;
    *) path="$path${{path:+:}}$part" ;;
  esac
done
unset IFS
PYTHONPATH="$path" exec {python} "$@"
"""


def worker_python(environment: Mapping[str, str], directory: Path | None = None) -> str:
    """Return the Python for ``PYSPARK_PYTHON``: a script around this one, if that is useful.

    It is this Python itself in two cases: ``SPARK_HOME`` names another Spark than the installed
    one, whose workers need the archive; or the script cannot be written.

    Args:
        environment: Source of ``SPARK_HOME`` and the user's cache.
        directory: Directory for the script; None: the user's cache.
    """
    installed = Path(pyspark.__file__).parent
    spark_home = environment.get("SPARK_HOME")
    if spark_home and Path(spark_home).resolve() != installed.resolve():
        return sys.executable
    name = f"python-{zlib.crc32(sys.executable.encode()):08x}"  # each Python has its own script
    script = (directory or cache_dir(environment)) / name
    try:
        write_script(script, _WRAPPER.format(python=shlex.quote(sys.executable)))
    except OSError:
        return sys.executable
    return str(script)
