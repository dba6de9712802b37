"""Tag expressions such as ``TagA || TagB``: their parsing, and the messages that they match.

Filtering takes two steps. The broker's consume queue has only the 32-bit hash of each message's
tag, so the broker passes messages that *may* match (:meth:`Subscription.matches_code`). Then the
client compares the tag itself (:meth:`Subscription.matches_tag`), because for example ``Aa`` and
``BB`` have the same hash. ``||`` is the only operator; ``*`` is a wildcard only when it stands
alone.

Source: RocketMQ 5.3, ``FilterAPI``, ``SubscriptionData``, ``ExpressionMessageFilter``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from eruca.contract.hashing import tags_code

SUBSCRIBE_ALL: Final = "*"
TAG_TYPE: Final = "TAG"
_SEPARATOR: Final = "||"
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # characters that Java's String.trim removes


class TagExpressionError(ValueError):
    """The text is not a meaningful subscription; ``code`` has the reason, for programs."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


@dataclass(frozen=True, slots=True)
class Subscription:
    """The messages that an expression matches."""

    expression: str  # as given; "*" if it selects everything
    tags: frozenset[str] = frozenset()
    codes: frozenset[int] = frozenset()  # the tags' hashes, signed 32 bits
    expression_type: str = TAG_TYPE

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """The codes that a broker passes; None: all codes; an empty set: none."""
        if self.expression == SUBSCRIBE_ALL or self.expression_type != TAG_TYPE:
            return None
        return self.codes

    def matches_code(self, code: int) -> bool:
        """Tell whether a message with this tags code may match."""
        codes = self.tag_codes
        return codes is None or _int32(code) in codes

    def matches_tag(self, tag: str | None) -> bool:
        """Tell whether a message that the broker passed really matches."""
        return not self.tags or tag in self.tags


def parse_tag_expression(expression: str | None) -> Subscription:
    """Return the subscription of *expression*: everything for None, an empty text and ``*``.

    Blank parts are dropped. If only blank parts are left, as in ``" "`` or ``"|| ||"``, the
    subscription matches nothing, as in RocketMQ.

    Raises:
        TagExpressionError: *expression* has nothing between its separators.
    """
    if not expression or expression == SUBSCRIBE_ALL:
        return Subscription(SUBSCRIBE_ALL)
    parts = expression.split(_SEPARATOR)
    if not any(parts):
        raise TagExpressionError("expression_split", f"{expression!r} names no tag")
    tags = frozenset(filter(None, (part.strip(_TRIMMED) for part in parts)))
    return Subscription(expression, tags, frozenset(map(tags_code, tags)))


def checked_tag_expression(expression: str | None) -> Subscription:
    """Return the subscription of *expression*, as :func:`parse_tag_expression` does, but stricter.

    RocketMQ takes a single ``|`` as a part of a tag. No message has such a tag, so a typing error
    would become a subscription to nothing.

    Raises:
        TagExpressionError: It contains no tag, or one that no message can have.
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
                "unprintable_tag",
                f"{expression!r} has a control character, which no tag can contain",
            )
    return subscription


def _int32(code: int) -> int:
    return ((code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
