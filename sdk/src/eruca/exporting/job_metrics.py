"""The last run of a job as Prometheus metrics: in a file for node_exporter, or pushed to a gateway.

A job's process has ended when Prometheus asks for metrics, so its metrics are gauges about its last
run. A failure to publish them is reported on stderr and never fails the job. A job that runs for
ever publishes them as it goes on, after a look for new messages that ended without an error.

Requires prometheus_client, which only the process of a job needs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from eruca.exporting.errors import OptionError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

OUTCOMES: Final = ("done", "nothing_new", "interrupted", "retry", "fault")
_SUCCESSES: Final = ("done", "nothing_new")
_LABELS: Final = ("command", "target")
_PREFIX: Final = "eruca_job_last_run_"
_SUCCESS: Final = "eruca_job_last_success_timestamp_seconds"
_JOB: Final = "eruca"  # of a gateway's group
_GATEWAY_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 15.0  # at least, between two publications of one run; scrapes are as rare


@dataclass(frozen=True, slots=True)
class MetricTargets:
    """The places of metrics; None: not there."""

    file: Path | None
    gateway: str | None

    def check(self) -> None:
        """Raise OptionError if metrics are wanted and cannot be made, or the URL is invalid."""
        if self.gateway is not None and not _is_gateway(self.gateway):
            raise OptionError(
                "--push-gateway: expected the http or https URL of a Pushgateway without"
                " credentials, such as http://127.0.0.1:9091; found another text (not shown,"
                " because it may contain a secret)"
            )
        if self.file is not None and self.file.suffix != ".prom":
            raise OptionError(
                f"--metrics-file: node_exporter reads only files NAME.prom, found {self.file.name}"
            )
        if (self.file or self.gateway) and find_spec("prometheus_client") is None:
            raise OptionError(
                "--metrics-file and --push-gateway need prometheus_client, which is not installed:"
                " install the extra prometheus of the package eruca"
            )


def _is_gateway(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and not set(" @?#").intersection(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and has_port and is_plain


@dataclass(slots=True)
class JobRun:
    """A run; the command sets what it did.

    Attributes:
        counts: Numbers by name, such as ``rows``.
        outcome: One of :data:`OUTCOMES`.
    """

    _places: MetricTargets
    _labels: dict[str, str]
    outcome: str = "fault"
    counts: dict[str, int] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _published: float | None = None  # at this time; None: not yet

    def ended(self, document: Mapping[str, Any]) -> None:
        """Take outcome and numbers from the document that ``--output json`` prints."""
        self.outcome = str(document["outcome"])
        self.counts = {
            name: value
            for name, value in document.items()
            if isinstance(value, int) and not isinstance(value, bool)
        }

    def looked(self, document: Mapping[str, Any]) -> None:
        """Publish what a run that goes on has done up to now, unless it has just done so."""
        now = time.monotonic()
        if self._published is None or now - self._published >= _LOOK_SECONDS:
            self._published = now
            self.ended(document)
            self.publish()
            self.outcome, self.counts = "fault", {}  # until it ends in order

    def publish(self) -> None:
        """Publish what is known."""
        _publish(self._places, self._labels, self, time.monotonic() - self._began)


@contextmanager
def measured(
    command: str,
    target: str,
    places: MetricTargets,
    outcome_of: Callable[[BaseException], str] = lambda _: "fault",
) -> Iterator[JobRun]:
    """Publish the run in the block, however it ends.

    Args:
        command: The command, a label.
        target: Where the job writes, a label.
        places: Where to publish.
        outcome_of: Returns the outcome for an error before the run's document is known.
    """
    run = JobRun(places, {"command": command, "target": target})
    has_ended = False
    try:
        yield run
        has_ended = True
    except BaseException as error:
        if not has_ended and not run.counts:
            run.outcome = outcome_of(error)
        raise
    finally:
        run.publish()


def _publish(places: MetricTargets, labels: dict[str, str], run: JobRun, seconds: float) -> None:
    if places.file is not None:
        try:
            _write(places.file, labels, run, seconds)
        except (OSError, ValueError) as error:
            print(f"metrics are not written to {places.file}: {error}", file=sys.stderr)
    if places.gateway is not None:
        try:
            _push(places.gateway, labels, run, seconds)
        except (OSError, ValueError, HTTPException) as error:
            print(f"metrics are not pushed to {places.gateway}: {error}", file=sys.stderr)


def _push(gateway: str, labels: dict[str, str], run: JobRun, seconds: float) -> None:
    """Replace the group of the last run; after a success also that of the last success.

    In one group, either the numbers of an earlier run would remain, or the last success be deleted.
    """
    from prometheus_client import push_to_gateway

    def replace(registry: CollectorRegistry, **more: str) -> None:
        group = labels | more
        push_to_gateway(gateway, _JOB, registry, grouping_key=group, timeout=_GATEWAY_SECONDS)

    now = time.time()
    replace(_of_run(labels, run, seconds, now))
    if run.outcome in _SUCCESSES:
        replace(_with_success(_registry(), labels, now), kind="success")


def _write(file: Path, labels: dict[str, str], run: JobRun, seconds: float) -> None:
    """Replace the file in one step; keep the time of the last success."""
    from prometheus_client import write_to_textfile

    now = time.time()
    success = now if run.outcome in _SUCCESSES else _last_success(file, labels)
    registry = _of_run(labels, run, seconds, now)
    write_to_textfile(str(file), _with_success(registry, labels, success))


def _registry() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry

    return CollectorRegistry()


def _of_run(
    labels: dict[str, str], run: JobRun, seconds: float, ended_at: float
) -> CollectorRegistry:
    """Return the metrics of a run."""
    from prometheus_client import Gauge

    registry = _registry()
    _put(
        registry, labels, f"{_PREFIX}timestamp_seconds", "End of the last run, Unix time", ended_at
    )
    _put(registry, labels, f"{_PREFIX}duration_seconds", "Duration of the last run", seconds)
    outcome = Gauge(
        f"{_PREFIX}outcome", "1 for the outcome of the last run", (*_LABELS, "outcome"),
        registry=registry,
    )  # fmt: skip
    for name in OUTCOMES:
        outcome.labels(**labels, outcome=name).set(name == run.outcome)
    for name, count in run.counts.items():
        text = f"Number in the last run: {name.replace('_', ' ')}"
        _put(registry, labels, f"{_PREFIX}{name}", text, count)
    return registry


def _with_success(
    registry: CollectorRegistry, labels: dict[str, str], ended_at: float | None
) -> CollectorRegistry:
    """Return *registry* with the time of the last success; None: there was none."""
    if ended_at is not None:
        text = "End of the last run without an error, Unix time"
        _put(registry, labels, _SUCCESS, text, ended_at)
    return registry


def _put(
    registry: CollectorRegistry, labels: dict[str, str], name: str, text: str, value: float
) -> None:
    from prometheus_client import Gauge

    Gauge(name, text, _LABELS, registry=registry).labels(**labels).set(value)


def _last_success(file: Path, labels: dict[str, str]) -> float | None:
    """Return the time of the last success in a file of an earlier run."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == _SUCCESS and sample.labels == labels:
                return float(sample.value)
    return None
