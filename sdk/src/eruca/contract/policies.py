"""Policies at the controllers: one document, version by version, and what each change does.

A policy is a :class:`~eruca.contract.access.PolicyDocument`. Controllers keep every version of it,
with its author. A change is a PUT on the condition that the current version is still the one that
its author has read. Services follow the newest version, and keep it for when no controller answers.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from eruca.contract.access import PolicyDocument
from eruca.contract.broker_groups import Reason
from eruca.contract.fields import OFFSET_MAX, Answer, Request
from eruca.contract.times import Instant

DIFFERENCE_COUNT_MAX: Final = 1_000  # in one answer, or in one entry of the history
POLICY_NUMBER_MAX: Final = 10**12
"""The largest number that a change may ask for: below 64 bits, so that another can follow."""

PolicyNumber = Annotated[
    int,
    Field(
        ge=1,
        le=OFFSET_MAX,
        description="Number of the change; it only grows. A service refuses a lower one than the "
        "one it has.",
        examples=[12],
    ),
]
PolicyVersion = Annotated[
    str,
    Field(
        description="The number, and a hash of the change and of the version before it; the ETag, "
        "without its quotes.",
        examples=["12-5f0c9a6e1b7d4823"],
    ),
]


class PolicyPut(Request):
    """Replace the policy."""

    policy: PolicyDocument
    reason: Reason


class AccessDifference(Answer):
    """A right of one principal that a change gives, takes or changes."""

    principal: str
    right: str
    on: str = Field(
        description="A resource; with a `*` all names with this beginning that no longer pattern "
        "matches.",
        examples=["topic:orders*"],
    )
    before: str = Field(description="`refused`, `allowed`, or under which conditions")
    after: str


class PolicyDifferences(Answer):
    """All that a change of the policy does."""

    rights: list[AccessDifference] = Field(
        description=f"Rights that change, the first {DIFFERENCE_COUNT_MAX}"
    )
    right_count: int = Field(description="Number of rights that change")
    keys_added: list[str] = Field(description="New keys: `ID of PRINCIPAL`")
    keys_removed: list[str] = Field(description="Keys that become invalid: `ID of PRINCIPAL`")
    keys_changed: list[str] = Field(description="Keys whose expiry changes: `ID of PRINCIPAL`")
    issuers_added: list[str] = Field(
        default=[], description="Names of issuers whose tokens become valid"
    )
    issuers_removed: list[str] = Field(
        default=[], description="Names of issuers whose tokens become invalid"
    )
    issuers_changed: list[str] = Field(
        default=[], description="Names of issuers of which something changes"
    )
    quotas_added: list[str] = Field(default=[], description="Quotas that begin to hold")
    quotas_removed: list[str] = Field(default=[], description="Quotas that cease to hold")
    namespaces_added: list[str] = Field(
        default=[], description="Namespaces that their holders enter: `NAME for HOLDER`"
    )
    namespaces_removed: list[str] = Field(
        default=[], description="Namespaces that their holders leave: `NAME for HOLDER`"
    )


class PolicyPreview(Answer):
    """The effect of a change that has not been made."""

    version: str | None = Field(description="the current version; null: there is no policy yet")
    locks_out: bool = Field(
        description="true: the caller could not change the policy any more, so that the change "
        "would be refused"
    )
    differences: PolicyDifferences


class PolicyChange(Answer):
    """One change of the policy."""

    number: PolicyNumber
    version: PolicyVersion
    changed_at: Instant
    by: str = Field(description="the principal that made the change", examples=["user:ann"])
    reason: str
    rule_count: int
    key_count: int
    differences: PolicyDifferences


class PolicyView(Answer):
    """The current policy, and its version."""

    number: PolicyNumber
    version: PolicyVersion
    changed_at: Instant
    by: str
    reason: str
    policy: PolicyDocument


class PolicyHistory(Answer):
    """A page of the policy's changes, the newest first."""

    changes: list[PolicyChange]
    next_cursor: str | None = None


class AccessKey(Answer):
    """An API key that a service knows; never the key itself."""

    id: str
    principal: str
    expires_at: Instant | None
    last_used_at: Instant | None = Field(
        description="when the service last admitted a request by it; it may have been used up to a "
        "minute later; null: not since the service started"
    )


class AccessStatus(Answer):
    """The rules that are in force at a service, and since when it knows that they are the newest.

    Two services whose `version` is the same have the same rules.
    """

    source: Literal["none", "file", "controller"] = Field(
        description="where the rules come from; `none`: everybody may do everything"
    )
    version: str | None = Field(
        description="of the controllers' rules, or a hash of the file's; null: there are none",
        examples=["12-5f0c9a6e1b7d4823"],
    )
    age_seconds: float = Field(description="time since the rules were the newest ones for sure")
    fault: str | None = Field(
        description="why older rules may be in force; null: the newest ones are"
    )
    rule_count: int
    keys: list[AccessKey] | None = Field(description="null: there are no rules")
    started_at: Instant = Field(description="start of the time of `last_used_at`")
