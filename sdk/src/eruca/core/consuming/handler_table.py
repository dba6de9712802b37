"""Select the handler of a message: by topic, and by tag if a topic has several handlers.

A group subscribes to a topic once, with the union of its handlers' expressions. A message goes to
the first handler of its topic whose expression matches its tag. If none matches a retry's tag any
longer, the retry goes to the topic's first handler: it was accepted once and must not be lost.

Source: RocketMQ 5.3, ``DefaultMQPushConsumer.subscribe``, which has one listener for everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from eruca.contract.errors import ValidationError
from eruca.contract.limits import SUBSCRIPTION_COUNT_MAX
from eruca.core.checked_names import check_topic
from eruca.core.filters.sql92 import Sql92Filter
from eruca.core.filters.subscription_filter import Filter, sql, subscription_of
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL, TAG_TYPE, Subscription
from eruca.core.messages.received_message import ReceivedMessage

_TYPES: Final = ("tag", "sql92")


@dataclass(frozen=True, slots=True)
class Registration:
    """A handler, its expression and its shape."""

    function: Callable[..., Any]
    subscription: Subscription
    is_async: bool
    takes_context: bool


class HandlerTable:
    """The handlers of one consumer."""

    def __init__(self) -> None:
        self._by_topic: dict[str, list[Registration]] = {}

    @property
    def topics(self) -> list[str]:
        """The topics that have a handler, in the order of their first."""
        return list(self._by_topic)

    def add(
        self,
        topic: str,
        function: Callable[..., Any],
        *,
        expression: Filter | None,
        filter_type: str,
        is_async: bool,
        takes_context: bool,
    ) -> None:
        """Register *function* for the messages of *topic* that match *expression*.

        Raises:
            ValidationError: The topic's name or the expression is invalid, or the topic's handlers
                cannot be combined.
        """
        check_topic(topic)
        if filter_type not in _TYPES:
            raise ValidationError(
                f"filter_type: {filter_type!r} is invalid; valid options: {', '.join(_TYPES)}"
            )
        if filter_type == "sql92" and not isinstance(expression, Sql92Filter):
            expression = sql(expression or "")
        subscription = subscription_of(expression)
        if topic not in self._by_topic and len(self._by_topic) >= SUBSCRIPTION_COUNT_MAX:
            raise ValidationError(
                f"topic: {topic} would be one more than the {SUBSCRIPTION_COUNT_MAX} topics that a"
                " consumer may subscribe to",
                fix="divide the topics among consumers of several groups",
            )
        others = self._by_topic.get(topic, [])
        is_by_tag = subscription.expression_type == TAG_TYPE
        if others and not (is_by_tag and others[0].subscription.expression_type == TAG_TYPE):
            raise ValidationError(
                f"topic: {topic} already has a handler; only tags can distinguish several handlers"
            )
        registration = Registration(function, subscription, is_async, takes_context)
        self._by_topic[topic] = [*others, registration]

    def subscription(self, topic: str) -> Subscription:
        """Return the combined subscription of all handlers of *topic*."""
        subscriptions = [registration.subscription for registration in self._by_topic[topic]]
        if len(subscriptions) == 1:
            return subscriptions[0]
        if any(subscription.expression == SUBSCRIBE_ALL for subscription in subscriptions):
            return Subscription(SUBSCRIBE_ALL)
        tags = sorted(frozenset().union(*(s.tags for s in subscriptions)))
        return subscription_of(" || ".join(tags))

    def only_one_of(self, topic: str) -> Registration | None:
        """Return the handler of all messages of *topic*'s queues, if there is just one."""
        registrations = self._by_topic.get(topic, ())
        return registrations[0] if len(registrations) == 1 else None

    def find(self, message: ReceivedMessage) -> Registration | None:
        """Return the handler of *message*; None if its topic has no handler (any longer)."""
        registrations = self._by_topic.get(message.topic)
        if not registrations:
            return None
        if len(registrations) > 1:
            tag = message.tag
            for registration in registrations:
                if registration.subscription.matches_tag(tag):
                    return registration
        return registrations[0]
