"""``eruca export`` to tables: each message once, whatever is killed; and errors with a fix."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from eruca.exporting.ranges import Queue
from eruca.tables import arrow_writer
from support.command_line import ERUCA, Eruca
from support.export_service import ExportService, Fault, serving_exports
from support.table_exports import NOWHERE, end_an_export, exported, failed, offsets, words_of
from support.tables import Kind, LocalTable

ROUNDS = int(os.environ.get("ERUCA_CRASH_ROUNDS") or 2)


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> LocalTable:
    kind: Kind = request.param
    return LocalTable(kind, tmp_path)


@pytest.fixture
def service() -> Iterator[ExportService]:
    with serving_exports(ExportService(batch_rows=100)) as served:
        yield served


def test_each_batch_is_a_commit_and_the_next_run_continues(
    service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 900, 1: 100}).hold("%DLQ%billing", {0: 3})

    first = exported(service, table, "--rows-per-batch", "400")
    nothing = exported(service, table)
    service.hold("orders", {0: 950, 2: 30})
    second = exported(service, table, topic="orders,%DLQ%billing")

    assert first == {
        "outcome": "done",
        "target": table.target,
        "batches": 3,
        "rows": 1_000,
        "missing_rows": 0,
        "damaged_rows": 0,
        "rows_by_topic": {"orders": 1_000},
    }
    assert (nothing["outcome"], nothing["batches"]) == ("nothing_new", 0)
    assert second["rows_by_topic"] == {"orders": 80, "%DLQ%billing": 3}
    expected = offsets({0: 950, 1: 100, 2: 30}) + offsets({0: 3}, "%DLQ%billing")
    assert table.offsets() == sorted(expected)
    assert table.commits() == 4


def test_a_commit_names_the_epochs_and_the_log_ends_of_its_brokers(
    service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 10}).epoch = 7
    exported(service, table)

    last = table.opened().last_batch()
    assert last is not None
    assert json.loads(last.brokers) == {"broker-a": {"epoch": 7, "log_offset": 4_096}}


def test_answers_that_break_off_are_resumed(service: ExportService, table: LocalTable) -> None:
    service.hold("orders", {0: 900})
    service.faults += [Fault(cut_after_batches=2, cut_in_batch=True), Fault(cut_after_batches=3)]

    exported(service, table)

    assert table.offsets() == offsets({0: 900})


def test_files_are_small_and_have_one_topic_and_one_day(
    service: ExportService, table: LocalTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day has 86.4 million of the service's offsets."""
    monkeypatch.setattr(arrow_writer, "ROW_GROUP_ROWS", 200)
    monkeypatch.setattr(arrow_writer, "FILE_BYTES", 2_000)
    midnight = 86_400_000
    service.queues[Queue("orders", "broker-a", 0)] = (midnight - 450, midnight + 450)
    service.hold("bills", {0: 100})

    exported(service, table, topic="orders,bills")

    files = (
        table.delta().file_uris()
        if table.kind == "delta"
        else table.catalog().load_table("db.table").inspect.files()["file_path"].to_pylist()
    )
    paths = [Path(one.removeprefix("file://")) for one in files]
    found = set()
    for path in paths:
        held = pq.ParquetFile(path).read(["topic", "stored_at"])
        days = {time.date() for time in held.column("stored_at").to_pylist()}
        topics = set(held.column("topic").to_pylist())
        assert (len(days), len(topics)) == (1, 1)
        assert path.parent.name == f"day={days.pop()}"
        found.add(topics.pop())
    assert found == {"orders", "bills"}
    assert len(paths) > 3
    assert len(table.offsets()) == 1_000


def test_a_lost_message_is_an_error_that_says_how_to_continue(
    service: ExportService, table: LocalTable
) -> None:
    exported(service.hold("orders", {0: 100}), table)
    service.create_again("orders", {0: 20})

    assert "--allow-loss" in failed(service, table)
    assert len(table.offsets()) == 100
    assert exported(service, table, "--allow-loss")["rows"] == 20


def test_damaged_messages_are_refused_or_marked(service: ExportService, table: LocalTable) -> None:
    service.hold("orders", {0: 40}).damaged = {(Queue("orders", "broker-a", 0), 17)}

    assert "--damaged mark" in failed(service, table)
    assert table.offsets() == []
    assert exported(service, table, "--damaged", "mark")["damaged_rows"] == 1
    assert [row["queue_offset"] for row in table.rows().to_pylist() if row["damage"]] == [17]


def test_metrics_name_each_outcome(service: ExportService, tmp_path: Path) -> None:
    table = LocalTable("delta", tmp_path)
    file = tmp_path / "eruca.prom"
    label = f'{{command="export",outcome="%s",target="{table.target}"}} 1.0'

    exported(service.hold("orders", {0: 10}), table, "--metrics-file", str(file))
    text = file.read_text()
    assert f'eruca_job_last_run_rows{{command="export",target="{table.target}"}} 10.0' in text
    assert "eruca_job_last_run_outcome" + label % "done" in text
    exported(service, table, "--metrics-file", str(file))
    assert "eruca_job_last_run_outcome" + label % "nothing_new" in file.read_text()
    service.create_again("orders", {0: 5})
    failed(service, table, "--metrics-file", str(file))
    assert "eruca_job_last_run_outcome" + label % "fault" in file.read_text()


@pytest.mark.parametrize(
    ("more", "code", "outcome"),
    [
        ([], 75, "retry"),  # the query services are found at the name servers, which are away
        (["--query", "http://127.0.0.1:1", "--columns", "x"], 2, "fault"),
    ],
)
def test_a_run_that_fails_at_its_beginning_publishes_that_it_did(
    service: ExportService, tmp_path: Path, more: list[str], code: int, outcome: str
) -> None:
    table = LocalTable("delta", tmp_path)
    metrics = ["--metrics-file", str(tmp_path / "eruca.prom")]
    exported(service.hold("orders", {0: 10}), table, *metrics)

    failing = ["export", "orders", "--to", table.target, *metrics, *more]
    Eruca(NOWHERE)(*failing, code=code)

    text = (tmp_path / "eruca.prom").read_text()
    assert f'outcome="{outcome}",target="{table.target}"}} 1.0' in text
    assert 'outcome="done",target=' in text
    assert f'outcome="done",target="{table.target}"}} 0.0' in text


def test_another_export_is_refused_with_a_code_of_its_own(
    service: ExportService, table: LocalTable
) -> None:
    """The other one commits while the first reads its rows."""
    service.hold("orders", {0: 100})

    def overtake() -> None:
        service.on_records = None
        other = subprocess.run(
            [str(ERUCA), *words_of(service, table)], capture_output=True, text=True, check=False
        )
        assert other.returncode == 0, other.stderr

    service.on_records = overtake

    assert "another export writes to this table" in failed(service, table, code=75)
    assert table.offsets() == offsets({0: 100})


def test_a_catalogue_or_log_that_fails_during_a_batch_is_worth_a_retry(
    service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 100})
    table.opened()
    log = table.directory / (
        "table/_delta_log/00000000000000000000.json" if table.kind == "delta" else "catalogue.db"
    )
    held = log.read_bytes()

    def fail() -> None:
        log.write_bytes(b"x" * len(held))

    service.on_records = fail
    said = failed(service, table, "--output", "json", code=75)

    assert json.loads(said)["code"] == "try-again-later"
    assert "nothing is lost: run it again" in said
    service.on_records = None
    log.write_bytes(held)
    exported(service, table)
    assert table.offsets() == offsets({0: 100})


def test_a_service_that_is_away_is_worth_a_retry(table: LocalTable, tmp_path: Path) -> None:
    with serving_exports(ExportService()) as service:
        service.hold("orders", {0: 10}).away = ["broker-b"]
        given = [*words_of(service, table), "--retry-seconds", "0.5"]
        done = Eruca(NOWHERE)(*given, code=75)

    assert "broker-b" in done.stderr


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--force"], "only for files: --force"),
        (["--until", "1h"], "only for files: --until"),
        (["--adopt", "17"], "option startingOffsets: expected"),
        (["--table-option", "x"], "expected NAME=VALUE"),
        (["--columns", "x"], "unknown column ['x']"),
        (["--metrics-file", "eruca.txt"], "node_exporter reads only files NAME.prom"),
    ],
)
def test_wrong_usage_is_refused(
    service: ExportService, tmp_path: Path, more: list[str], told: str
) -> None:
    text = failed(service, LocalTable("delta", tmp_path), *more, code=2)
    assert told in " ".join(text.replace("│", " ").split())


def test_options_of_tables_are_refused_for_files(service: ExportService, tmp_path: Path) -> None:
    file = str(tmp_path / "orders.parquet")
    given = ["export", "orders", "--to", file, "--query", service.url, "--allow-loss"]
    assert "--allow-loss" in Eruca(NOWHERE)(*given, code=2).stderr


def test_a_catalogue_that_cannot_be_opened_is_an_error_with_a_fix(
    service: ExportService, tmp_path: Path
) -> None:
    given = ["export", "orders", "--to", "iceberg:lake.db.t", "--query", service.url]
    said = Eruca(NOWHERE)(*given, "--table-option", "type=what", code=1).stderr
    assert "--table-option" in said


def test_a_table_of_another_origin_is_adopted_at_given_offsets(
    service: ExportService, table: LocalTable
) -> None:
    exported(service.hold("orders", {0: 100}), table)
    other = LocalTable(table.kind, table.directory / "copy")
    other.directory.mkdir()
    rows = table.rows()
    if table.kind == "delta":
        write_deltalake(f"{other.directory}/table", rows)
    else:
        catalog = other.catalog()
        catalog.create_namespace("db")
        catalog.create_table("db.table", rows.schema).append(rows)
    service.hold("orders", {0: 130})

    assert "--adopt" in failed(service, other)
    exported(service, other, "--adopt", '{"orders/broker-a/0": 100}')
    assert other.offsets() == offsets({0: 130})


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_ended_anywhere_loses_and_doubles_nothing(
    service: ExportService, table: LocalTable, stop: signal.Signals
) -> None:
    """It is ended at a random request for rows, or a random time after it."""
    seed = int(os.environ.get("ERUCA_CRASH_SEED") or SystemRandom().randrange(2**32))
    print(f"ERUCA_CRASH_SEED={seed}")  # noqa: T201 - pytest shows it when the test fails
    random = Random(seed)
    service.hold("orders", {0: 3_000, 1: 1_500})
    for _ in range(ROUNDS):
        end_an_export(service, table, stop, random)
    service.hold("orders", {0: 3_010})

    exported(service, table)

    assert table.offsets() == offsets({0: 3_010, 1: 1_500})


def test_the_shown_result_names_what_was_exported(
    service: ExportService, table: LocalTable
) -> None:
    service.hold("orders", {0: 10})
    said = Eruca(NOWHERE)(*words_of(service, table)).stderr
    assert f"{table.target}: 10 messages in 1 batch" in said
