"""``eruca export`` to tables in S3, as moto has it: exactly once, and errors with a fix."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random, SystemRandom
from threading import Barrier

import pytest

from eruca.tables.batches import Batch, CommitConflictError, TableError
from eruca.tables.s3 import delta_options, iceberg_defaults
from support.command_line import ERUCA, Eruca
from support.export_service import ExportService, serving_exports
from support.object_stores import (
    BUCKET,
    REGION,
    created_user,
    network_to,
    requiring_credentials,
    s3_store,
)
from support.table_exports import (
    NOWHERE,
    end_an_export,
    exported,
    failed,
    offsets,
    run_export,
    words_of,
)
from support.tables import Kind, LocalTable

ROUNDS = int(os.environ.get("ERUCA_CRASH_ROUNDS") or 2)
KEY, SECRET = "AKIATESTTESTTESTTEST", "a-secret-that-nobody-may-see"


@pytest.fixture(scope="module")
def s3_url() -> Iterator[str]:
    with s3_store() as url:
        yield url


@pytest.fixture(autouse=True)
def environment(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what a user has in the environment; AWS itself must not be asked for anything."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_url)
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LocalTable:
    kind: Kind = request.param
    return LocalTable(kind, tmp_path, store=f"s3://{BUCKET}/{tmp_path.name}")


@pytest.fixture
def service() -> Iterator[ExportService]:
    with serving_exports(ExportService(batch_rows=100)) as served:
        yield served


def test_each_batch_is_a_commit_and_the_next_run_continues(
    service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 900, 1: 100}).hold("%DLQ%billing", {0: 3}).epoch = 7

    assert exported(service, table, "--rows-per-batch", "400")["batches"] == 3
    assert exported(service, table)["outcome"] == "nothing_new"
    service.hold("orders", {0: 950, 2: 30})
    exported(service, table, topic="orders,%DLQ%billing")

    expected = offsets({0: 950, 1: 100, 2: 30}) + offsets({0: 3}, "%DLQ%billing")
    assert table.offsets() == sorted(expected)
    assert table.commits() == 4
    last = table.opened().last_batch()
    assert last is not None
    assert json.loads(last.brokers) == {"broker-a": {"epoch": 7, "log_offset": 4_096}}


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

    assert "another export writes to this table" in failed(service, table, code=75)
    assert table.offsets() == offsets({0: 100})


def test_of_commits_at_once_one_wins(table: LocalTable) -> None:
    exporters = 4
    tables = [table.opened() for _ in range(exporters)]
    for number in range(10):
        barrier = Barrier(exporters)

        def commit(at: int, number: int = number, barrier: Barrier = barrier) -> bool:
            tables[at].last_batch()
            barrier.wait()
            try:
                tables[at].append([], Batch(number, f"of-{at}-{number}", "{}", 0, 0, 0, 2))
            except CommitConflictError:
                return False
            return True

        with ThreadPoolExecutor(exporters) as pool:
            won = [at for at, has_won in enumerate(pool.map(commit, range(exporters))) if has_won]
        last = tables[0].last_batch()
        assert last is not None
        assert [f"of-{at}-{number}" for at in won] == [last.commit]
        assert last.number == number


def test_exporters_that_start_at_once_double_nothing(
    service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 900, 1: 700})
    command = [str(ERUCA), *words_of(service, table), "--rows-per-batch", "200"]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)
    ]
    for process in started:
        _, said = process.communicate()
        assert process.returncode in (0, 75), said

    exported(service, table)

    assert table.offsets() == offsets({0: 900, 1: 700})


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

    exported(service, table)

    assert table.offsets() == offsets({0: 3_010, 1: 1_500})


def test_a_store_that_is_away_during_a_batch_is_worth_a_retry(
    s3_url: str, service: ExportService, table: LocalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.hold("orders", {0: 100})
    few_retries = ["--table-option", "max_retries=1"] if table.kind == "delta" else []
    with network_to(s3_url) as (url, cut, heal):
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        service.on_records = cut
        done = run_export(service, table, "--output", "json", *few_retries)

        assert done.returncode == 75, done.stderr
        assert "nothing is lost: run it again" in json.loads(done.stderr)["detail"]
        service.on_records = None
        heal()
        again = run_export(service, table)
        assert again.returncode == 0, again.stderr
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_url)
    assert table.offsets() == offsets({0: 100})


def test_rights_that_are_withdrawn_during_a_batch_are_a_fault_and_lose_nothing(
    s3_url: str, service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 100})
    with ExitStack() as stack:

        def withdraw() -> None:
            stack.enter_context(requiring_credentials(s3_url))

        service.on_records = withdraw
        done = run_export(service, table)

    assert done.returncode == 1, done.stderr
    assert "check the credentials and their rights" in " ".join(done.stderr.split())
    assert SECRET not in done.stderr
    service.on_records = None
    exported(service, table)
    assert table.offsets() == offsets({0: 100})


def test_a_missing_bucket_is_an_error_with_a_fix(service: ExportService, tmp_path: Path) -> None:
    service.hold("orders", {0: 10})
    for kind in ("delta", "iceberg"):
        said = failed(service, LocalTable(kind, tmp_path, store="s3://no-such-bucket/x"))
        assert "create the bucket, or correct its name" in said


@pytest.mark.parametrize(
    ("target", "more", "told"),
    [
        ("delta:s3:///t", [], "expected delta:s3://BUCKET/PATH"),
        ("delta:s3:/lake/t", [], "expected delta:s3://BUCKET/PATH"),
        ("delta:s3://lake/t?versionId=1", [], "without '?', '#' and '..'"),
        ("delta:s3://lake/t#x", [], "without '?', '#' and '..'"),
        ("delta:s3://lake/t/../x", [], "without '?', '#' and '..'"),
        ("delta:s3://lake/t", ["endpoint=nonsense"], "expected the http or https URL of a store"),
        ("delta:s3://lake/t", ["conditional_put=disabled"], "remove the option conditional_put"),
    ],
)
def test_a_place_or_option_that_cannot_be_used_is_refused(
    service: ExportService, target: str, more: list[str], told: str
) -> None:
    options = [word for option in more for word in ("--table-option", option)]
    given = ["export", "orders", "--to", target, "--query", service.hold("orders", {0: 1}).url]
    said = Eruca(NOWHERE)(*given, *options, code=1).stderr
    assert told in " ".join(said.split())


@pytest.mark.parametrize("url", ["http://me:{}@127.0.0.1:9000", "http://me:{}@127.0.0.1:99999"])
def test_credentials_in_an_endpoint_are_refused_and_not_shown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", url.format(SECRET))

    for defaults in (iceberg_defaults, lambda: delta_options({})):
        with pytest.raises(TableError, match="without credentials") as caught:
            defaults()
        assert "AWS_ENDPOINT_URL" in str(caught.value)
        assert SECRET not in str(caught.value)


def test_wrong_credentials_are_an_error_that_does_not_show_them(
    s3_url: str, service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 10})
    with requiring_credentials(s3_url):
        done = run_export(service, table)

    assert done.returncode == 1, done.stderr
    said = " ".join(done.stderr.split())
    assert "check the credentials and their rights" in said
    assert SECRET not in said


def test_credentials_in_the_usual_file_are_used(
    s3_url: str,
    service: ExportService,
    table: LocalTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, secret = created_user(s3_url)
    file = tmp_path / "credentials"
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    service.hold("orders", {0: 10})

    with requiring_credentials(s3_url):
        done = run_export(service, table)
        assert done.returncode == 0, done.stderr
        assert table.offsets() == offsets({0: 10})
