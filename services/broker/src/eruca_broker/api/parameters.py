"""Parameters that several resources have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from eruca.contract.fields import OFFSET_MAX

IncludeSystem = Annotated[
    bool,
    Query(
        description="the topic may be one that the system keeps for itself, to be read and no "
        "more: `RMQ_SYS_TRANS_HALF_TOPIC` …"
    ),
]

PastOffset = Annotated[
    int,
    Query(
        ge=0,
        le=OFFSET_MAX,
        description="the state is that after all records before it",
        examples=[8_419_007],
    ),
]
