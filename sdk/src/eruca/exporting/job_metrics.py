"""The last run of a job as Prometheus metrics: in a file for node_exporter, or pushed to a gateway.

A job's process has ended when Prometheus asks for metrics, so its metrics are gauges about its last
run. A failure to publish them is reported on stderr and never fails the job.

Requires prometheus_client, which only the process of a job needs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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


@dataclass(frozen=True, slots=True)
class MetricTargets:
    """The places of metrics; None: not there."""

    file: Path | None
    gateway: str | None

    def check(self) -> None:
        """Raise OptionError if metrics are wanted and cannot be made."""
        if (self.file or self.gateway) and find_spec("prometheus_client") is None:
            raise OptionError(
                "--metrics-file and --push-gateway need prometheus_client, which is not installed:"
                " install the extra prometheus of the package eruca"
            )


@dataclass(slots=True)
class JobRun:
    """A run; the command sets what it did.

    Attributes:
        counts: Numbers by name, such as ``rows``.
        outcome: One of :data:`OUTCOMES`.
    """

    outcome: str = "fault"
    counts: dict[str, int] = field(default_factory=dict)

    def ended(self, document: Mapping[str, Any]) -> None:
        """Take outcome and numbers from the document that ``--output json`` prints."""
        self.outcome = str(document["outcome"])
        self.counts = {
            name: value
            for name, value in document.items()
            if isinstance(value, int) and not isinstance(value, bool)
        }


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
    run = JobRun()
    begun, has_ended = time.monotonic(), False
    try:
        yield run
        has_ended = True
    except BaseException as error:
        if not has_ended and not run.counts:
            run.outcome = outcome_of(error)
        raise
    finally:
        labels = {"command": command, "target": target}
        _publish(places, labels, run, time.monotonic() - begun)


def _publish(places: MetricTargets, labels: dict[str, str], run: JobRun, seconds: float) -> None:
    if places.file is not None:
        try:
            _write(places.file, labels, run, seconds)
        except (OSError, ValueError) as error:
            print(f"metrics are not written to {places.file}: {error}", file=sys.stderr)
    if places.gateway is not None:
        from prometheus_client import pushadd_to_gateway

        registry = _registry(labels, run, seconds, last_success=None)
        try:
            # It adds: after a failure the gateway keeps the time of the last success.
            pushadd_to_gateway(
                places.gateway, _JOB, registry, grouping_key=labels, timeout=_GATEWAY_SECONDS
            )
        except (OSError, ValueError) as error:
            print(f"metrics are not pushed to {places.gateway}: {error}", file=sys.stderr)


def _write(file: Path, labels: dict[str, str], run: JobRun, seconds: float) -> None:
    """Replace the file in one step; keep the time of the last success."""
    from prometheus_client import write_to_textfile

    last_success = _last_success(file, labels)
    write_to_textfile(str(file), _registry(labels, run, seconds, last_success=last_success))


def _registry(
    labels: dict[str, str], run: JobRun, seconds: float, *, last_success: float | None
) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, Gauge

    registry = CollectorRegistry()
    now = time.time()

    def put(name: str, text: str, value: float) -> None:
        Gauge(name, text, _LABELS, registry=registry).labels(**labels).set(value)

    put(f"{_PREFIX}timestamp_seconds", "End of the last run, Unix time", now)
    put(f"{_PREFIX}duration_seconds", "Duration of the last run", seconds)
    success = now if run.outcome in _SUCCESSES else last_success
    if success is not None:
        put(_SUCCESS, "End of the last run without an error, Unix time", success)
    outcome = Gauge(
        f"{_PREFIX}outcome", "1 for the outcome of the last run", (*_LABELS, "outcome"),
        registry=registry,
    )  # fmt: skip
    for name in OUTCOMES:
        outcome.labels(**labels, outcome=name).set(name == run.outcome)
    for name, count in run.counts.items():
        put(f"{_PREFIX}{name}", f"Number in the last run: {name.replace('_', ' ')}", count)
    return registry


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
