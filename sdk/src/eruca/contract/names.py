"""Names of topics and groups: validate them, and recognise system and derived names.

Source: RocketMQ 5.3, ``TopicValidator`` (broker), ``Validators`` (client), ``MixAll``,
``KeyBuilder``. The broker checks characters before length, and allows retry and dead-letter topics
255 characters. The client checks length first and has no such exception.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

from eruca.contract.limits import (
    DERIVED_TOPIC_SIZE_MAX,
    GROUP_SIZE_MAX,
    KV_NAME_SIZE_MAX,
    TOPIC_SIZE_MAX,
)

NAME_PATTERN: Final = r"^[%|a-zA-Z0-9_-]+$"
# A namespace or key at the name server; dots alone would be a relative segment of a URL's path.
KV_NAME_PATTERN: Final = r"^[a-zA-Z0-9_%|@.:-]*[a-zA-Z0-9_%|@:-][a-zA-Z0-9_%|@.:-]*$"
RETRY_TOPIC_PREFIX: Final = "%RETRY%"
DEAD_LETTER_TOPIC_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

EVENTS_TOPIC: Final = "ERUCA_SYS_EVENTS"  # control records: the broker's own state changes
AUDIT_TOPIC: Final = "ERUCA_SYS_AUDIT"  # records of who did what: eruca.contract.audit
AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"  # messages with a delay level wait here
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"  # messages with a delivery time wait here
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

# Namespaces of the name servers' key-value table: from each instance's name to its URL.
CHECKERS_NAMESPACE: Final = "ERUCA_TXN_CHECKERS"
QUERY_SERVICES_NAMESPACE: Final = "ERUCA_QUERY_SERVICES"
CONTROLLERS_NAMESPACE: Final = "ERUCA_CONTROLLERS"
ORDERED_TOPICS_NAMESPACE: Final = "ERUCA_ORDERED_TOPICS"  # by broker name; see the name server

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        "BenchmarkTest",
        HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        OP_HALF_TOPIC,
        CHECK_MAX_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        EVENTS_TOPIC,
        AUDIT_TOPIC,
    }
)

# Every RocketMQ broker creates these, or they are the default names of its clients and tools.
DEFAULT_GROUPS: Final = frozenset(
    {
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
    }
)

# Java's Character.isWhitespace: unlike Python's, without the no-break spaces and U+0085.
_JAVA_WHITESPACE: Final = "".join(
    c for c in map(chr, range(0x3001)) if c.isspace() and c not in "\x85\xa0\u2007\u202f"
)

_LEGAL = re.compile(NAME_PATTERN + r"\Z")
_LEGAL_KV = re.compile(KV_NAME_PATTERN + r"\Z")


class NameFault(StrEnum):
    """The faults of a name."""

    BLANK = "blank"
    ILLEGAL_CHARACTER = "illegal_character"
    TOO_LONG = "too_long"

    @property
    def said(self) -> str:
        """The fault as a predicate that follows the name."""
        return _SAID[self]


TOPIC_NAME_FIX: Final = f"use up to {TOPIC_SIZE_MAX} letters, digits, %, |, _ and -"
GROUP_NAME_FIX: Final = f"use up to {GROUP_SIZE_MAX} letters, digits, %, |, _ and -"
KV_NAME_FIX: Final = f"use up to {KV_NAME_SIZE_MAX} letters, digits, _, %, |, @, ., : and -"
_SAID: Final = {
    NameFault.BLANK: "is blank",
    NameFault.ILLEGAL_CHARACTER: "contains a character that is not allowed",
    NameFault.TOO_LONG: "is too long",
}


def broker_topic_fault(name: str) -> NameFault | None:
    """Return the fault of a topic name by the broker's rules, or None."""
    size_max = DERIVED_TOPIC_SIZE_MAX if is_derived_topic(name) else TOPIC_SIZE_MAX
    return _fault(name, size_max, length_first=False)


def broker_group_fault(name: str) -> NameFault | None:
    """Return the fault of a group name by the broker's rules, or None."""
    return _fault(name, GROUP_SIZE_MAX, length_first=False)


def client_topic_fault(name: str) -> NameFault | None:
    """Return the fault of a topic name by the client's rules, or None."""
    return _fault(name, TOPIC_SIZE_MAX, length_first=True)


def client_group_fault(name: str) -> NameFault | None:
    """Return the fault of a group name by the client's rules, or None."""
    return _fault(name, GROUP_SIZE_MAX, length_first=True)


def kv_name_fault(name: str) -> NameFault | None:
    """Return the fault of a namespace or key by the name server's rules, or None."""
    if not name:
        return NameFault.BLANK
    if not _LEGAL_KV.match(name):
        return NameFault.ILLEGAL_CHARACTER
    return NameFault.TOO_LONG if len(name) > KV_NAME_SIZE_MAX else None


def is_system_topic(name: str) -> bool:
    """Return whether *name* is a system topic: clients neither change it nor send to it."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_derived_topic(name: str) -> bool:
    """Return whether *name* is a group's retry or dead-letter topic.

    Only the broker writes to such a topic; clients may read it. It is not a system topic: its
    settings follow its group.
    """
    return name.startswith((RETRY_TOPIC_PREFIX, DEAD_LETTER_TOPIC_PREFIX))


def group_of_derived(name: str) -> str:
    """Return the group whose retries or dead letters the topic *name* holds."""
    # Only one of them: the group's own name may begin like the other.
    is_retry = name.startswith(RETRY_TOPIC_PREFIX)
    return name.removeprefix(RETRY_TOPIC_PREFIX if is_retry else DEAD_LETTER_TOPIC_PREFIX)


def is_system_group(name: str) -> bool:
    """Return whether *name* is a system group by RocketMQ's rule."""
    return name.startswith(SYSTEM_GROUP_PREFIX)


def is_reserved_group(name: str) -> bool:
    """Return whether *name* is reserved: a system group or a default of RocketMQ's tools."""
    return is_system_group(name) or name in DEFAULT_GROUPS


def retry_topic(group: str) -> str:
    """Return the topic that holds a group's retries."""
    return RETRY_TOPIC_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """Return the topic that holds a group's dead letters."""
    return DEAD_LETTER_TOPIC_PREFIX + group


def _fault(name: str, size_max: int, *, length_first: bool) -> NameFault | None:
    if not name.strip(_JAVA_WHITESPACE):
        return NameFault.BLANK
    illegal = NameFault.ILLEGAL_CHARACTER if not _LEGAL.match(name) else None
    # Java counts UTF-16 code units. This matters only for which fault is reported first.
    size = len(name.encode("utf-16-le", "surrogatepass")) // 2
    too_long = NameFault.TOO_LONG if size > size_max else None
    return (too_long or illegal) if length_first else (illegal or too_long)


def is_made_by_system(topic: str) -> bool:
    """Return whether *topic* is a system topic or a group's retry or dead-letter topic."""
    return is_derived_topic(topic) or is_system_topic(topic)
