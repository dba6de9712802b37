"""The command line of the local cluster: wrong options and taken ports are clear errors."""

from __future__ import annotations

import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from eruca_deploy.local import default_data_dir, main
from support.patience import PATIENCE_SECONDS

INTERRUPTED = """
import importlib, os, signal, sys

class CtrlC:
    def find_spec(self, name, *_):
        if name == "eruca_deploy.cluster":
            os.kill(os.getpid(), signal.SIGINT)

script = importlib.import_module(sys.argv[1])
sys.meta_path.insert(0, CtrlC())
getattr(script, sys.argv[2])()
"""


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--brokers", "0"], "expected a number from 1 to 9 or 'auto', found '0'"),
        (["--brokers", "many"], "expected a number from 1 to 9 or 'auto', found 'many'"),
        (["--namesrvs", "10"], "expected a number from 1 to 9, found '10'"),
        (["--base-port", "70000"], "expected a port from 0 to 65535, found '70000'"),
        (["--base-port", "abc"], "expected a port from 0 to 65535, found 'abc'"),
        (["--data", ""], "argument --data: expected a directory, found ''"),
        (["--colour"], "--colour"),
        (["--data", "~no-such-user/x"], "argument --data: ~no-such-user/x: "),
    ],
)
def test_a_wrong_option_is_refused_by_name(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)

    assert stopped.value.code == 2
    assert named in capsys.readouterr().err


def test_a_taken_port_is_an_error_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        code = main(["--base-port", str(port), "--data", str(data)])

    assert code == 1
    assert f"port {port} on 127.0.0.1 is taken by process" in capsys.readouterr().err
    assert not data.exists()


def test_brokers_for_this_machine_are_counted_before_they_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("broker-a", "broker-i"):  # of nine brokers, the last of which none may leave out
        (tmp_path / name).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])

        main(["--brokers", "auto", "--base-port", port, "--data", str(tmp_path)])

    assert "9 brokers: " in capsys.readouterr().out


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_data_that_can_lie_nowhere_is_an_error_that_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (tmp_path / "file").touch()

    code = main(["--base-port", "0", "--data", str(tmp_path / place)])

    assert code == 1
    errors = capsys.readouterr().err
    assert f"{tmp_path / place} cannot be created" in errors
    assert errors.endswith("; choose another --data\n")


def test_data_lies_in_the_users_own_directory() -> None:
    assert default_data_dir({"XDG_DATA_HOME": "/data"}) == Path("/data/eruca/local")
    assert default_data_dir({}) == Path.home() / ".local/share/eruca/local"


def test_ctrl_c_while_python_imports_ends_it_without_a_traceback() -> None:
    """The name is that of the script; the signal comes as soon as its imports begin."""
    project = tomllib.loads((Path(__file__).parents[3] / "deploy/pyproject.toml").read_text())
    module, name = project["project"]["scripts"]["eruca-local"].split(":")

    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, module, name],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
