"""Spark's classes in an archive that every JVM maps into memory: Java's class data sharing.

A JVM that starts Spark reads, checks and links thousands of classes. That is half of what a short
job computes, and tests start dozens of JVMs. The archive is made once for a virtual environment: an
export writes at its end which classes it has loaded. A JVM uses the archive if its Java and its
class path are the ones that made it, and starts without it otherwise.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyspark
from fasteners import InterProcessLock  # type: ignore[import-untyped]  # it has no types

from support.export_cluster import command
from support.export_service import ExportService, serving_exports

ARCHIVE: Final = Path(sys.prefix) / f"spark-{pyspark.__version__}.jsa"
# Without the second compiler a JVM is ready in two thirds of the time.
_SMALL_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_JAVA: Final = f"{_SMALL_JAVA} -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off,cds+dynamic=off"
_SECONDS: Final = 400.0


def archive_classes() -> None:
    """Make the archive if it is missing; other processes wait meanwhile."""
    with InterProcessLock(ARCHIVE.with_suffix(".lock")):
        if ARCHIVE.exists():
            return
        partial = ARCHIVE.with_suffix(".partial")
        made = f"{_SMALL_JAVA} -XX:ArchiveClassesAtExit={partial}"
        with (
            TemporaryDirectory() as directory,
            serving_exports(ExportService().hold("orders", {0: 900, 1: 300})) as service,
            command(
                *("export", f"{directory}/lake", "--topic", "orders", "--url", service.url),
                *("--rows-per-batch", "1000", "--master", "local[2]"),
                *("--conf", f"spark.driver.extraJavaOptions={made}"),
            ) as driver,
        ):
            output, _ = driver.communicate(timeout=_SECONDS)  # until the JVM has ended, too
        assert driver.returncode == 0, output
        partial.rename(ARCHIVE)
