"""The Python for Spark's workers: this one, without Spark's archives on its path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from eruca_spark.session import prepare_environment
from eruca_spark.workers import worker_python

LIBRARY = Path(pyspark.__file__).parent / "python" / "lib"
ARCHIVES = [str(path) for path in sorted(LIBRARY.glob("*.zip"))]
REPORT = "import json, os, sys; print(json.dumps([sys.executable, sys.argv[1:], sys.path]))"


def started(python: str, path: list[str], *arguments: str) -> tuple[str, list[str], list[str]]:
    """Return the executable, the arguments and the path of what *python* starts."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    command = [python, "-c", REPORT, *arguments]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    executable, told, path = json.loads(done.stdout)
    return executable, told, path


def test_workers_are_this_python_without_the_archives(tmp_path: Path) -> None:
    assert len(ARCHIVES) == 2
    python = worker_python({}, tmp_path)

    path = [*ARCHIVES, "/some where/else*", str(tmp_path / "a.zip")]
    executable, arguments, found = started(python, path, "a b", "$HOME", "")

    assert executable == sys.executable
    assert arguments == ["a b", "$HOME", ""]
    assert not {*ARCHIVES} & {*found}
    assert found[1:3] == path[2:]


def test_a_path_of_nothing_but_the_archives_is_none(tmp_path: Path) -> None:
    _, _, found = started(worker_python({}, tmp_path), ARCHIVES)

    assert found == started(sys.executable, [])[2]


def test_another_spark_keeps_its_archives(tmp_path: Path) -> None:
    assert worker_python({"SPARK_HOME": "/opt/spark"}, tmp_path) == sys.executable
    installed = {"SPARK_HOME": str(LIBRARY.parents[1])}
    assert worker_python(installed, tmp_path) != sys.executable


def test_where_the_script_cannot_be_written_it_is_this_python(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert worker_python({}, tmp_path / "file" / "below") == sys.executable


def test_a_python_that_was_chosen_stays_and_a_cluster_has_the_installed_one(tmp_path: Path) -> None:
    chosen = {"PYSPARK_PYTHON": "/usr/bin/python3", "XDG_CACHE_HOME": str(tmp_path), **_java()}
    prepare_environment(chosen, is_local=True)
    assert chosen["PYSPARK_PYTHON"] == "/usr/bin/python3"

    for is_local in (True, False):
        environment = {"XDG_CACHE_HOME": str(tmp_path), **_java()}
        prepare_environment(environment, is_local=is_local)
        assert (environment["PYSPARK_PYTHON"] == sys.executable) is not is_local
        assert environment["PYSPARK_DRIVER_PYTHON"] != sys.executable


def _java() -> dict[str, str]:
    return {name: os.environ[name] for name in ("JAVA_HOME", "PATH") if name in os.environ}
