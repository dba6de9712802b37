"""Add the typed columns to the rows of an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructField, StructType

from eruca.exporting.columns import DAMAGE
from eruca.exporting.errors import OptionError
from eruca_spark.bodies.decoders.decoder import BodyDecoder, Description, compiled
from eruca_spark.bodies.decoders.errors import DescriptionError
from eruca_spark.bodies.json_bodies import json_reason, parsed_json
from eruca_spark.bodies.schema import (
    BODY_SCHEMA_FILE,
    CORRUPT,
    NO_PROTOBUF,
    PREFIX,
    REASON,
    BodySchema,
)

_PARSED: Final = "_parsed"


def with_body_columns(rows: DataFrame, schema: BodySchema) -> DataFrame:
    """Add the typed columns, and the reason for which a body does not fit; null: it fits.

    A damaged message has no body; its columns are null, as all others.

    Raises:
        OptionError: Spark does not know a type, or the lake's schema is damaged.
    """
    parsed = f.col(_PARSED)
    described = None if schema.description is None else _arrow_types(schema, schema.description)
    if described is None:
        value, misfit = parsed_json(schema), json_reason(schema, parsed)
    else:
        value, misfit = _decoded(schema, described), parsed[CORRUPT]
    reason = (
        f.when(f.col(DAMAGE).isNotNull(), f.lit(None))
        .when(f.col("body").isNull(), f.lit("the message has no body"))
        .otherwise(misfit)
    )
    columns = []
    for name, type_ in schema.fields.items():
        # The lake also has the fields of schemas that a later one replaced.
        has_values = described is None or name in described
        column = parsed[name] if has_values else f.lit(None).cast(type_)
        columns.append(column.alias(f"{PREFIX}{name}"))
    return rows.withColumn(_PARSED, value).select(*rows.columns, *columns, reason.alias(REASON))


def check_described(schema: BodySchema) -> None:
    """Check that the driver can decode the bodies, before an export begins.

    Raises:
        OptionError: The lake's schema is damaged, or a package is missing.
    """
    if schema.description is not None:
        _arrow_types(schema, schema.description)


def _decoded(schema: BodySchema, described: Mapping[str, pa.DataType]) -> Column:
    """Return a struct of the *described* fields in the column ``body``, and of the reason.

    Python decodes, not Spark's ``from_avro`` and ``from_protobuf``: these need jars, accept bytes
    behind a record, and give no reason.
    """
    assert schema.description is not None, "bodies are not JSON"
    decoder = BodyDecoder(schema.description, described, CORRUPT)
    types = schema.types()
    struct = StructType([StructField(name, types[name]) for name in described])

    def decode(bodies: pa.Array) -> pa.Array:
        return decoder.decoded(bodies)

    # Spark takes the kind of function from the annotations, and warns of any other way.
    function = arrow_udf(decode, struct.add(CORRUPT, "string"))  # type: ignore[call-overload]
    decoded: Column = function(f.col("body"))
    return decoded


def _arrow_types(schema: BodySchema, description: Description) -> dict[str, pa.DataType]:
    """Return the types of the lake's fields that a schema describes, in the lake's order."""
    found: dict[str, pa.DataType] = {}
    try:
        for one in compiled(description).values():
            found |= {name: it.type for name, it in one.columns.items() if it.type is not None}
    except ImportError as error:
        raise OptionError(NO_PROTOBUF) from error
    except (DescriptionError, ValueError) as error:
        raise OptionError(f"body-schema: {BODY_SCHEMA_FILE} of the lake: {error}") from error
    return {name: found[name] for name in schema.fields if name in found}
