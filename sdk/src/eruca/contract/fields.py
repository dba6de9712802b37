"""Types of fields that several JSON models share, and the bases of all models.

Requests forbid unknown fields, so that a misspelt one is an error. They take each value in its own
type only: "4" and true are no numbers. Offsets are JSON integers of up to 64 bits.

A fault in a request costs the service far more than the bytes that made it. Whatever can hold many
faults is therefore refused at the first one: objects with too many members, and long lists.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    model_validator,
)

from eruca.contract import names
from eruca.contract.limits import (
    DERIVED_TOPIC_SIZE_MAX,
    GROUP_SIZE_MAX,
    QUEUE_COUNT_MAX,
    QUEUE_ID_MAX,
    WAIT_SECONDS_MAX,
)

OFFSET_MAX = 2**63 - 1
MEMBER_COUNT_MAX = 64  # members of an object in a request; none has that many fields


def _checked_topic(name: str) -> str:
    fault = names.broker_topic_fault(name)
    if fault is not None:
        raise ValueError(f"not a topic's name: {fault.value.replace('_', ' ')}")
    return name


def with_few_members(value: object) -> object:
    """Return *value*; raise ValueError if it is an object of too many members."""
    if isinstance(value, dict) and len(value) > MEMBER_COUNT_MAX:
        raise ValueError(f"more than {MEMBER_COUNT_MAX} members")
    return value


def _not_a_number(value: object) -> object:
    # Pydantic would take a bare number for seconds, or milliseconds, since 1970.
    if isinstance(value, int | float) or (isinstance(value, str) and value[10:11].upper() != "T"):
        raise ValueError("a time is written as in 2026-11-21T08:00:00Z")
    return value


TopicName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=DERIVED_TOPIC_SIZE_MAX,
        pattern=names.NAME_PATTERN,
        description="Letters, digits, %, |, _ and -; up to 127 of them (255 when derived).",
        examples=["flights"],
    ),
    AfterValidator(_checked_topic),
]
GroupName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=GROUP_SIZE_MAX,
        pattern=names.NAME_PATTERN,
        description="Letters, digits, %, |, _ and -; up to 120 of them.",
        examples=["billing"],
    ),
]
BrokerName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=127,
        # Not dots alone, which are another place in a URL's path.
        pattern=r"^[a-zA-Z0-9_.@-]*[a-zA-Z0-9_@-][a-zA-Z0-9_.@-]*$",
        examples=["broker-a"],
    ),
]
ClusterName = Annotated[
    str, Field(min_length=1, max_length=127, pattern=r"^[a-zA-Z0-9_.-]+$", examples=["eruca"])
]
MASTER_ID: Final = 0
"""The broker id of the master among the brokers of a name."""
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1, description="0 is the master.")]
QueueId = Annotated[int, Field(ge=0, le=QUEUE_ID_MAX)]
Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
QueueCount = Annotated[int, Field(ge=1, le=QUEUE_COUNT_MAX)]
BrokerRole = Literal["master"]
Permission = Literal["rw", "r", "w", "none"]
WaitSeconds = Annotated[float, Field(ge=0, le=WAIT_SECONDS_MAX, allow_inf_nan=False)]


# Not strict, which would refuse a text that FastAPI has already taken out of the JSON.
Moment = Annotated[AwareDatetime, Strict(strict=False), BeforeValidator(_not_a_number)]
"""RFC 3339 with an offset, and nothing else that could be taken for a time."""


class Request(BaseModel):
    """Base of what clients send: unknown fields are refused, and so is "4" for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_members(cls, value: object) -> object:
        return with_few_members(value)


class Answer(BaseModel):
    """Base of what services send: a client ignores fields it does not know."""

    model_config = ConfigDict(frozen=True)
