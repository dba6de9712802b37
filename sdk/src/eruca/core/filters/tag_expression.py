"""Tag expressions: ``TagA || TagB``, what it subscribes to, and which messages that lets through.

Filtering takes two steps. The broker has only the 32-bit hash of each message's tag in its consume
queue and passes what *may* match (:meth:`Subscription.matches_code`); whoever hands the message to
a user compares the tag itself (:meth:`Subscription.matches_tag`), since ``Aa`` and ``BB`` have one
hash. There is no operator but ``||``; ``*`` is a wildcard only when it stands alone.

Source: RocketMQ 5.3, ``FilterAPI``, ``SubscriptionData``, ``ExpressionMessageFilter``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca.contract.hashing import tags_code

SUBSCRIBE_ALL: Final = "*"
TAG_TYPE: Final = "TAG"
_SEPARATOR: Final = "||"
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # what Java's String.trim takes off


class TagExpressionError(ValueError):
    """The text subscribes to nothing that could be meant; ``code`` says why, for programs."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(frozen=True, slots=True)
class Subscription:
    """The messages that an expression matches."""

    expression: str  # as given; "*" where everything was meant
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()  # the tags' hashes, signed 32 bits
    expression_type: str = TAG_TYPE

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """The codes a broker lets pass; None where tags decide nothing, an empty set: nothing."""
        if self.expression == SUBSCRIBE_ALL or self.expression_type != TAG_TYPE:
            return None
        return self.codes

    def matches_code(self, code: int) -> bool:
        """Tell whether a message whose consume-queue entry holds this tags code may match."""
        codes = self.tag_codes
        return codes is None or _int32(code) in codes

    def matches_tag(self, tag: str | None) -> bool:
        """Tell whether a message the broker let pass is one that was asked for."""
        return not self.tags or tag in self.tags


def parse_tag_expression(expression: str | None) -> Subscription:
    """Return what *expression* subscribes to: everything, for None, an empty text and ``*``.

    Blank parts are dropped. Where only blank parts are left, as of ``" "`` or ``"|| ||"``, the
    subscription lets nothing through, as RocketMQ has it.

    Raises:
        TagExpressionError: Between its separators *expression* holds nothing at all.
    """
    if not expression or expression == SUBSCRIBE_ALL:
        return Subscription(SUBSCRIBE_ALL)
    parts = expression.split(_SEPARATOR)
    if not any(parts):
        raise TagExpressionError("expression_split", f"{expression!r} names no tag")
    tags = frozenset(filter(None, (part.strip(_TRIMMED) for part in parts)))
    return Subscription(expression, tags, frozenset(map(tags_code, tags)))


def checked_tag_expression(expression: str | None) -> Subscription:
    """Return what *expression* subscribes to, as :func:`parse_tag_expression` does.

    RocketMQ takes a single ``|`` for a part of a tag. No message has such a tag, so that a slip of
    the pen would be a subscription to nothing.

    Raises:
        TagExpressionError: It names no tag, or one that no message can have.
    """
    subscription = parse_tag_expression(expression)
    if subscription.expression == SUBSCRIBE_ALL:
        return subscription
    if not subscription.tags:
        raise TagExpressionError("expression_blank", f"{expression!r} names no tag")
    for tag in sorted(subscription.tags):
        if "|" in tag:
            meant = " || ".join(filter(None, map(str.strip, str(expression).split("|"))))
            raise TagExpressionError(
                "single_bar", f"{expression!r} has a single |; tags are separated by ||: {meant!r}"
            )
        if not tag.isprintable():
            raise TagExpressionError(
                "unprintable_tag", f"{expression!r} has a control character, which no tag can hold"
            )
    return subscription


def _int32(code: int) -> int:
    return ((code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
