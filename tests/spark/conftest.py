"""One Spark for all tests of this folder: a start takes as long as thirty tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from eruca_spark.session import spark_session
from support.export_service import ExportService, serving_exports
from support.spark import SMALL_SPARK


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests", "local[2,4]", SMALL_SPARK) as session:
        yield session


@pytest.fixture
def service() -> Iterator[ExportService]:
    with serving_exports(ExportService(batch_rows=500)) as served:
        yield served
