"""A Spark session that is set up as these jobs need it, on a laptop and on a cluster.

What must be right before the JVM starts is set in the environment: which Java, which Python the
workers are (Spark would take whatever ``python3`` is on the path), and that a local Spark listens
on the loopback interface only. Under ``spark-submit`` the JVM runs already, and its settings count.

Away from the local machine the data source travels along, as code within each task: executors need
pyarrow, and nothing else. Not as a file: Spark 4.3 does not give those to the process that plans a
stream, which runs beside the driver and is the executors' Python, too.
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

import pyspark_eruca
from eruca_spark.java import find_java_home
from eruca_spark.workers import worker_python

LOCAL_MASTER: Final = "local[*,4]"  # every core; a task is tried four times, as on a cluster
LOCAL_SHUFFLE_PARTITIONS: Final = 8

CONFIGURATION: Final[Mapping[str, str]] = {
    # Days are UTC's, wherever the driver is; a replayed batch must find its rows in the same ones.
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    # Or every row is sorted by topic and day before it is written: a fifth of the work.
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
        master: Spark's; None: ``spark-submit``'s where it started this process, else local.
        settings: Spark's, above all others.

    Raises:
        JavaError: There is no Java to run on.
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
            cloudpickle.register_pickle_by_value(pyspark_eruca)  # type: ignore[no-untyped-call]
            spark.dataSource.register(pyspark_eruca.DefaultSource)
        yield spark
    finally:
        spark.stop()


def prepare_environment(environment: MutableMapping[str, str], *, is_local: bool) -> None:
    """Set what the JVM and the workers take from the environment; what is set already stays.

    Call it before a session of your own starts, with ``os.environ``.

    Raises:
        JavaError: There is no Java to run on.
    """
    environment["JAVA_HOME"] = str(find_java_home(environment))
    python = worker_python(environment)
    # Elsewhere executors have this path only if it is that of an installed Python.
    environment.setdefault("PYSPARK_PYTHON", python if is_local else sys.executable)
    # Sources that Spark finds by their name are planned by this one, beside the driver.
    environment.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if is_local:
        environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
