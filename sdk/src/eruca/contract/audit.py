"""Audit records: who did what to a cluster, and who was refused.

Services write them into the topic :data:`eruca.contract.names.AUDIT_TOPIC`, one message for each.
The message's body is the record as JSON, its tag the event. Its keys are the principal and the
request's id. Records hold no secret and no body of a request.

==================  ================================================================================
event               meaning
==================  ================================================================================
act                 somebody used a right to administer; ``status`` says how it was answered
refusal             a request was refused for lack of valid credentials, or of a right
refusals_left_out   ``count`` more refusals of this caller, within a minute, were not written
credential_used     a credential was used for the first time in an hour
rules_changed       other rules came into force; ``detail`` says what is new and what is gone
rules_stale         newer rules are not in force, or may not be; ``detail`` says why
records_lost        ``count`` audit records could be written nowhere
==================  ================================================================================
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, Field, PlainSerializer, StringConstraints

from eruca.contract.fields import OFFSET_MAX, Moment, Request
from eruca.contract.instant_texts import instant_text

AUDIT_TEXT_SIZE_MAX: Final = 512  # characters of a text in a record; longer ones are cut
AUDIT_REPORT_COUNT_MAX: Final = 256  # records in one report, each about 1 KB of JSON
AUDIT_QUEUE_ID: Final = 0  # of the only queue; so a broker's records keep their order

AuditEvent: TypeAlias = Literal[
    "act",
    "refusal",
    "refusals_left_out",
    "credential_used",
    "rules_changed",
    "rules_stale",
    "records_lost",
]
AUDIT_EVENTS: Final[tuple[AuditEvent, ...]] = get_args(AuditEvent)
AuditDecision: TypeAlias = Literal["allowed", "refused"]

# Texts come from requests and rules; control characters would change what a terminal shows.
_Text = Annotated[
    str, StringConstraints(max_length=AUDIT_TEXT_SIZE_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")
]


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


class AuditRecord(Request):
    """One thing that somebody did, or was refused."""

    at: Annotated[
        Moment,
        AfterValidator(_in_utc),
        PlainSerializer(instant_text, return_type=str, when_used="json"),
    ]
    event: AuditEvent
    service: Annotated[_Text, Field(description="service that decided, and its name or address")]
    principal: Annotated[_Text | None, Field(description="null: unknown")] = None
    credential: Annotated[_Text | None, Field(description="`key:ID`, for instance")] = None
    address: Annotated[_Text | None, Field(description="the client's IP address")] = None
    operation: Annotated[_Text | None, Field(description="its id in the service's document")] = None
    resource: Annotated[_Text | None, Field(description="several are separated by blanks")] = None
    decision: AuditDecision | None = None
    status: Annotated[int | None, Field(ge=100, le=599, description="of the answer")] = None
    reason: Annotated[_Text | None, Field(description="why it was refused: a problem's code")] = (
        None
    )
    rule: Annotated[
        _Text | None, Field(description="the rule that decided; null: none applied")
    ] = None
    request_id: _Text | None = None
    detail: _Text | None = None
    count: Annotated[
        int, Field(ge=1, le=OFFSET_MAX, description="things that the record stands for")
    ] = 1
    reported_by: Annotated[
        _Text | None,
        Field(description="principal of the service that reported it; null: the broker's own"),
    ] = None


class AuditReport(Request):
    """Audit records of another service, for a broker to write."""

    records: Annotated[list[AuditRecord], Field(min_length=1, max_length=AUDIT_REPORT_COUNT_MAX)]
