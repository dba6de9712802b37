"""A compose file as an engine resolves it: variables interpolated, references looked up.

The schema in ``compose_spec.json`` is the Compose Specification's own (Apache License 2.0).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from jsonschema import Draft7Validator

_VARIABLE: Final = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}")
_SCHEMA: Final = Path(__file__).with_name("compose_spec.json")


def resolved(path: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """Return a compose file's content; fail where a variable has neither value nor default."""
    parsed = yaml.safe_load(_VARIABLE.sub(lambda found: _value(found, variables), path.read_text()))
    return {name: part for name, part in parsed.items() if not name.startswith("x-")}


def schema_faults(content: Mapping[str, Any]) -> list[str]:
    """Return what the Compose Specification says against a file."""
    validator = Draft7Validator(json.loads(_SCHEMA.read_text()))
    return [f"{fault.json_path}: {fault.message}" for fault in validator.iter_errors(content)]


def reference_faults(content: Mapping[str, Any], folder: Path, healthy: set[str]) -> Iterator[str]:
    """Yield names that lead nowhere, ports that are used twice, and waits that never end.

    Args:
        content: The file.
        folder: Its place, from which its paths lead.
        healthy: Services whose image has a health check.
    """
    services: dict[str, Any] = content["services"]
    mounted = {source for _, source, _ in _mounts(services)}
    named = {source for source in mounted if not source.startswith(".")}
    yield from (f"volume {name} is not declared" for name in named - {*content["volumes"]})
    yield from (f"volume {name} is not used" for name in {*content["volumes"]} - named)
    for source in mounted - named:
        if not (folder / source).exists():
            yield f"{source} does not exist"
    ports = [port.rpartition(":")[0] for s in services.values() for port in s.get("ports", ())]
    yield from (f"{port} is published twice" for port in {*ports} if ports.count(port) > 1)
    for name, service in services.items():
        for other, wait in service.get("depends_on", {}).items():
            if other not in services:
                yield f"{name} depends on {other}, which does not exist"
            elif wait["condition"] == "service_healthy" and not (
                other in healthy or "healthcheck" in services[other]
            ):
                yield f"{name} waits for the health of {other}, which has no check"
            elif wait["condition"] == "service_completed_successfully" and (
                services[other].get("restart") not in ("no", "on-failure")
            ):
                yield f"{name} waits for the end of {other}, which is restarted"


def mounts_of(service: Mapping[str, Any]) -> dict[str, str]:
    """Return what a service mounts: each source by its target."""
    return {target: source for _, source, target in _mounts({"": service})}


def _mounts(services: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, service in services.items():
        for mount in service.get("volumes", ()):
            source, target = mount.removesuffix(":ro").split(":")
            yield name, source, target


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name, default = found.groups()
    value = variables.get(name, default)
    assert value is not None, f"{name} has no value and no default"
    return value
