"""Metrics of jobs: the last run, in a file or pushed; never a reason for a job to fail."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socket import SHUT_WR
from socketserver import BaseRequestHandler, TCPServer

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eruca.exporting.errors import OptionError
from eruca.exporting.job_metrics import MetricTargets, measured

DONE = {"command": "export", "outcome": "done", "rows": 120, "batches": 2, "rows_by_topic": {}}
LABELS = {"command": "export", "target": "delta:/data/orders"}


def samples(text: str) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert LABELS.items() <= sample.labels.items()
            outcome = sample.labels.get("outcome")
            found[f"{sample.name}:{outcome}" if outcome else sample.name] = sample.value
    return found


def ran(places: MetricTargets, error: Exception | None = None) -> None:
    with measured("export", LABELS["target"], places, lambda _: "retry") as run:
        if error is not None:
            raise error
        run.ended(DONE)


def test_a_run_is_written_in_prometheus_s_format(tmp_path: Path) -> None:
    file = tmp_path / "eruca.prom"
    ran(MetricTargets(file, None))

    found = samples(file.read_text())
    assert found["eruca_job_last_run_rows"] == 120
    assert found["eruca_job_last_run_outcome:done"] == 1
    assert found["eruca_job_last_run_outcome:fault"] == 0
    assert found["eruca_job_last_run_timestamp_seconds"] > 1.7e9
    assert [path.name for path in tmp_path.iterdir()] == ["eruca.prom"]  # nothing temporary


def test_a_failure_keeps_the_time_of_the_last_success(tmp_path: Path) -> None:
    file = tmp_path / "eruca.prom"
    ran(MetricTargets(file, None))
    before = samples(file.read_text())
    with pytest.raises(OSError, match="away"):
        ran(MetricTargets(file, None), OSError("away"))

    after = samples(file.read_text())
    success = "eruca_job_last_success_timestamp_seconds"
    assert after[success] == before[success]
    assert after["eruca_job_last_run_outcome:retry"] == 1
    assert "eruca_job_last_run_rows" not in after


class Groups(dict[str, dict[str, float]]):
    """The groups of a Pushgateway, as its README says: PUT replaces all, POST what it names."""

    def take(self, command: str, path: str, text: str) -> None:
        pushed = samples(text)
        families = {name.partition(":")[0] for name in pushed}
        kept = {
            name: value
            for name, value in self.get(path, {}).items()
            if command == "POST" and name.partition(":")[0] not in families
        }
        self[path] = kept | pushed

    @property
    def samples(self) -> dict[str, float]:
        """The samples of all groups."""
        return {name: value for group in self.values() for name, value in group.items()}


def test_a_failure_leaves_at_a_gateway_only_the_time_of_the_last_success() -> None:
    bodies: list[tuple[str, str, str]] = []
    groups = Groups()
    with gateway(bodies) as url:
        ran(MetricTargets(None, url))
        for body in bodies:
            groups.take(*body)
        before = groups.samples
        bodies.clear()
        with pytest.raises(OSError, match="away"):
            ran(MetricTargets(None, url), OSError("away"))
        for body in bodies:
            groups.take(*body)

    success = "eruca_job_last_success_timestamp_seconds"
    assert before["eruca_job_last_run_rows"] == 120
    assert groups.samples[success] == before[success]
    assert groups.samples["eruca_job_last_run_outcome:retry"] == 1
    assert "eruca_job_last_run_rows" not in groups.samples


@contextmanager
def gateway(bodies: list[tuple[str, str, str]], status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            bodies.append((self.command, self.path, body.decode()))
            self.send_response(status)
            self.end_headers()

        def do_PUT(self) -> None:
            self.do_POST()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_run_is_pushed_to_its_group() -> None:
    bodies: list[tuple[str, str, str]] = []
    with gateway(bodies) as url:
        ran(MetricTargets(None, url))

    [(_, path, body), (_, success_path, success)] = bodies
    assert path.startswith("/metrics/job/eruca/")
    assert "/command/export" in path
    assert samples(body)["eruca_job_last_run_batches"] == 2
    assert "/kind/success" in success_path
    assert samples(success).keys() == {"eruca_job_last_success_timestamp_seconds"}


def test_metrics_that_cannot_be_published_fail_no_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with gateway([], status=500) as url:
        ran(MetricTargets(tmp_path / "no" / "such" / "directory.prom", url))
    ran(MetricTargets(None, "http://127.0.0.1:1"))

    said = capsys.readouterr().err
    assert "metrics are not written to" in said
    assert said.count("metrics are not pushed to") == 2


def test_a_gateway_that_speaks_no_http_fails_no_job(capsys: pytest.CaptureFixture[str]) -> None:
    class Mail(BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall(b"220 mail\r\n")
            self.request.shutdown(SHUT_WR)
            while self.request.recv(65_536):  # else the connection would be reset
                pass

    with TCPServer(("127.0.0.1", 0), Mail) as server:
        thread = threading.Thread(target=server.handle_request, daemon=True)
        thread.start()
        ran(MetricTargets(None, f"http://127.0.0.1:{server.server_address[1]}"))
        thread.join()

    assert "metrics are not pushed to" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:90x1",
        "http://127.0.0.1:99999",
        "http://user:secret@127.0.0.1:9091",
        "http://127.0.0.1:9091?key=secret",
        "ftp://127.0.0.1:9091",
        "127.0.0.1:9091",
        "http://",
        "http://gate way:9091",
        "http://gateway:9091\n",
    ],
)
def test_a_gateway_s_url_is_checked_before_the_job_and_not_shown(url: str) -> None:
    with pytest.raises(OptionError, match="--push-gateway: expected") as caught:
        MetricTargets(None, url).check()
    assert "secret@" not in str(caught.value)
    assert "key=" not in str(caught.value)


def test_a_run_that_goes_on_publishes_its_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "eruca.prom"
    success = "eruca_job_last_success_timestamp_seconds"
    found: list[dict[str, float]] = []

    def look_again_and_again() -> None:
        places = MetricTargets(file, None)
        with measured("export", LABELS["target"], places, lambda _: "retry") as run:
            for rows in (120, 130, 140):
                if rows == 140:
                    monkeypatch.setattr("eruca.exporting.job_metrics._LOOK_SECONDS", 0.0)
                run.looked({**DONE, "rows": rows})
                found.append(samples(file.read_text()))
            raise OSError("away")

    with pytest.raises(OSError, match="away"):
        look_again_and_again()

    first, soon, later = found
    assert soon == first  # so soon it is not written again
    assert (first["eruca_job_last_run_rows"], later["eruca_job_last_run_rows"]) == (120, 140)
    assert later[success] > first[success]
    end = samples(file.read_text())
    assert end[success] == later[success]
    assert end["eruca_job_last_run_outcome:retry"] == 1
    assert "eruca_job_last_run_rows" not in end


def test_a_file_that_node_exporter_would_not_read_is_refused(tmp_path: Path) -> None:
    MetricTargets(tmp_path / "eruca.prom", None).check()
    for name in ("eruca", "eruca.txt", "eruca.prom.1", ".prom.txt"):
        with pytest.raises(OptionError, match=r"reads only files NAME\.prom"):
            MetricTargets(tmp_path / name, None).check()


def test_a_missing_package_is_refused_before_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eruca.exporting.job_metrics.find_spec", lambda _: None)
    MetricTargets(None, None).check()
    with pytest.raises(OptionError, match="extra prometheus of"):
        MetricTargets(None, "http://127.0.0.1:9091").check()
