"""Field types that several JSON models share, and the bases of all models.

Requests forbid unknown fields, so a misspelt field is an error. They convert no types: "4" and true
are not numbers. Offsets are JSON integers of up to 64 bits.

Reporting a fault costs the service far more than the bytes that caused it. Objects with too many
members are therefore refused as a whole, and a long list at its first fault.
"""

from __future__ import annotations

from datetime import UTC, datetime
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
from eruca.contract.urls import URL_PATTERN, checked_url

OFFSET_MAX = 2**63 - 1
MEMBER_COUNT_MAX = 64  # members of an object in a request; no model has that many fields


def _checked_topic(name: str) -> str:
    fault = names.broker_topic_fault(name)
    if fault is not None:
        raise ValueError(f"not a valid topic name: {fault.value.replace('_', ' ')}")
    return name


def with_few_members(value: object) -> object:
    """Return *value*; raise ValueError if it is an object with too many members."""
    if isinstance(value, dict) and len(value) > MEMBER_COUNT_MAX:
        raise ValueError(f"more than {MEMBER_COUNT_MAX} members")
    return value


def _not_a_number(value: object) -> object:
    # Pydantic would read a bare number as seconds, or milliseconds, since 1970.
    if isinstance(value, int | float) or (isinstance(value, str) and value[10:11].upper() != "T"):
        raise ValueError("expected a time as in 2026-11-21T08:00:00Z")
    return value


def within_utc(moment: datetime) -> datetime:
    """Return *moment* if UTC has it: the years 1 to 9999 end earlier or later in other zones.

    Raises:
        ValueError: It is out of range, so no answer could say it.
    """
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("out of range: it has no time in UTC") from None
    return moment


TopicName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=DERIVED_TOPIC_SIZE_MAX,
        pattern=names.NAME_PATTERN,
        description="Up to 127 letters, digits, %, |, _ and - (255 in a derived topic's name).",
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
        description="Up to 120 letters, digits, %, |, _ and -.",
        examples=["billing"],
    ),
]
BrokerName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=127,
        # A name of dots alone would be a relative segment of a URL's path.
        pattern=r"^[a-zA-Z0-9_.@-]*[a-zA-Z0-9_@-][a-zA-Z0-9_.@-]*$",
        examples=["broker-a"],
    ),
]
ClusterName = Annotated[
    str, Field(min_length=1, max_length=127, pattern=r"^[a-zA-Z0-9_.-]+$", examples=["eruca"])
]
MASTER_ID: Final = 0
"""The master's id among the brokers of one name."""
STANDALONE_EPOCH: Final = 0
"""The epoch of a broker that belongs to no group of replicas."""
BrokerEpoch = Annotated[
    int,
    Field(
        ge=STANDALONE_EPOCH,
        le=OFFSET_MAX,
        description="Term of the master that the broker is or follows; 0: a broker without "
        "replicas.",
    ),
]
BrokerId = Annotated[int, Field(ge=0, le=2**31 - 1, description="0 is the master.")]
QueueId = Annotated[int, Field(ge=0, le=QUEUE_ID_MAX)]
Offset = Annotated[int, Field(ge=0, le=OFFSET_MAX)]
QueueCount = Annotated[int, Field(ge=1, le=QUEUE_COUNT_MAX)]
BrokerRole = Literal["master", "standby", "learner"]
"""A standby follows the master and is in the in-sync set; a learner follows it and is not."""
Permission = Literal["rw", "r", "w", "none"]
NetworkUrls = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")],
        Annotated[
            str,
            # Field's own pattern would refuse first, and its error would only show the pattern.
            Field(max_length=2048, json_schema_extra={"pattern": URL_PATTERN}),
            AfterValidator(checked_url),
        ],
    ],
    Field(
        min_length=1,
        max_length=16,
        description="The broker's URL by network; `default` is for all other networks",
        examples=[{"default": "http://127.0.0.1:10911"}],
    ),
    BeforeValidator(with_few_members),
]
"""A broker's URLs by the networks on which clients reach them."""
WaitSeconds = Annotated[float, Field(ge=0, le=WAIT_SECONDS_MAX, allow_inf_nan=False)]


# Strict mode would refuse a text that FastAPI has already taken out of the JSON.
Moment = Annotated[
    AwareDatetime,
    Strict(strict=False),
    BeforeValidator(_not_a_number),
    AfterValidator(within_utc),
]
"""A time in a request: RFC 3339 with an offset; numbers and dates are refused."""


class Request(BaseModel):
    """Base of the models that clients send: it refuses unknown fields, and "4" for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few_members(cls, value: object) -> object:
        return with_few_members(value)


class Answer(BaseModel):
    """Base of the models that services send: a client ignores unknown fields."""

    model_config = ConfigDict(frozen=True)
