"""Tables of Delta Lake and Iceberg: commits, the record behind them, and what others do to it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from eruca.exporting.columns import COLUMNS, arrow_schema
from eruca.exporting.errors import OptionError
from eruca.tables.batches import Batch, CommitConflictError, TableError
from eruca.tables.committing import checked_last_batch
from eruca.tables.targets import check_no_secrets, opened
from support.tables import Kind, LocalTable, export_batch, export_batches


@pytest.fixture(params=["delta", "iceberg"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> LocalTable:
    kind: Kind = request.param
    return LocalTable(kind, tmp_path)


def exported(local: LocalTable, count: int) -> list[Batch]:
    return export_batches(local.opened(), count)


def test_rows_and_record_are_there_together(local: LocalTable) -> None:
    batches = exported(local, 3)

    assert local.offsets() == [("orders", "broker-a", 0, offset) for offset in range(30)]
    assert local.opened().last_batch() == batches[-1]
    columns = {field.name for field in local.rows().schema}
    assert columns == set(COLUMNS)


@pytest.mark.parametrize(
    ("target", "option", "instead"),
    [
        ("delta:s3://lake/t", "AWS_SECRET_ACCESS_KEY", "variable AWS_SECRET_ACCESS_KEY"),
        ("delta:s3://lake/t", "aws_session_token", "variable AWS_SESSION_TOKEN"),
        ("delta:abfss://x/t", "azure_storage_account_key", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("iceberg:lake.db.t", "s3.secret-access-key", "LAKE__S3__SECRET_ACCESS_KEY"),
        ("iceberg:lake.db.t", "token", "variable PYICEBERG_CATALOG__LAKE__TOKEN"),
        ("iceberg:lake.db.t", "credential", "variable PYICEBERG_CATALOG__LAKE__CREDENTIAL"),
        ("iceberg:lake.db.t", "header.Authorization", "LAKE__HEADER__AUTHORIZATION"),
    ],
)
def test_secrets_in_options_are_refused_and_not_shown(
    target: str, option: str, instead: str
) -> None:
    with pytest.raises(OptionError, match="no secret in the command line") as caught:
        check_no_secrets(target, {"region": "eu-central-1", option: "a-value"})
    assert instead in str(caught.value)
    assert "a-value" not in str(caught.value)


def test_passwords_in_addresses_are_refused_and_not_shown() -> None:
    for target, options in [
        ("delta:s3://key:a-value@lake/t", {}),
        ("iceberg:lake.db.t", {"uri": "postgresql+psycopg2://me:a-value@localhost/lake"}),
    ]:
        with pytest.raises(OptionError) as caught:
            check_no_secrets(target, options)
        assert "a-value" not in str(caught.value)


@pytest.mark.parametrize(
    "option",
    [
        "AWS_FORCE_CREDENTIAL_LOAD",
        "aws_access_key_id",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "oauth2-server-uri",
        "header.X-Iceberg-Access-Delegation",
        "uri",
    ],
)
def test_options_without_secrets_are_taken(option: str) -> None:
    check_no_secrets("iceberg:lake.db.t", {option: "https://me@catalogue.example:8181/api"})


def test_a_store_that_nobody_knows_is_refused() -> None:
    with pytest.raises(TableError, match=r"cannot be opened: .* check the place"):
        opened("delta:ftp://host/table", arrow_schema(COLUMNS))


def test_of_two_exporters_one_commits(local: LocalTable) -> None:
    first, second = local.opened(), local.opened()
    assert first.last_batch() is second.last_batch() is None
    export_batch(first, 0, None)

    with pytest.raises(CommitConflictError):
        second.append([], Batch(0, "theirs", "{}", 0, 0, 0, 2))
    assert len(local.offsets()) == 10


def test_a_compaction_or_a_deletion_by_others_is_no_obstacle(local: LocalTable) -> None:
    [batch] = exported(local, 1)
    table = local.opened()
    assert table.last_batch() == batch
    if local.kind == "delta":
        local.delta().delete("queue_offset < 5")
        local.delta().optimize.compact()
    else:
        local.catalog().load_table("db.table").delete("queue_offset < 5")

    after = export_batch(table, 1, batch)
    assert [row[3] for row in local.offsets()] == list(range(5, 20))
    assert local.opened().last_batch() == after


def test_a_rollback_takes_the_record_back_with_the_rows(local: LocalTable) -> None:
    batches = exported(local, 3)
    if local.kind == "delta":
        local.delta().restore(2)  # the table was created as version 0
    else:
        table = local.catalog().load_table("db.table")
        [first, second, _] = table.snapshots()
        assert second.parent_snapshot_id == first.snapshot_id
        table.manage_snapshots().rollback_to_snapshot(second.snapshot_id).commit()

    assert local.opened().last_batch() == batches[1]
    assert len(local.offsets()) == 20
    export_batch(local.opened(), 2, batches[1])
    assert len(local.offsets()) == 30


def test_a_record_that_is_gone_is_an_error_unless_the_table_is_adopted(local: LocalTable) -> None:
    exported(local, 1)
    if local.kind == "delta":
        # a clean-up of the log leaves the checkpoint, and no entry before it
        log = local.directory / "table" / "_delta_log"
        local.delta().delete("queue_offset < 5")
        local.delta().create_checkpoint()
        for entry in sorted(log.glob("*.json"))[:-1]:
            entry.unlink()
    else:
        table = local.catalog().load_table("db.table")
        [snapshot] = table.snapshots()
        table.delete("queue_offset < 5")
        table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()

    with pytest.raises(TableError, match="adopt"):
        checked_last_batch(local.opened())
    assert checked_last_batch(local.opened(adopts=True)) is None


def test_a_table_made_by_hand_is_taken_if_it_is_empty(local: LocalTable) -> None:
    create(local, pa.schema([("topic", pa.string()), ("mine", pa.int64())]))
    export_batch(local.opened(), 0, None)

    rows = local.rows()
    assert rows.num_rows == 10
    assert rows.column("mine").null_count == 10


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (pa.field("queue_offset", pa.string()), "expected type int64 for column queue_offset"),
        (pa.field("mine", pa.int64(), nullable=False), "expected column mine to allow nulls"),
    ],
)
def test_a_table_that_cannot_take_the_columns_is_refused(
    local: LocalTable, field: pa.Field, told: str
) -> None:
    create(local, pa.schema([field]))
    with pytest.raises(TableError, match=told):
        local.opened()


def test_topics_with_a_percent_sign_are_written(local: LocalTable) -> None:
    export_batch(local.opened(), 0, None, "%DLQ%billing")
    assert {row[0] for row in local.offsets()} == {"%DLQ%billing"}


@pytest.mark.parametrize("target", ["delta:", "iceberg:t", "iceberg:lake.t", "orc:x"])
def test_a_target_that_is_no_table_is_refused(target: str) -> None:
    with pytest.raises(TableError, match="expected "):
        opened(target, pa.schema([]))


def create(local: LocalTable, schema: pa.Schema) -> None:
    if local.kind == "delta":
        from deltalake import DeltaTable

        DeltaTable.create(f"{local.directory}/table", schema)
        return
    catalog = local.catalog()
    catalog.create_namespace("db")
    catalog.create_table("db.table", schema)
