"""The pages: one folder for each, with its view and its template."""

from __future__ import annotations

from typing import Final

from eruca_console.pages.access.view import PAGE as ACCESS
from eruca_console.pages.audit.view import PAGE as AUDIT
from eruca_console.pages.broker.view import PAGE as BROKER
from eruca_console.pages.broker_switch.view import PAGE as BROKER_SWITCH
from eruca_console.pages.brokers.view import PAGE as BROKERS
from eruca_console.pages.dead_letters.view import PAGE as DEAD_LETTERS
from eruca_console.pages.group.view import PAGE as GROUP
from eruca_console.pages.group_as_of.view import PAGE as GROUP_AS_OF
from eruca_console.pages.group_reset.view import PAGE as GROUP_RESET
from eruca_console.pages.group_settings.view import PAGE as GROUP_SETTINGS
from eruca_console.pages.groups.view import PAGE as GROUPS
from eruca_console.pages.keys.view import PAGE as KEYS
from eruca_console.pages.message.view import PAGE as MESSAGE
from eruca_console.pages.messages.view import PAGE as MESSAGES
from eruca_console.pages.overview.view import PAGE as OVERVIEW
from eruca_console.pages.rules.view import PAGE as RULES
from eruca_console.pages.rules_change.view import PAGE as RULES_CHANGE
from eruca_console.pages.rules_compare.view import PAGE as RULES_COMPARE
from eruca_console.pages.rules_now.view import PAGE as RULES_NOW
from eruca_console.pages.scheduled.view import PAGE as SCHEDULED
from eruca_console.pages.scheduled_recall.view import PAGE as SCHEDULED_RECALL
from eruca_console.pages.topic.view import PAGE as TOPIC
from eruca_console.pages.topic_send.view import PAGE as TOPIC_SEND
from eruca_console.pages.topic_settings.view import PAGE as TOPIC_SETTINGS
from eruca_console.pages.topic_volume.view import PAGE as TOPIC_VOLUME
from eruca_console.pages.topics.view import PAGE as TOPICS
from eruca_console.pages.transaction.view import PAGE as TRANSACTION
from eruca_console.pages.transaction_decision.view import PAGE as TRANSACTION_DECISION
from eruca_console.pages.transactions.view import PAGE as TRANSACTIONS
from eruca_console.shell.pages import Page

PAGES: Final[tuple[Page, ...]] = (
    OVERVIEW,
    BROKERS,
    BROKER,
    BROKER_SWITCH,
    TOPICS,
    TOPIC,
    TOPIC_SEND,
    TOPIC_VOLUME,
    TOPIC_SETTINGS,
    GROUPS,
    GROUP,
    GROUP_AS_OF,
    GROUP_RESET,
    GROUP_SETTINGS,
    DEAD_LETTERS,
    MESSAGES,
    MESSAGE,
    SCHEDULED,
    SCHEDULED_RECALL,
    TRANSACTIONS,
    TRANSACTION,
    TRANSACTION_DECISION,
    AUDIT,
    ACCESS,
    RULES,
    RULES_NOW,
    RULES_CHANGE,
    RULES_COMPARE,
    KEYS,
)
"""All pages."""
