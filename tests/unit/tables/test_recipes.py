"""The recipes that fill tables and maintain them, run as they stand in their documents."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

from support.export_service import ExportService, serving_exports
from support.tables import LocalTable, export_batches

EXPORTS = Path(__file__).parents[3] / "services/query/EXPORTS.md"
SPARK = Path(__file__).parents[3] / "spark/README.md"
SERVICE = "http://127.0.0.1:10931"


def recipes() -> tuple[str, str]:
    text = EXPORTS.read_text().partition("<!-- recipes")[2].partition("<!-- end of recipes")[0]
    delta, iceberg = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return delta, iceberg


def test_each_recipe_fills_a_table(tmp_path: Path) -> None:
    table = LocalTable("iceberg", tmp_path)
    names = {f"PYICEBERG_CATALOG__LAKE__{name.upper()}": one for name, one in table.options.items()}
    table.catalog().create_namespace("db")
    with serving_exports(ExportService(batch_rows=10_000).hold("flights", {0: 100_000})) as service:
        for recipe in recipes():
            assert SERVICE in recipe
            subprocess.run(
                [sys.executable, "-c", recipe.replace(SERVICE, service.url)],
                cwd=tmp_path,
                env={**os.environ, **names},
                timeout=120,
                check=True,
            )

    assert DeltaTable(tmp_path / "flights").to_pyarrow_table().num_rows == 100_000
    assert table.catalog().load_table("db.flights").scan().to_arrow().num_rows == 100_000


def test_maintenance_of_tables_keeps_the_record_of_the_last_batch(tmp_path: Path) -> None:
    [recipe] = re.findall(
        r"```python\n(.*?)```", SPARK.read_text().partition("Tables have their own")[2], re.DOTALL
    )[:1]
    iceberg, delta = LocalTable("iceberg", tmp_path), LocalTable("delta", tmp_path)
    records = [export_batches(table.opened(), 3)[-1] for table in (iceberg, delta)]
    names = {
        f"PYICEBERG_CATALOG__LAKE__{name.upper()}": one for name, one in iceberg.options.items()
    }
    named = {"/data/orders": f"{tmp_path}/table", "db.orders": "db.table"}
    for name, mine in named.items():
        assert name in recipe
        recipe = recipe.replace(name, mine)

    subprocess.run(
        [sys.executable, "-c", recipe],
        cwd=tmp_path,
        env={**os.environ, **names},
        timeout=120,
        check=True,
    )

    assert [table.opened().last_batch() for table in (iceberg, delta)] == records
    assert len(delta.delta().file_uris()) <= 1
