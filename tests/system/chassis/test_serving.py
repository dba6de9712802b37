"""A service's process: how it ends when it cannot start, and when it is stopped while starting."""

from __future__ import annotations

import signal
import subprocess
import sys

import httpx
import pytest

from eruca_chassis.running.serving import INTERRUPTED_EXIT_CODE, LISTEN_EXIT_CODE, START_EXIT_CODE
from support.patience import PATIENCE_SECONDS
from support.processes import clean_environment

SERVICE = """
from contextlib import asynccontextmanager
import asyncio, sys
from pydantic_settings import SettingsConfigDict
from eruca_chassis.app import ServiceApp
from eruca_chassis.running.command_line import run_program
from eruca_chassis.running.settings import ServiceSettings
from eruca_chassis.start import StartError

class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_THING_")

@asynccontextmanager
async def lifespan(app):
    {start}
    yield

def create_app(settings):
    return ServiceApp(title="T", summary="", description="", version="1", lifespan=lifespan)

run_program(Settings, create_app, name=lambda _: "thing", inspect=lambda _: ())
"""


NEVER_STARTED = """
    sys.stderr.write(f"{app.addresses[0][1]}\\n"); sys.stderr.flush(); await asyncio.sleep(600)
"""


def started(start: str, *, port: str = "0") -> subprocess.Popen[str]:
    program = SERVICE.replace("{start}", start.strip())
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**clean_environment(), "TEST_THING_PORT": port},
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_service_that_cannot_start_says_why_in_one_line() -> None:
    with started('raise StartError("the store is on fire; put it out")') as process:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == START_EXIT_CODE
    assert errors == "thing: the store is on fire; put it out\n"


def test_a_defect_while_starting_is_no_secret() -> None:
    with started('raise ZeroDivisionError("unexpected")') as process:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert "Traceback" in errors
    assert "ZeroDivisionError: unexpected" in errors


@pytest.mark.parametrize(
    ("by", "code"),
    [(signal.SIGINT, INTERRUPTED_EXIT_CODE), (signal.SIGTERM, -signal.SIGTERM)],
)
def test_a_start_that_takes_long_can_be_broken_off(by: signal.Signals, code: int) -> None:
    with started(NEVER_STARTED) as process:
        assert process.stderr is not None
        assert process.stderr.readline()

        process.send_signal(by)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == code
    assert errors == ""


def test_while_it_starts_it_tells_its_health_and_refuses_what_it_would_carry_out_too_late() -> None:
    with started(NEVER_STARTED) as process:
        assert process.stderr is not None
        port = process.stderr.readline().strip()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
                assert client.get("/healthz").status_code == 200
                assert client.get("/readyz").status_code == 503
                refused = client.post("/v1/things", content=b"x")
        finally:
            process.kill()

    assert (refused.status_code, refused.json()["code"]) == (503, "not-ready")


def test_the_port_of_one_that_starts_is_taken() -> None:
    with started(NEVER_STARTED) as first:
        assert first.stderr is not None
        port = first.stderr.readline().strip()
        try:
            with started(NEVER_STARTED, port=port) as second:
                _, errors = second.communicate(timeout=PATIENCE_SECONDS)
        finally:
            first.kill()

    assert second.returncode == LISTEN_EXIT_CODE
    assert errors.startswith(f"thing: cannot listen on 127.0.0.1:{port}: Address already in use")
