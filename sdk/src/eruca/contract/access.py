"""Access: principals, rights, resources, rules and API keys, as files and services spell them.

A rule grants or denies rights on resources to principals, in the users' words::

    grant produce on topic:orders to user:checkout

    principal   user:NAME   service:NAME   oidc:ISSUER/SUBJECT   cert:SUBJECT
    role        role:NAME, a name for several principals
    right       produce   consume   query   administer
    resource    topic:PATTERN   group:PATTERN   broker:PATTERN   log   cluster   audit
    PATTERN     a name, or the beginning of names and a *

``log`` is a broker's whole log, with the messages of all topics; ``cluster`` all that has no other
name. A group's retry and dead-letter topics are not topics of their own here: they follow the
group. System topics hold the messages of all topics, so they belong to the log. Only the topic of
audit records is apart: ``audit``.

:mod:`eruca.core.access` decides by these rules.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from ipaddress import ip_network
from itertools import pairwise
from typing import Annotated, Final, NamedTuple, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from eruca.contract.fields import Answer, Request, within_utc
from eruca.contract.issuers import ISSUER_COUNT_MAX, TokenIssuer
from eruca.contract.names import (
    AUDIT_TOPIC,
    group_of_derived,
    is_derived_topic,
    is_system_topic,
)

ROLE_PREFIX: Final = "role:"
ANY: Final = "*"  # ends a pattern that matches all names with the characters before it
NAME_SIZE_MAX: Final = 255  # characters of a principal or of a resource
RULE_COUNT_MAX: Final = 100_000
QUOTA_MAX: Final = 2**53  # of any limit; a float that is no longer exact limits nothing anyway
QUOTA_NAMES: Final = (
    "requests_per_second",
    "bytes_in_per_second",
    "bytes_out_per_second",
    "requests_under_way_max",
    "connections_max",
    "in_flight_share",
)
NAMESPACE_SIZE_MAX: Final = 64  # characters of a namespace: half of a topic's name
KEY_ID_PATTERN: Final = r"^[a-z0-9]{4,32}$"


class Right(StrEnum):
    """A right: one word for all operations that somebody needs for one purpose."""

    PRODUCE = "produce"
    CONSUME = "consume"
    QUERY = "query"
    ADMINISTER = "administer"


class ResourceKind(StrEnum):
    """A kind of resources."""

    TOPIC = "topic"
    GROUP = "group"
    BROKER = "broker"
    LOG = "log"
    CLUSTER = "cluster"
    AUDIT = "audit"

    @property
    def is_named(self) -> bool:
        """True if there are several resources of the kind, each with a name."""
        return self not in _ALONE


_ALONE: Final = frozenset({ResourceKind.LOG, ResourceKind.CLUSTER, ResourceKind.AUDIT})


class Resource(NamedTuple):
    """A resource, or in a rule a pattern of resources."""

    kind: ResourceKind
    name: str  # empty: the kind has only one

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.kind.is_named else str(self.kind)

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a resource or a pattern.

        Raises:
            ValueError: It is neither.
        """
        kind, colon, name = text.partition(":")
        if kind not in ResourceKind.__members__.values():
            kinds = ", ".join(ResourceKind)
            raise ValueError(f"unknown kind of resource {kind!r}; valid kinds: {kinds}")
        found = ResourceKind(kind)
        if found.is_named != bool(name) or (colon and not name):
            shape = f"{kind}:NAME" if found.is_named else kind
            raise ValueError(f"expected {shape}, found {text!r}")
        return cls(found, name)


def topic_resource(topic: str) -> Resource:
    """Return the resource to which the messages of *topic* belong.

    A group's retries and dead letters belong to the group, audit records to the audit, and other
    system topics to the log.
    """
    if is_derived_topic(topic):
        return Resource(ResourceKind.GROUP, group_of_derived(topic))
    if topic == AUDIT_TOPIC:
        return Resource(ResourceKind.AUDIT, "")
    if is_system_topic(topic):
        return Resource(ResourceKind.LOG, "")
    return Resource(ResourceKind.TOPIC, topic)


_PRINCIPAL: Final = re.compile(r"(user|service|oidc|cert):[^\s\x00-\x1f\x7f]+\Z")
_ASKED_PRINCIPAL: Final = r"^(user|service|oidc|cert):[!-~]+$"
_ASKED_RESOURCE: Final = r"^((topic|group|broker):[!-~]+|log|cluster|audit)$"
_ROLE_NAME: Final = r"^[A-Za-z0-9_.-]{1,64}$"
_ROLE: Final = re.compile(r"role:[A-Za-z0-9_.-]{1,64}\Z")
_NAMESPACE: Final = r"^[A-Za-z0-9][A-Za-z0-9_|-]*[_|-]$"
_PATTERN_NAME: Final = re.compile(r"[A-Za-z0-9_.@%|-]*\*?\Z")


def _checked_principal(text: str) -> str:
    if not _PRINCIPAL.match(text):
        raise ValueError(
            f"expected user:NAME, service:NAME, oidc:ISSUER/SUBJECT or cert:SUBJECT, found {text!r}"
        )
    return text


def _checked_holder(text: str) -> str:
    if text.startswith(ROLE_PREFIX):
        if not _ROLE.match(text):
            raise ValueError(f"expected role:NAME of letters, digits, _, . and -, found {text!r}")
        return text
    return _checked_principal(text)


def _checked_pattern(text: str) -> str:
    kind, name = Resource.of(text)
    if not _PATTERN_NAME.match(name):
        raise ValueError(f"expected a name, or the beginning of names and a *, found {text!r}")
    if kind is ResourceKind.TOPIC:
        belongs_to = topic_resource(name.removesuffix(ANY))
        if belongs_to.kind is ResourceKind.GROUP:
            star = ANY if name.endswith(ANY) else ""
            raise ValueError(
                f"{name} follows its group; use {ResourceKind.GROUP}:{belongs_to.name}{star}"
            )
        if belongs_to.kind is ResourceKind.AUDIT:
            raise ValueError(f"{name} holds audit records; use {ResourceKind.AUDIT}")
        if belongs_to.kind is ResourceKind.LOG:
            raise ValueError(f"{name} holds messages of all topics; use {ResourceKind.LOG}")
    return text


def _checked_namespace(text: str) -> str:
    if not re.match(_NAMESPACE, text) or text.endswith("\n"):
        raise ValueError(
            f"expected letters, digits, _, | and -, the last one of _, | and -, found {text!r}; "
            f"such as {text.rstrip('_|-')}-"
        )
    return text


def _checked_network(text: str) -> str:
    ip_network(text)  # raises ValueError
    return text


Principal = Annotated[
    str,
    StringConstraints(max_length=NAME_SIZE_MAX),
    AfterValidator(_checked_principal),
    Field(description="user:NAME, service:NAME, oidc:ISSUER/SUBJECT or cert:SUBJECT"),
]
Holder = Annotated[
    str,
    StringConstraints(max_length=NAME_SIZE_MAX),
    AfterValidator(_checked_holder),
    Field(description="a principal, or role:NAME"),
]
ResourcePattern = Annotated[
    str,
    StringConstraints(max_length=NAME_SIZE_MAX),
    AfterValidator(_checked_pattern),
    Field(
        description="topic:PATTERN, group:PATTERN, broker:PATTERN, log, cluster or audit; a "
        "pattern is a name, or the beginning of names and a *"
    ),
]
Network = Annotated[
    str,
    StringConstraints(max_length=64),
    AfterValidator(_checked_network),
    Field(description="an IP address, or a network as ADDRESS/BITS"),
]
KeyId = Annotated[str, StringConstraints(pattern=KEY_ID_PATTERN)]
PolicyTime = Annotated[AwareDatetime, AfterValidator(within_utc)]


class _Entry(BaseModel):
    """Base of the tables of a policy: it refuses unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class AccessRule(_Entry):
    """One rule: rights on resources, granted or denied to principals."""

    allow: Annotated[list[Right], Field(description="rights that it grants")] = []
    deny: Annotated[list[Right], Field(description="rights that it denies")] = []
    on: Annotated[list[ResourcePattern], Field(min_length=1, description="resources")]
    to: Annotated[list[Holder], Field(min_length=1, description="principals or roles")]
    networks: Annotated[
        list[Network],
        Field(
            alias="from",
            description="the rule applies only to requests from these; empty: to all",
        ),
    ] = []
    until: Annotated[
        PolicyTime | None, Field(description="the rule applies only before this time")
    ] = None

    @model_validator(mode="after")
    def _either_allows_or_denies(self) -> Self:
        if bool(self.allow) == bool(self.deny):
            raise ValueError("expected one of allow and deny, with at least one right")
        return self

    @property
    def grants(self) -> bool:
        """True if it grants, and False if it denies."""
        return bool(self.allow)

    @property
    def rights(self) -> list[Right]:
        """The rights that it grants or denies."""
        return self.allow or self.deny

    def __str__(self) -> str:
        parts = [
            "grant" if self.grants else "deny",
            ", ".join(self.rights),
            "on",
            ", ".join(self.on),
            "to",
            ", ".join(self.to),
        ]
        if self.networks:
            parts += ["from", ", ".join(self.networks)]
        if self.until is not None:
            parts += ["until", self.until.isoformat()]
        return " ".join(parts)


class StoredKey(_Entry):
    """An API key, as it is stored: its digest, never the key."""

    id: KeyId
    principal: Principal
    sha256: Annotated[
        str,
        StringConstraints(pattern=r"^[0-9a-f]{64}$"),
        Field(description="SHA-256 of the whole key, in hexadecimal", repr=False),
    ]
    created_at: PolicyTime | None = None
    expires_at: Annotated[
        PolicyTime | None, Field(description="the key is invalid from then on")
    ] = None
    note: Annotated[str, StringConstraints(max_length=200)] = ""


class AccessQuota(_Entry):
    """The most that a principal may use of one service's process; each principal has its own."""

    to: Annotated[list[Holder], Field(min_length=1, description="principals or roles")]
    requests_per_second: Annotated[float | None, Field(gt=0, le=QUOTA_MAX, allow_inf_nan=False)] = (
        None
    )
    bytes_in_per_second: Annotated[
        int | None, Field(gt=0, le=QUOTA_MAX, description="bytes of requests' bodies")
    ] = None
    bytes_out_per_second: Annotated[
        int | None, Field(gt=0, le=QUOTA_MAX, description="bytes of answers' bodies")
    ] = None
    requests_under_way_max: Annotated[
        int | None,
        Field(gt=0, le=QUOTA_MAX, description="requests that are not answered, held ones included"),
    ] = None
    connections_max: Annotated[
        int | None,
        Field(gt=0, le=QUOTA_MAX, description="open connections on which it sends requests"),
    ] = None
    in_flight_share: Annotated[
        float | None,
        Field(gt=0, le=1, description="share of each budget of bytes in flight that it may hold"),
    ] = None

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if not self.limits:
            names = ", ".join(QUOTA_NAMES)
            raise ValueError(f"expected one limit at least: {names}")
        return self

    @property
    def limits(self) -> dict[str, float]:
        """The limits that it sets, by their names."""
        named = ((name, getattr(self, name)) for name in QUOTA_NAMES)
        return {name: value for name, value in named if value is not None}

    def __str__(self) -> str:
        limits = ", ".join(f"{name} {value:g}" for name, value in self.limits.items())
        return f"{limits} for {', '.join(self.to)}"


class AccessNamespace(_Entry):
    """A namespace: the beginning of all names of some principals, which they themselves leave out.

    A principal of the namespace ``team-a-`` says ``orders``, and means ``team-a-orders``.
    """

    name: Annotated[
        str,
        StringConstraints(max_length=NAMESPACE_SIZE_MAX),
        AfterValidator(_checked_namespace),
        Field(
            description="the beginning of its names; ends in -, _ or |",
            examples=["team-a-"],
            json_schema_extra={"pattern": _NAMESPACE},
        ),
    ]
    to: Annotated[list[Holder], Field(min_length=1, description="principals or roles")]

    def __str__(self) -> str:
        return f"{self.name} for {', '.join(self.to)}"


class PolicyDocument(_Entry):
    """Everything that decides who may do what: the file of ``ERUCA_AUTH_FILE``."""

    roles: Annotated[
        dict[Annotated[str, StringConstraints(pattern=_ROLE_NAME)], list[Principal]],
        Field(description="the principals of each role"),
    ] = {}
    rules: Annotated[list[AccessRule], Field(max_length=RULE_COUNT_MAX)] = []
    keys: Annotated[list[StoredKey], Field(max_length=RULE_COUNT_MAX)] = []
    issuers: Annotated[list[TokenIssuer], Field(max_length=ISSUER_COUNT_MAX)] = []
    quotas: Annotated[list[AccessQuota], Field(max_length=RULE_COUNT_MAX)] = []
    namespaces: Annotated[list[AccessNamespace], Field(max_length=RULE_COUNT_MAX)] = []

    @model_validator(mode="after")
    def _has_separate_namespaces(self) -> Self:
        names = sorted(namespace.name for namespace in self.namespaces)
        for name, following in pairwise(names):
            if following.startswith(name):
                raise ValueError(
                    f"the namespaces {name} and {following} overlap: each needs another beginning, "
                    "or one principal could read another's names"
                )
        counts = Counter(holder for one in self.namespaces for holder in set(one.to))
        several = sorted(holder for holder, count in counts.items() if count > 1)
        if several:
            raise ValueError(f"several namespaces have one holder: {', '.join(several)}")
        return self

    @model_validator(mode="after")
    def _has_each_issuer_once(self) -> Self:
        for name in ("name", "issuer"):
            counts = Counter(getattr(issuer, name) for issuer in self.issuers)
            twice = sorted(value for value, count in counts.items() if count > 1)
            if twice:
                raise ValueError(f"several issuers have one {name}: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _has_each_key_once(self) -> Self:
        counts = Counter(key.id for key in self.keys)
        twice = sorted(key_id for key_id, count in counts.items() if count > 1)
        if twice:
            raise ValueError(f"several keys have one id: {', '.join(twice)}")
        return self


class AccessQuestion(Request):
    """May a principal do something? Answered by the rule that decides."""

    principal: Annotated[
        Principal,
        Field(examples=["user:checkout"], json_schema_extra={"pattern": _ASKED_PRINCIPAL}),
    ]
    right: Annotated[Right, Field(strict=False, examples=["produce"])]
    resource: Annotated[
        str,
        StringConstraints(max_length=NAME_SIZE_MAX, pattern=_ASKED_RESOURCE),
        Field(examples=["topic:orders"]),
    ]
    address: Annotated[
        str | None,
        StringConstraints(max_length=64),
        Field(description="IP address of the client; null: the caller's own"),
    ] = None


class AccessExplanation(Answer):
    """The decision for one question, and the rule that made it."""

    allowed: bool
    reason: str
    rule: Annotated[str | None, Field(description="the rule that decides; null: no rule matches")]
    fix: Annotated[
        str | None, Field(description="a grant that would allow it; null: it is allowed")
    ]
