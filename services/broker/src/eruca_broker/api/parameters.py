"""Parameters that several resources have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

IncludeSystem = Annotated[
    bool,
    Query(
        description="the topic may be one that the system keeps for itself, to be read and no "
        "more: `RMQ_SYS_TRANS_HALF_TOPIC` …"
    ),
]
