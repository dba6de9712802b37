"""Decide, from the settings, whether a service exports spans.

``ERUCA_TRACES=otlp`` makes a span of each request whose caller's trace is sampled, and exports it
by OpenTelemetry (:mod:`.otel`, with the extra ``otel``). The environment variables of OpenTelemetry
say where to and how much. While the setting is empty, nothing of OpenTelemetry is imported, and no
request passes any code of it: the classes of connections and of the store are chosen once, at the
start.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from eruca_chassis.spans.tracing import Traces
from eruca_chassis.start import StartError

if TYPE_CHECKING:
    from eruca_chassis.spans.otel import OtelTracing

SAMPLERS: Final = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
_NEEDED: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")
_PROTOCOL: Final = "http/protobuf"
_DEFAULT_ENDPOINT: Final = "http://localhost:4318"
_PROTOCOL_VARIABLES: Final = (
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
)


def tracing_of(traces: Traces, distribution: str) -> OtelTracing | None:
    """Return what traces a service of *distribution*; None if the setting *traces* is empty.

    Raises:
        StartError: OpenTelemetry is not installed, or its environment variables are invalid.
    """
    if not traces:
        return None
    fault = why_not_tracing(distribution)
    if fault is not None:
        raise StartError(fault)
    from eruca_chassis.spans.otel import OtelTracing  # late: nothing else needs OpenTelemetry

    return OtelTracing(distribution)


def why_not_tracing(distribution: str) -> str | None:
    """Return why spans cannot be exported, and the fix; None if they can."""
    if not all(map(_is_installed, _NEEDED)):
        return (
            "ERUCA_TRACES=otlp: OpenTelemetry is not installed; install the extra "
            f"{distribution}[otel], or unset ERUCA_TRACES"
        )
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "")
    if sampler and sampler not in SAMPLERS:
        return f"OTEL_TRACES_SAMPLER={sampler}: unknown sampler; valid ones: {', '.join(SAMPLERS)}"
    for variable in _PROTOCOL_VARIABLES:
        protocol = os.environ.get(variable, "")
        if protocol and protocol != _PROTOCOL:
            return (
                f"{variable}={protocol}: expected {_PROTOCOL}, the only protocol that services "
                "export spans by; unset it"
            )
    return None


def endpoint() -> str:
    """Return where OpenTelemetry's variables let spans be exported to, without credentials."""
    of_traces = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or _DEFAULT_ENDPOINT
    said = of_traces or f"{base.rstrip('/')}/v1/traces"
    return re.sub(r"^([^/]*//)[^/]*@", r"\1", said)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
