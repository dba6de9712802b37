"""The recipes in EXPORTS.md that fill tables, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

from support.export_service import ExportService, serving_exports
from support.tables import LocalTable

EXPORTS = Path(__file__).parents[3] / "services/query/EXPORTS.md"
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
