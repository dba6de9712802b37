"""A Spark session for these jobs, on a laptop and on a cluster.

Three things must be set in the environment before the JVM starts: the Java, the workers' Python
(Spark would take any ``python3`` on the path), and the loopback interface for a local Spark. Under
``spark-submit`` the JVM already runs with its own settings.

On a cluster, each task contains the code of the data source and of the decoders of bodies. So
executors need only pyarrow, and for Protobuf bodies protobuf. The code is not sent as a file,
because Spark 4.3 does not give files to the process that plans a stream. That process runs beside
the driver and uses the executors' Python, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import eruca.exporting
import eruca_spark.bodies.decoders
import pyspark_eruca
from eruca_spark.java import find_java_home
from eruca_spark.workers import worker_python

# the code of the data source, and that of decoders of bodies
SENT: Final = (pyspark_eruca, eruca.exporting, eruca_spark.bodies.decoders)
LOCAL_MASTER: Final = "local[*,4]"  # all cores; four attempts per task, as on a cluster
LOCAL_SHUFFLE_PARTITIONS: Final = 8

CONFIGURATION: Final[Mapping[str, str]] = {
    # Days are in UTC wherever the driver runs: a repeated batch must have its rows in the same
    # days.
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    # Otherwise all rows are sorted by topic and day before writing: a fifth of the work.
    "spark.sql.maxConcurrentOutputFileWriters": "50",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.ui.showConsoleProgress": "false",
}
LOG_SETTINGS: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL_CONFIGURATION: Final[Mapping[str, str]] = {
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOG_SETTINGS}",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": str(LOCAL_SHUFFLE_PARTITIONS),
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


@contextmanager
def spark_session(
    name: str, master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield a session, and stop it at the end.

    Args:
        name: The application's.
        master: Spark's; None: ``spark-submit``'s if it started this process, else local.
        settings: Spark settings, which override all others.

    Raises:
        JavaError: There is no usable Java.
    """
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not is_submitted:
        master = LOCAL_MASTER
    is_local = master is not None and master.startswith("local")
    if not is_submitted:
        prepare_environment(os.environ, is_local=is_local)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    chosen = {**CONFIGURATION, **(_LOCAL_CONFIGURATION if is_local else {}), **(settings or {})}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        if not is_local:
            register_source(spark)
        yield spark
    finally:
        spark.stop()


def register_source(spark: SparkSession) -> None:
    """Register the data source so that each task contains its code.

    Executors, and a server of Spark Connect, then need only pyarrow. They must have this Python's
    version.
    """
    for package in SENT:
        cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call]
    spark.dataSource.register(pyspark_eruca.DefaultSource)


def prepare_environment(environment: MutableMapping[str, str], *, is_local: bool) -> None:
    """Set the environment of the JVM and the workers; existing variables do not change.

    Call it with ``os.environ`` before you start a session of your own.

    Raises:
        JavaError: There is no usable Java.
    """
    environment["JAVA_HOME"] = str(find_java_home(environment))
    python = worker_python(environment)
    # On a cluster, executors have this path only if it is an installed Python's.
    environment.setdefault("PYSPARK_PYTHON", python if is_local else sys.executable)
    # This Python, beside the driver, plans sources that Spark finds by name.
    environment.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if is_local:
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
