"""A service's process: how it ends when it cannot start, and when it is stopped while starting."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from eruca_chassis.serving import INTERRUPTED_EXIT_CODE, START_EXIT_CODE

SERVICE = """
from contextlib import asynccontextmanager
import asyncio, sys
from pydantic_settings import SettingsConfigDict
from eruca_chassis.app import ServiceApp
from eruca_chassis.serving import run
from eruca_chassis.settings import ServiceSettings, settings_or_exit
from eruca_chassis.start import StartError

class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_THING_")

@asynccontextmanager
async def lifespan(app):
    {start}
    yield

def create_app():
    return ServiceApp(title="T", summary="", description="", version="1", lifespan=lifespan)

run(create_app, settings_or_exit(Settings, sys.argv[1:]), name="thing")
"""
END_SECONDS = 30


def started(start: str) -> subprocess.Popen[str]:
    program = SERVICE.replace("{start}", start)
    return subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)


def test_a_service_that_cannot_start_says_why_in_one_line() -> None:
    with started('raise StartError("the store is on fire; put it out")') as process:
        _, errors = process.communicate(timeout=END_SECONDS)

    assert process.returncode == START_EXIT_CODE
    assert errors == "thing: the store is on fire; put it out\n"


def test_a_defect_while_starting_is_no_secret() -> None:
    with started('raise ZeroDivisionError("unexpected")') as process:
        _, errors = process.communicate(timeout=END_SECONDS)

    assert process.returncode == 1
    assert "Traceback" in errors
    assert "ZeroDivisionError: unexpected" in errors


@pytest.mark.parametrize(
    ("by", "code"),
    [(signal.SIGINT, INTERRUPTED_EXIT_CODE), (signal.SIGTERM, -signal.SIGTERM)],
)
def test_a_start_that_takes_long_can_be_broken_off(by: signal.Signals, code: int) -> None:
    start = 'sys.stderr.write("starting\\n"); sys.stderr.flush(); await asyncio.sleep(600)'
    with started(start) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "starting\n"

        process.send_signal(by)
        _, errors = process.communicate(timeout=END_SECONDS)

    assert process.returncode == code
    assert errors == ""
