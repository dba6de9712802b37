"""The services' OpenAPI documents, made by the code and kept under ``tests/contract/openapi/``.

Run as a program it writes the kept documents again: see ``tests/contract/test_openapi.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from eruca_broker.app import create_app as create_broker
from eruca_broker.settings import BrokerSettings
from eruca_chassis.app import ServiceApp
from eruca_console.app import create_app as create_console
from eruca_console.settings import ConsoleSettings
from eruca_controller.app import create_app as create_controller
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.app import create_app as create_namesrv
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.app import create_app as create_query
from eruca_query.settings import QuerySettings
from eruca_txn_checker.app import create_app as create_txn_checker
from eruca_txn_checker.settings import TxnCheckerSettings

DIRECTORY: Final = Path(__file__).parents[1] / "contract" / "openapi"
SERVICES: Final[dict[str, Callable[[], ServiceApp]]] = {
    "broker": lambda: create_broker(BrokerSettings()),
    "console": lambda: create_console(ConsoleSettings()),
    "controller": lambda: create_controller(ControllerSettings()),
    "namesrv": lambda: create_namesrv(NamesrvSettings()),
    "query": lambda: create_query(QuerySettings()),
    "txn-checker": lambda: create_txn_checker(TxnCheckerSettings()),
}


def made_document(service: str) -> dict[str, Any]:
    """Return the document as the service gives it now."""
    document: dict[str, Any] = json.loads(json.dumps(SERVICES[service]().openapi()))
    return document


def kept_document(service: str) -> dict[str, Any]:
    """Return the document as it was committed."""
    document: dict[str, Any] = json.loads(_file(service).read_text())
    return document


def write_all() -> None:
    """Keep every document as it is made now."""
    DIRECTORY.mkdir(exist_ok=True)
    for service in SERVICES:
        text = json.dumps(made_document(service), indent=1, ensure_ascii=False)
        _file(service).write_text(text + "\n")


def _file(service: str) -> Path:
    return DIRECTORY / f"{service}.json"


if __name__ == "__main__":
    write_all()
