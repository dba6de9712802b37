"""``eruca export`` to Iceberg tables of a REST catalogue: Iceberg's own, with its tables in S3.

The catalogue gives the credentials for the files with each table, and requires a token.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom

import pytest

from support.export_service import ExportService, serving_exports
from support.iceberg_rest import MISSING, TOKEN, rest_catalogue
from support.object_stores import BUCKET, REGION, s3_store
from support.table_exports import end_an_export, offsets, run_export
from support.tables import LocalTable

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
ROUNDS = int(os.environ.get("ERUCA_CRASH_ROUNDS") or 2)
SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with s3_store() as url:
        yield url


@pytest.fixture(scope="module")
def catalogue_url(s3_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    vended = {
        "s3.endpoint": s3_url,
        "s3.region": REGION,
        "s3.access-key-id": "vended",
        "s3.secret-access-key": SECRET,
    }
    directory = tmp_path_factory.mktemp("catalogue")
    with rest_catalogue(directory, f"s3://{BUCKET}/warehouse", s3_url, vended) as url:
        yield url


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the catalogue's token: everything for S3 comes from the catalogue."""
    for name in os.environ:
        if name.startswith(("AWS_", "PYICEBERG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", TOKEN)


@pytest.fixture
def table(catalogue_url: str, tmp_path: Path) -> LocalTable:
    name = tmp_path.name.replace("-", "_")
    return LocalTable("iceberg", tmp_path, catalogue=catalogue_url, token=TOKEN, name=name)


@pytest.fixture
def service() -> Iterator[ExportService]:
    with serving_exports(ExportService(batch_rows=100)) as served:
        yield served


def test_each_batch_is_a_commit_and_the_next_run_continues(
    service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 900, 1: 100}).epoch = 7

    first = run_export(service, table, "--rows-per-batch", "400")
    assert first.returncode == 0, first.stderr
    service.hold("orders", {0: 950, 2: 30})
    second = run_export(service, table, "--output", "json")

    assert json.loads(second.stdout)["rows"] == 80
    assert table.offsets() == offsets({0: 950, 1: 100, 2: 30})
    assert table.commits() == 4
    last = table.opened().last_batch()
    assert last is not None
    assert json.loads(last.brokers) == {"broker-a": {"epoch": 7, "log_offset": 4_096}}
    for said in (first.stdout, first.stderr, second.stdout, second.stderr):
        assert TOKEN not in said
        assert SECRET not in said


def test_another_export_is_refused_with_a_code_of_its_own(
    service: ExportService, table: LocalTable
) -> None:
    """The other one commits while the first reads its rows."""
    service.hold("orders", {0: 100})

    def overtake() -> None:
        service.on_records = None
        other = run_export(service, table)
        assert other.returncode == 0, other.stderr

    service.on_records = overtake
    done = run_export(service, table)

    assert done.returncode == 75, done.stderr
    assert "another export writes to this table" in " ".join(done.stderr.split())
    assert table.offsets() == offsets({0: 100})


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_ended_anywhere_loses_and_doubles_nothing(
    service: ExportService, table: LocalTable, stop: signal.Signals
) -> None:
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    random = Random(seed)
    service.hold("orders", {0: 3_000, 1: 1_500})
    for _ in range(ROUNDS):
        end_an_export(service, table, stop, random)
    service.hold("orders", {0: 3_010})

    done = run_export(service, table)

    assert done.returncode == 0, done.stderr
    assert table.offsets() == offsets({0: 3_010, 1: 1_500})


def test_a_wrong_token_is_an_error_that_does_not_show_it(
    service: ExportService, table: LocalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", "another-secret")
    done = run_export(service.hold("orders", {0: 10}), table)

    assert done.returncode == 1, done.stderr
    said = " ".join(done.stderr.split())
    assert "Not authorized: the token is wrong; check the credentials" in said
    assert "another-secret" not in said


def test_a_catalogue_that_is_away_is_worth_a_retry(service: ExportService, tmp_path: Path) -> None:
    table = LocalTable("iceberg", tmp_path, catalogue="http://127.0.0.1:1")
    done = run_export(service.hold("orders", {0: 10}), table, "--output", "json")

    assert done.returncode == 75, done.stderr
    assert json.loads(done.stderr)["code"] == "try-again-later"
