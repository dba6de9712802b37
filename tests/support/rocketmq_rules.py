"""Rules of RocketMQ's clients that the product does not need, and that vectors are about.

Each is as RocketMQ has it; the product either has no use for it, or decides better.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Final

from eruca.contract.message_ids import decode_unique_id, month_start_ms
from eruca.contract.names import RETRY_TOPIC_PREFIX
from eruca.core.filters.tag_expression import (
    TAG_TYPE,
    Subscription,
    TagExpressionError,
    parse_tag_expression,
)
from eruca.core.routing.counter import Counter
from eruca.core.routing.latency_fault import CURRENT, FaultTable, RandomSource
from support.latency_profiles import SEED_4X

PROFILES: Final = {"current": CURRENT, "seed_4x": SEED_4X}


def pick_reachable(table: FaultTable, now_ms: float, random: RandomSource) -> str | None:
    """Return any known broker that can be reached, or None."""
    names = [known.broker_name for known in table.health(now_ms) if known.is_reachable]
    return names[random.randrange(len(names))] if names else None


def pick_of_better_half(table: FaultTable, now_ms: float, counter: Counter) -> str | None:
    """Return the next broker in turn from the better half of those known, or None."""
    items = table.items(now_ms)
    if len(items) < 2:
        return items[0].broker_name if items else None
    return items[counter.advance() % (len(items) // 2)].broker_name


def parse_subscription(expression: str | None, expression_type: str | None) -> Subscription:
    """Return what *expression* of a type subscribes to; no type means TAG.

    An expression of another type, SQL92 for one, is kept as it is for that type's own evaluator.

    Raises:
        TagExpressionError: A tag expression that names nothing; an empty one of another type.
    """
    if expression_type is None or expression_type == TAG_TYPE:
        return parse_tag_expression(expression)
    if not expression:
        raise TagExpressionError("expression_empty", f"a {expression_type} expression is needed")
    return Subscription(expression, expression_type=expression_type)


def unique_id_time_ms(text: str, now_ms: int, zone: tzinfo = UTC) -> int:
    """Return about when a unique id was made, as seen at *now_ms*.

    The id holds no month: it is this month's, or the last one's where this month's would lie in
    the future.

    Raises:
        UndecodableIdError: *text* is not 32 or 56 hex digits.
    """
    span = decode_unique_id(text).month_ms
    this_month = month_start_ms(now_ms, zone)
    if this_month + span < now_ms:
        return this_month + span
    return month_start_ms(this_month - 1, zone) + span


def pop_retry_topic(group: str, topic: str) -> str:
    """Return the topic that holds the retries of one topic for a group that pops."""
    return f"{RETRY_TOPIC_PREFIX}{group}+{topic}"


def pop_retry_topic_v1(group: str, topic: str) -> str:
    """Return the same topic as brokers before 5.2 named it; both parts may hold the separator."""
    return f"{RETRY_TOPIC_PREFIX}{group}_{topic}"


def next_file_start(queue_offset: int, entries_per_file: int) -> int:
    """Return the first queue offset of the file after the one that holds *queue_offset*."""
    return queue_offset - queue_offset % entries_per_file + entries_per_file
