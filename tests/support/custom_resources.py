"""Manifests of kinds that operators add to Kubernetes, checked by the operators' own schemas.

The schemas in ``resource_schemas`` are those of cert-manager and of the Prometheus operator (both
Apache License 2.0), without descriptions, as the collection CRDs-catalog converts them (MIT).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft7Validator

_FOLDER: Final = Path(__file__).with_name("resource_schemas")
KINDS: Final = frozenset(path.stem for path in _FOLDER.glob("*.json"))


def faults_of(manifest: Mapping[str, Any]) -> list[str]:
    """Return what its schema says against a manifest; a field that it does not know is a fault."""
    schema = json.loads((_FOLDER / f"{manifest['kind']}.json").read_text())
    schema["properties"]["metadata"] = {"type": "object"}
    validator = Draft7Validator(_strict(schema))
    return [f"{fault.json_path}: {fault.message}" for fault in validator.iter_errors(manifest)]


def _strict(schema: Any) -> Any:  # noqa: ANN401 # a schema or a part of one
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {name: _strict(part) for name, part in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        strict.setdefault("additionalProperties", False)
    return strict
