"""The columns of the data source: the contract's, in the very schema Spark derives."""

from __future__ import annotations

from typing import Final

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eruca.contract.exports import EXPORT_COLUMNS, EXPORT_SCHEMA_VERSION
from eruca.exporting.columns import COLUMNS, SCHEMA_VERSION, arrow_schema
from eruca.rows.arrow_schema import EXPORT_ARROW_SCHEMA

SPARK_TYPES: Final[dict[str, DataType]] = {
    "STRING": StringType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "TIMESTAMP": TimestampType(),
    "BINARY": BinaryType(),
    "ARRAY<STRING>": ArrayType(StringType()),
    "MAP<STRING, STRING>": MapType(StringType(), StringType()),
}


def test_the_columns_are_the_contract_s() -> None:
    contract = {column.name: column.spark_type for column in EXPORT_COLUMNS}

    assert list(COLUMNS.items()) == list(contract.items())
    assert SCHEMA_VERSION == EXPORT_SCHEMA_VERSION


def test_the_schema_is_the_one_spark_derives_from_the_same_columns() -> None:
    spark = StructType([StructField(name, SPARK_TYPES[type_]) for name, type_ in COLUMNS.items()])

    assert arrow_schema(COLUMNS).equals(to_arrow_schema(spark, timezone="UTC"))


def test_the_service_sends_that_schema() -> None:
    assert arrow_schema(COLUMNS).equals(EXPORT_ARROW_SCHEMA)


def test_columns_come_in_the_order_they_are_asked_for() -> None:
    assert arrow_schema(["tag", "topic"]).names == ["tag", "topic"]
