"""``eruca export`` as a person types it: whole files, and runs that are broken off and go on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

import eruca
from eruca.cli.exporting.parts import ExportParts, ExportRequest, reserved
from eruca.cli.exporting.service import ExportService as PlanningService
from eruca.contract.errors import PROBLEM_MEDIA_TYPE, ConflictError, NotReadyError
from eruca.contract.exports import NDJSON_MEDIA_TYPE, ExportPlan
from eruca.contract.names import QUERY_SERVICES_NAMESPACE
from support.brokers import broker_of, rot
from support.command_line import ERUCA
from support.exports import ExportService, export_service
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.stores import delete_oldest_segments
from support.waiting import until

pytestmark = pytest.mark.anyio

COUNT = 210_000  # messages: three parts


class CommandLine:
    """Runs the command as a process of its own."""

    def __init__(self, namesrv_url: str) -> None:
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("ERUCA_")},
            "ERUCA_NAMESRV_URLS": namesrv_url,
        }

    async def start(
        self, *arguments: str | Path, file_size_max: int | None = None
    ) -> asyncio.subprocess.Process:
        limit = () if file_size_max is None else ("prlimit", f"--fsize={file_size_max}")
        return await asyncio.create_subprocess_exec(
            *limit,
            ERUCA,
            *arguments,
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        """Return what the command says, on either way out."""
        return await self.ended(await self.start(*arguments), code)

    async def ended(self, process: asyncio.subprocess.Process, code: int) -> str:
        """Return what a command says that was started."""
        output, errors = await process.communicate()
        said = output.decode() + errors.decode()
        assert process.returncode == code, said
        assert "Traceback" not in said
        return said


@asynccontextmanager
async def exporting(
    directory: Path, count: int = 0
) -> AsyncIterator[tuple[CommandLine, ExportService]]:
    async with (
        in_process_cluster(directory / "cluster", brokers=1) as cluster,
        export_service(cluster) as service,
    ):
        command = await knowing(cluster, service)
        async with service.client.producer() as producer:
            await producer.send_many(
                [eruca.Message("orders", f"body {n}", keys=[f"key-{n}"]) for n in range(count)]
            )
        yield command, service


async def knowing(cluster: InProcessCluster, service: ExportService) -> CommandLine:
    """Return the command, which finds the service; there is a topic, without messages."""
    await service.client.admin.create_topic("orders", queue_count=2)
    await service.client.admin.put_kv(QUERY_SERVICES_NAMESPACE, "query-1", service.url)
    return CommandLine(cluster.namesrv_urls[0])


def numbers(bodies: list[bytes]) -> list[int]:
    return sorted(int(body.split()[1]) for body in bodies)


async def test_a_topic_becomes_a_file_of_each_kind_with_the_same_rows(tmp_path: Path) -> None:
    async with exporting(tmp_path, 3_000) as (command, _):
        said = await command("export", "orders", "--to", tmp_path / "orders.parquet")
        await command("export", "orders", "--to", tmp_path / "orders.arrow")
        await command("export", "orders", "--to", tmp_path / "orders.ndjson")

    table = parquet.read_table(tmp_path / "orders.parquet")
    assert numbers(table["body"].to_pylist()) == list(range(3_000))
    assert feather.read_table(tmp_path / "orders.arrow").equals(table)
    lines = [json.loads(line) for line in (tmp_path / "orders.ndjson").read_text().splitlines()]
    assert [line["offset_message_id"] for line in lines] == table["offset_message_id"].to_pylist()
    assert "3,000 messages" in said
    assert not (tmp_path / "orders.parquet.parts").exists()


async def test_metrics_keep_the_last_success_whatever_the_files_are_named(tmp_path: Path) -> None:
    metrics = tmp_path / "eruca.prom"
    label = '{command="export",target="file:orders"}'
    success = f"eruca_job_last_success_timestamp_seconds{label} "
    async with exporting(tmp_path, 30) as (command, _):
        words = ("export", "orders", "--metrics-file", metrics, "--to")
        await command(*words, tmp_path / "monday.parquet")
        first = metrics.read_text()
        await command(*words, tmp_path / "monday.parquet", code=1)
        second = metrics.read_text()
        await command(*words, tmp_path / "tuesday.ndjson", "--query", "http://127.0.0.1:1", code=75)
        third = metrics.read_text()
        refused = await command(
            *("export", "orders", "--to", tmp_path / "x.ndjson"),
            *("--metrics-file", tmp_path / "eruca.txt"),
            code=2,
        )

    assert f"eruca_job_last_run_rows{label} 30.0" in first
    assert f"eruca_job_last_run_damaged_rows{label} 0.0" in first
    assert f"eruca_job_last_run_missing_brokers{label} 0.0" in first
    size = (tmp_path / "monday.parquet").stat().st_size
    assert f"eruca_job_last_run_size_bytes{label} {float(size)}" in first
    [at] = [line for line in first.splitlines() if line.startswith(success)]
    for text, outcome in ((first, "done"), (second, "fault"), (third, "retry")):
        assert f'outcome="{outcome}",target="file:orders"}} 1.0' in text
        assert at in text
    assert "eruca_job_last_run_rows" not in second
    assert "node_exporter reads only files NAME.prom" in " ".join(refused.split())


async def test_metrics_tell_that_a_run_was_interrupted(tmp_path: Path) -> None:
    metrics = tmp_path / "eruca.prom"
    asked, closed = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()  # until the command closes the connection
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        command = CommandLine("http://127.0.0.1:1")
        process = await command.start(
            *("export", "orders", "--to", tmp_path / "orders.ndjson", "--query", url),
            *("--metrics-file", metrics),
        )
        await asyncio.wait_for(asked.wait(), 60)
        process.send_signal(signal.SIGINT)
        await command.ended(process, 130)
        await asyncio.wait_for(closed.wait(), 60)

    assert 'outcome="interrupted",target="file:orders"} 1.0' in metrics.read_text()


async def test_columns_and_times_are_those_asked_for(tmp_path: Path) -> None:
    async with exporting(tmp_path, 30) as (command, _):
        file = tmp_path / "orders.parquet"
        told = await command(
            *("export", "orders", "--to", file, "--columns", "queue_offset,keys"),
            *("--since", "1h", "--output=json"),
        )
        await command(
            "export", "orders", "--to", tmp_path / "old.parquet", "--until", "2020-01-01T00:00:00Z"
        )

        reversed_ = await command(
            *("export", "orders", "--to", tmp_path / "none.parquet"),
            *("--since", "1h", "--until", "2h"),
            code=2,
        )

    assert "--until 2h is before --since 1h" in reversed_
    table = parquet.read_table(file)
    assert (table.column_names, table.num_rows) == (["queue_offset", "keys"], 30)
    size = file.stat().st_size
    assert json.loads(told) == {
        "file": str(file),
        "rows": 30,
        "damaged": 0,
        "size": size,
        "incomplete": [],
    }
    old = parquet.read_table(tmp_path / "old.parquet")
    assert (old.num_rows, "body" in old.column_names) == (0, True)


async def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    async with exporting(tmp_path, 0) as (command, service):
        async with service.client.producer() as producer:
            for first in range(0, COUNT, 10_000):
                await producer.send_many(
                    [eruca.Message("orders", f"body {n}") for n in range(first, first + 10_000)]
                )
        file = tmp_path / "orders.parquet"
        parts = tmp_path / "orders.parquet.parts"
        process = await command.start("export", "orders", "--to", file)
        await until(lambda: (parts / "000000").exists())
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        assert not file.exists()
        async with service.client.producer() as producer:
            await producer.send(eruca.Message("orders", f"body {COUNT}"))
        read_before = service.exports.slots.rows

        said = await command("export", "orders", "--to", file)

    assert "continuing" in said
    assert service.exports.slots.rows - read_before < COUNT
    # What came later is not in it: the first run has fixed what there is.
    assert numbers(parquet.read_table(file)["body"].to_pylist()) == list(range(COUNT))
    assert not parts.exists()


async def test_parts_of_another_export_are_not_mixed_up_with_this_one(tmp_path: Path) -> None:
    async with exporting(tmp_path, 30) as (command, service):
        file = tmp_path / "orders.ndjson"
        await service.client.admin.create_topic("other")
        (tmp_path / "orders.ndjson.parts").mkdir()
        plan = await service.plan("other")
        (tmp_path / "orders.ndjson.parts" / "plan.json").write_text(
            json.dumps(
                {
                    "request": {
                        "topic": "other",
                        "media_type": "application/x-ndjson",
                        "columns": None,
                        "since": None,
                        "until": None,
                    },
                    "plan": plan.model_dump(mode="json"),
                    "version": 2,
                }
            )
        )

        refused = await command("export", "orders", "--to", file, code=1)
        await command("export", "orders", "--to", file, "--restart")

    assert "topic other" in refused
    assert "--restart" in refused
    assert len(file.read_text().splitlines()) == 30


async def test_parts_of_an_earlier_version_are_refused(tmp_path: Path) -> None:
    """They do not say of which topic their ranges are."""
    file = tmp_path / "orders.ndjson"
    async with exporting(tmp_path, 30) as (command, service):
        with reserved(file):
            request = ExportRequest("orders", NDJSON_MEDIA_TYPE, None, None, None)
            ExportParts.begun(file, request, await service.plan("orders"))
            kept = tmp_path / "orders.ndjson.parts" / "plan.json"
            document = json.loads(kept.read_text())
            del document["version"]
            kept.write_text(json.dumps(document))

        refused = await command("export", "orders", "--to", file, code=1)
        await command("export", "orders", "--to", file, "--restart")

    assert "are of version 1, expected 2" in refused
    assert "--restart" in refused
    assert len(file.read_text().splitlines()) == 30


@pytest.mark.parametrize("read_before", [False, True])
async def test_parts_of_a_topic_that_was_created_again_are_not_mixed_with_its_messages(
    tmp_path: Path, read_before: bool
) -> None:
    """It holds as many messages as were planned."""
    file = tmp_path / "orders.ndjson"
    async with exporting(tmp_path, 30) as (command, service):
        plan = await service.plan("orders", partition_rows=5)
        first = plan.partitions[0]
        with reserved(file):
            request = ExportRequest("orders", NDJSON_MEDIA_TYPE, None, None, None)
            parts = ExportParts.begun(file, request, plan)
            if read_before:
                parts.open_part(first).close()
                parts.keep(first)
        await service.client.admin.delete_topic("orders")
        await service.client.admin.create_topic("orders", queue_count=2)
        async with service.client.producer() as producer:
            for queue in await service.client.admin.queues("orders"):
                messages = [eruca.Message("orders", f"again {n}") for n in range(15)]
                await producer.send_many(messages, queue=queue)

        if read_before:
            said = await command("export", "orders", "--to", file, code=1)
            assert "topic orders was deleted and created again" in said
            assert "--restart" in said
        await command("export", "orders", "--to", file, *["--restart"][: int(read_before)])

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 30
    assert all(line["body"]["text"].startswith("again") for line in lines)


async def test_two_runs_into_one_file_do_not_share_its_parts(tmp_path: Path) -> None:
    file = tmp_path / "orders.ndjson"
    async with exporting(tmp_path, 30) as (command, _):
        with reserved(file):
            refused = await command("export", "orders", "--to", file, "--restart", code=1)
            with pytest.raises(ConflictError, match="another process"), reserved(file):
                pass
        await command("export", "orders", "--to", file)

    assert f"another process is exporting to {file}" in refused
    assert len(file.read_text().splitlines()) == 30
    assert not (tmp_path / "orders.ndjson.parts").exists()


async def test_a_file_that_is_there_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    async with exporting(tmp_path, 3) as (command, _):
        file = tmp_path / "orders.ndjson"
        file.write_text("precious")

        refused = await command("export", "orders", "--to", file, code=1)
        assert file.read_text() == "precious"
        await command("export", "orders", "--to", file, "--force")

        directory = tmp_path / "directory.ndjson"
        directory.mkdir()
        is_one = await command("export", "orders", "--to", directory, "--force", code=1)

    assert "--force" in refused
    assert len(file.read_text().splitlines()) == 3
    assert "is a directory" in is_one
    assert not (tmp_path / "directory.ndjson.parts").exists()


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["orders", "--to", "orders.csv"], "expected a file name that ends in", 1),
        (["no-such-topic", "--to", "x.ndjson"], "no-such-topic", 1),
        (["orders", "--to", "x.ndjson", "--columns", "colour"], "unknown column 'colour'", 1),
        (["orders", "--to", "x.ndjson", "--query", "http://127.0.0.1:1"], "127.0.0.1:1", 75),
        (["orders", "--to", "no-such-directory/x.ndjson"], "no-such-directory", 1),
    ],
)
async def test_what_cannot_be_exported_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    async with exporting(tmp_path, 3) as (command, _):
        refused = await command("export", *arguments, code=code)

    assert said in refused
    assert len(refused.splitlines()) == 1


async def test_a_run_that_was_refused_leaves_nothing_in_the_way_of_the_next(
    tmp_path: Path,
) -> None:
    file, parts = tmp_path / "orders.ndjson", tmp_path / "orders.ndjson.parts"
    async with exporting(tmp_path, 3) as (command, _):
        await command("export", "orders", "--to", file, "--columns", "tagg", code=1)
        is_there = parts.exists()
        await command("export", "orders", "--to", file, "--columns", "tag")

    assert not is_there
    assert len(file.read_text().splitlines()) == 3


async def test_a_run_without_room_for_its_first_part_leaves_nothing_in_the_way_of_the_next(
    tmp_path: Path,
) -> None:
    file, parts = tmp_path / "orders.ndjson", tmp_path / "orders.ndjson.parts"
    async with exporting(tmp_path, 300) as (command, _):
        process = await command.start("export", "orders", "--to", file, file_size_max=16_384)
        said = await command.ended(process, code=1)
        is_there = parts.exists()
        await command("export", "orders", "--to", file, "--columns", "tag")

    assert "File too large" in said
    assert not is_there
    assert len(file.read_text().splitlines()) == 300


@pytest.mark.parametrize("suffix", ["ndjson", "arrow"])
async def test_a_damaged_message_ends_an_export_which_goes_on_with_it_marked(
    tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"orders.{suffix}"
    async with (
        in_process_cluster(tmp_path / "cluster", brokers=1) as cluster,
        export_service(cluster) as service,
    ):
        command = await knowing(cluster, service)
        async with service.client.producer() as producer:
            queue = min(await service.client.admin.queues("orders"))
            await producer.send_many(
                [eruca.Message("orders", f"body {n}") for n in range(30)], queue=queue
            )
        rot(cluster.brokers["broker-a"], b"body 17")

        refused = await command("export", "orders", "--to", file, code=1)
        done = await command("export", "orders", "--to", file, "--damaged=mark")
        told = await command(
            *("export", "orders", "--to", file, "--damaged=mark", "--force", "--output=json")
        )

    for part in ("orders", "broker-a/0", "offset 17", "log offset", "--damaged mark"):
        assert part in refused, refused
    assert "queue_offset 17" in done
    assert json.loads(told)["damaged"] == 1
    if suffix == "ndjson":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    else:
        rows = feather.read_table(file).to_pylist()
    assert [row["queue_offset"] for row in rows if row["damage"] is not None] == [17]
    assert sum(row["body"] is not None for row in rows) == 29


@pytest.mark.parametrize("read_before", [False, True])
async def test_what_retention_has_deleted_of_a_plan_is_planned_again_or_told(
    tmp_path: Path,
    read_before: bool,
) -> None:
    file = tmp_path / "orders.ndjson"
    async with (
        in_process_cluster(tmp_path / "cluster", brokers=1) as cluster,
        export_service(cluster) as service,
    ):
        command = await knowing(cluster, service)
        async with service.client.producer(compression_threshold_bytes=None) as producer:
            for _ in range(40):
                await producer.send(eruca.Message("orders", bytes(1_000_000), sharding_key="one"))
        plan = await service.plan("orders", partition_rows=5)
        first = plan.partitions[0]
        with reserved(file):
            request = ExportRequest("orders", NDJSON_MEDIA_TYPE, None, None, None)
            parts = ExportParts.begun(file, request, plan)
            if read_before:
                parts.open_part(first).close()
                parts.keep(first)
        store = broker_of(cluster.brokers["broker-a"]).store
        assert await delete_oldest_segments(store, 1)
        left = (await service.plan("orders")).rows

        if read_before:
            said = await command("export", "orders", "--to", file, code=1)
            assert "has been deleted" in said
            assert "--restart" in said
            assert f"{first.rows} messages had been read" in said
        await command("export", "orders", "--to", file, *["--restart"][: int(read_before)])

    assert len(file.read_text().splitlines()) == left
    assert not (tmp_path / "orders.ndjson.parts").exists()


def missing_brokers(metrics: Path) -> tuple[float, float]:
    """Return the number of known ones, and 1 if there may be others."""
    lines = [line.split("{") for line in metrics.read_text().splitlines() if "{" in line]
    values = {name: float(rest.rpartition(" ")[2]) for name, rest in lines}
    name = "eruca_job_last_run_missing_brokers"
    return values[name], values[f"{name}_unknown"]


async def test_brokers_that_nobody_can_find_are_left_out_only_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    file, parts = tmp_path / "orders.ndjson", tmp_path / "orders.ndjson.parts"
    metrics = tmp_path / "eruca.prom"
    async with exporting(tmp_path, 30) as (command, service):
        service.holders.names = ["broker-a", "broker-z"]
        refused = await command("export", "orders", "--to", file, code=75)
        is_there = file.exists() or parts.exists()
        said = await command(
            *("export", "orders", "--to", file, "--allow-incomplete"),
            *("--metrics-file", metrics),
        )
        none = await command(
            "export", "parcels", "--to", tmp_path / "none.ndjson", "--allow-incomplete", code=75
        )

    assert "broker-z" in refused
    assert "broker-a" not in refused
    assert "--allow-incomplete" in refused
    assert not is_there
    assert "of broker-z may be missing" in said
    assert missing_brokers(metrics) == (1, 0)
    assert "cannot export parcels: none of its brokers is live" in none
    assert len(file.read_text().splitlines()) == 30


async def test_brokers_that_nobody_can_know_of_are_left_out_only_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    file, metrics = tmp_path / "orders.ndjson", tmp_path / "eruca.prom"
    async with exporting(tmp_path, 30) as (command, service):
        service.holders.is_unreachable = True
        refused = await command("export", "orders", "--to", file, code=75)
        unknown = await command("export", "parcels", "--to", file, "--allow-incomplete", code=75)
        is_there = file.exists()
        said = await command(
            *("export", "orders", "--to", file, "--allow-incomplete"),
            *("--metrics-file", metrics),
        )

    assert "database is unreachable" in refused
    assert "--allow-incomplete" in refused
    assert "nobody listens" in unknown
    assert not is_there
    assert "messages may be missing" in said
    assert missing_brokers(metrics) == (0, 1)
    assert len(file.read_text().splitlines()) == 30


async def test_without_a_query_service_it_is_said_how_to_have_one(tmp_path: Path) -> None:
    async with in_process_cluster(tmp_path, brokers=0) as cluster:
        command = CommandLine(cluster.namesrv_urls[0])
        refused = await command("export", "orders", "--to", tmp_path / "x.ndjson", code=75)

    assert "no query service is known" in refused
    assert "ERUCA_QUERY_URLS" in refused


def test_the_arrow_file_is_of_the_kind_that_can_be_mapped(tmp_path: Path) -> None:
    """A stream cannot be; what ends in .arrow is expected to be a file."""
    from eruca.cli.exporting.files import FileFormat, write_file

    schema = pa.schema([pa.field("n", pa.int64())])
    part = tmp_path / "part"
    with pa.OSFile(str(part), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([1, 2])], schema=schema))

    told: list[int] = []
    write_file(tmp_path / "n.arrow", FileFormat.ARROW, [part, part], 4, told.append)

    with pa.ipc.open_file(str(tmp_path / "n.arrow")) as reader:
        assert reader.read_all()["n"].to_pylist() == [1, 2, 1, 2]
    assert told == [2, 2]


def test_parts_that_lack_rows_become_no_file(tmp_path: Path) -> None:
    from eruca.cli.exporting.files import FileFormat, write_file

    whole, emptied = tmp_path / "whole", tmp_path / "emptied"
    whole.write_bytes(b'{"n": 1}\n{"n": 2}\n')
    emptied.touch()

    with pytest.raises(ConflictError, match=r"expected 4 rows .* found 2"):
        write_file(tmp_path / "n.ndjson", FileFormat.NDJSON, [whole, emptied], 4, lambda _: None)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["emptied", "whole"]


async def test_a_query_service_that_stops_is_left_for_another_by_the_plan() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "runs":
            return httpx.Response(200, content=plan.model_dump_json())
        problem = NotReadyError("the service is stopping").problem()
        return httpx.Response(503, json=problem, headers={"content-type": PROBLEM_MEDIA_TYPE})

    now = datetime.now(UTC).replace(microsecond=0)  # answers tell milliseconds
    plan = ExportPlan(
        topic="orders", schema_version=2, taken_at=now, rows=0, queues=[], partitions=[]
    )
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        among = PlanningService(http, ["http://stops", "http://runs"], "orders")
        alone = PlanningService(http, ["http://stops"], "orders")

        assert await among.plan({}) == plan
        with pytest.raises(NotReadyError, match="the service is stopping"):
            await alone.plan({})
