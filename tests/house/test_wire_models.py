"""No wire model stands outside ``eruca.contract``: each body has one definition, in one place.

The documents' components are classes of the contract. A model class elsewhere has a reason: it is
stored, or it never leaves its process.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import eruca.contract
from support.openapi_documents import SERVICES, made_document

ROOT: Final = Path(__file__).parents[2]
CONTRACT: Final = "sdk/src/eruca/contract/"
GENERATED: Final = "sdk/src/eruca/sync/"  # from eruca.aio, which is searched
PRODUCT: Final = ("sdk", "services", "spark", "deploy", "testing")
BASES: Final = frozenset({"BaseModel", "RootModel", "Struct", "TypedDict"})
MAKERS: Final = {"create_model", "defstruct"}

COMPOSED: Final = {
    "Problem": "errors are exceptions of the contract; their document is made of these",
    "SendMessagesRequest": "one of several models of the contract",
    "SendMessagesAnswer": "one of several models of the contract",
}
"""Components that are no classes."""

REASONS: Final = {
    "sdk/src/eruca/aio/http/transport.py": "an answer of any server, as the transport hands it on",
    "sdk/src/eruca/aio/push/offset_file.py": "a file: local offsets",
    "sdk/src/eruca/cli/backups/": "objects of a backup repository: manifests, and what they name",
    "sdk/src/eruca/cli/commands/query.py": "arguments of a function",
    "sdk/src/eruca/cli/exporting/parts.py": "a file: the state of an export",
    "sdk/src/eruca/core/consuming/delivery.py": "what a program receives, made of an answer",
    "sdk/src/eruca/core/messages/": "messages of programs, and records, which are no JSON",
    "sdk/src/eruca/core/producing/": "what a program gets back, made of an answer",
    "services/broker/src/eruca_broker/core/consuming/lease_handles.py": "an opaque text of the "
    "broker's own, for itself",
    "services/broker/src/eruca_broker/core/records/new_messages.py": "a body that is the request's "
    "own; there is no JSON of it",
    "services/broker/src/eruca_broker/core/state/": "control records and snapshots, in the log",
    "services/broker/src/eruca_broker/core/tier/": "objects of the tier",
    "services/broker/src/eruca_broker/store/": "files of the store",
    "services/query/src/eruca_query/core/control_records.py": "control records, as they are read",
    "services/query/src/eruca_query/exports/workers/steps.py": "between processes of one instance",
    "spark/src/pyspark_eruca_segments/tiers.py": "objects of the tier, as they are read",
    "spark/src/pyspark_eruca_segments/topics.py": "control records, as they are read",
    "testing/src/eruca_testing/cluster.py": "arguments of a function",
}
"""Files, or folders, that have models which are no wire models."""


@pytest.mark.parametrize("service", SERVICES)
def test_every_component_of_a_document_is_a_class_of_the_contract(service: str) -> None:
    components = made_document(service)["components"]["schemas"].keys()

    assert components - contract_classes() - COMPOSED.keys() == set()


def test_a_model_outside_the_contract_has_a_reason() -> None:
    found = {path: models_in(source) for path, source in product_sources()}
    reasoned = {path: reason_for(path) for path, names in found.items() if names}

    without = {path: found[path] for path, reason in reasoned.items() if reason is None}
    assert without == {}, "move it to eruca.contract, or give a reason"
    assert set(reasoned.values()) == REASONS.keys(), "a reason that nothing needs"


@pytest.mark.parametrize(
    "source",
    [
        "class Sent(BaseModel): ...",
        "class Sent(pydantic.BaseModel, frozen=True): ...",
        "class Sent(msgspec.Struct, frozen=True): ...",
        "class Page(RootModel[list[int]]): ...",
        "class Sent(Answer): ...",
        "class Sent(messages.SendReceipt): ...",
        "def f():\n    class Sent(TypedDict): ...",
        "Sent = create_model('Sent')",
        "Sent = msgspec.defstruct('Sent', [])",
    ],
)
def test_a_model_is_found_however_it_is_written(source: str) -> None:
    assert models_in(source)


@cache
def contract_classes() -> frozenset[str]:
    names: set[str] = set()
    for module in pkgutil.walk_packages(eruca.contract.__path__, "eruca.contract."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and value.__module__.startswith("eruca.contract"):
                names.add(name)
    return frozenset(names)


@cache
def wire_bases() -> frozenset[str]:
    """Return what a wire model's base may be called: bases of all models, and the models."""
    return BASES | {name for name in contract_classes() if not name.endswith("Error")}


def product_sources() -> Iterator[tuple[str, str]]:
    for distribution in PRODUCT:
        for path in (ROOT / distribution).rglob("src/**/*.py"):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith((CONTRACT, GENERATED)):
                yield name, path.read_text()


def models_in(source: str) -> list[str]:
    """Return the model classes that a module defines, by name."""
    bases = wire_bases()
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and any(last_name(b) in bases for b in node.bases):
            found.append(node.name)
        elif isinstance(node, ast.Call) and last_name(node.func) in MAKERS:
            found.append(ast.unparse(node))
    return found


def last_name(node: ast.expr) -> str:
    """Return ``Struct`` of ``msgspec.Struct``, and ``RootModel`` of ``RootModel[int]``."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return ast.unparse(node).rpartition(".")[2]


def reason_for(path: str) -> str | None:
    return next((place for place in REASONS if path.startswith(place)), None)
