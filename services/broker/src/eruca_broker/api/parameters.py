"""Parameters that several resources have."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from eruca.contract.fields import OFFSET_MAX
from eruca.contract.limits import LIST_LIMIT_MAX

PageLimit = Annotated[int, Query(ge=1, le=LIST_LIMIT_MAX)]

PageCursor = Annotated[
    str | None,
    Query(max_length=512, description="the preceding page's `next_cursor`; opaque"),
]

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
