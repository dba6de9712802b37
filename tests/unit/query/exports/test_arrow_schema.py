"""The schema of exports is what Spark makes of the same columns, to the last inner field."""

from __future__ import annotations

import pytest

from eruca.contract.exports import EXPORT_COLUMNS
from eruca.rows.arrow_schema import EXPORT_ARROW_SCHEMA, arrow_schema

types = pytest.importorskip("pyspark.sql.types")
pandas_types = pytest.importorskip("pyspark.sql.pandas.types")


def test_it_is_what_spark_expects() -> None:
    of_spark = {
        "STRING": types.StringType(),
        "INT": types.IntegerType(),
        "BIGINT": types.LongType(),
        "TIMESTAMP": types.TimestampType(),
        "BINARY": types.BinaryType(),
        "ARRAY<STRING>": types.ArrayType(types.StringType()),
        "MAP<STRING, STRING>": types.MapType(types.StringType(), types.StringType()),
    }
    declared = types.StructType(
        [types.StructField(column.name, of_spark[column.spark_type]) for column in EXPORT_COLUMNS]
    )

    expected = pandas_types.to_arrow_schema(declared, timezone="UTC")

    assert EXPORT_ARROW_SCHEMA.equals(expected, check_metadata=True)
    # Equality of maps and lists does not look at the names of their fields; their text does.
    assert str(EXPORT_ARROW_SCHEMA) == str(expected)


def test_columns_are_taken_in_the_order_asked_for() -> None:
    assert arrow_schema(["body", "topic"]).names == ["body", "topic"]
