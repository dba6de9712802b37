"""The report of a failure under generated requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from schemathesis import GenerationMode

from support.fuzzing import fuzz, operations_of
from support.processes import ServiceProcess, running

SERVICE = """
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

def log(**event):
    print(json.dumps(event), file=sys.stderr, flush=True)

class Failing(BaseHTTPRequestHandler):
    def do_GET(self):
        log(event="request failed", level="error", exception="Traceback: é" + "x" * 9_000)
        self.send_error(500)

    def log_message(self, *_):
        pass

server = HTTPServer(("127.0.0.1", 0), Failing)
log(event="an old one", level="error")
log(event="listening", url=f"http://127.0.0.1:{server.server_port}")
server.serve_forever()
"""


@pytest.fixture
def failing(tmp_path: Path) -> Iterator[ServiceProcess]:
    (tmp_path / "failing_service.py").write_text(SERVICE)
    with running("failing_service", {"PYTHONPATH": str(tmp_path)}) as process:
        yield process


def test_the_errors_that_were_logged_are_shown_once_with_the_failure(
    failing: ServiceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    [operation] = [its for its in operations_of("namesrv") if its.label == "GET /v1/clusters"]

    with pytest.raises(BaseExceptionGroup):
        fuzz(operation, GenerationMode.POSITIVE, failing)

    shown = capsys.readouterr().err
    assert shown.count("Traceback: é") == 1
    assert "an old one" not in shown
