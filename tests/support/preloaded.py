"""What services are forked from: their code, imported, and left alone by garbage collections.

A service collects garbage when it starts. In one that was forked, this would go through all that
was imported before, and copy it page by page: as much computing as all the rest of its start.
"""

from __future__ import annotations

import gc
import importlib
from typing import Final

from support.initdb import copy_as_parent

SERVICES: Final = ("eruca_namesrv", "eruca_broker", "eruca_txn_checker", "eruca_query")

for service in SERVICES:
    importlib.import_module(f"{service}.app")
copy_as_parent()
gc.collect()
gc.freeze()
