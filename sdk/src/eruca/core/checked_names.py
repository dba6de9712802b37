"""Names as a program gives them, refused before anything is asked of a broker."""

from __future__ import annotations

from eruca.contract import names
from eruca.contract.errors import ValidationError


def check_own_group(group: str, argument: str = "group") -> None:
    """Raise ValidationError if no group of a program's own can be called that."""
    check_group(group, argument)
    if names.is_reserved_group(group):
        raise ValidationError(
            f"{argument}: {group!r} is reserved for the system", fix="use a group of your own"
        )


def check_group(group: str, argument: str = "group") -> None:
    """Raise ValidationError if *group* is not a valid name; *argument* is for the error."""
    _check_text(group, argument)
    if (fault := names.client_group_fault(group)) is not None:
        raise ValidationError(f"{argument}: {group!r} {fault.said}", fix=names.GROUP_NAME_FIX)


def check_kv_name(name: str, argument: str) -> None:
    """Raise ValidationError if *name* is not a valid namespace or key; *argument* names it."""
    _check_text(name, argument)
    if (fault := names.kv_name_fault(name)) is not None:
        raise ValidationError(f"{argument}: {name!r} {fault.said}", fix=names.KV_NAME_FIX)


def check_topic(topic: str, argument: str = "topic") -> None:
    """Raise ValidationError if *topic* is not a valid name; *argument* is for the error."""
    _check_text(topic, argument)
    if (fault := names.broker_topic_fault(topic)) is not None:
        raise ValidationError(f"{argument}: {topic!r} {fault.said}", fix=names.TOPIC_NAME_FIX)


def _check_text(name: object, argument: str) -> None:
    if not isinstance(name, str):
        raise ValidationError(f"{argument}: {name!r:.80} is not a text", fix="pass the name as str")
