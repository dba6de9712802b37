"""The modules that forked services start with: imported, and exempt from garbage collections.

FastAPI's data for their routes is included. Otherwise each service would compute it for its first
request.

A service collects garbage when it starts. In a forked service, this would visit all imported
objects and copy them page by page. That takes as much computing as the rest of its start.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Mapping
from typing import Final

from pydantic_settings import BaseSettings

from eruca_broker.settings import BrokerSettings
from eruca_console.settings import ConsoleSettings
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.settings import QuerySettings
from eruca_txn_checker.settings import TxnCheckerSettings
from support.initdb import copy_as_parent

SERVICES: Final[Mapping[str, type[BaseSettings]]] = {
    "eruca_namesrv": NamesrvSettings,
    "eruca_broker": BrokerSettings,
    "eruca_txn_checker": TxnCheckerSettings,
    "eruca_query": QuerySettings,
    "eruca_controller": ControllerSettings,
    "eruca_console": ConsoleSettings,
}

for service, settings in SERVICES.items():
    as_they_come = settings.model_construct()  # whatever the environment says
    app = importlib.import_module(f"{service}.app").create_app(as_they_come)
    for route in app.routes:
        getattr(route, "dependant", None)  # which works the route out
copy_as_parent()
gc.collect()
gc.freeze()
