"""One Spark for all tests of this folder: a start takes as long as thirty tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from eruca.exporting.ranges import Range
from eruca_spark.session import spark_session
from support import export_service
from support.export_service import Bodies, ExportService, serving_exports
from support.spark import SMALL_SPARK
from support.spark_classes import archive_classes

SECONDS_MAX = 900  # of one test: a time-out within Spark ends its session, and all tests after it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time than others."""
    for item in items:
        if item.path.parent == Path(__file__).parent and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(scope="session", autouse=True)
def _classes() -> None:
    archive_classes()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests", "local[2,4]", SMALL_SPARK) as session:
        yield session


@pytest.fixture
def service() -> Iterator[ExportService]:
    with serving_exports(ExportService(batch_rows=500)) as served:
        yield served


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> Callable[[Bodies], None]:
    """Return a function that sets the bodies of the service's messages."""
    batch_of = export_service.batch_of

    def use(body_of: Bodies) -> None:
        def made(one: Range, columns: list[str]) -> pa.RecordBatch:
            batch = batch_of(one, columns)
            number = batch.schema.get_field_index("body")
            texts = pa.array([body_of(offset) for offset in range(one.start, one.end)], pa.binary())
            return batch if number < 0 else batch.set_column(number, "body", texts)

        monkeypatch.setattr(export_service, "batch_of", made)

    return use
