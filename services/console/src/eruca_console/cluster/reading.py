"""Everything that pages ask the cluster, as one caller."""

from __future__ import annotations

from eruca_console.cluster.access_questions import AccessQuestions
from eruca_console.cluster.broker_questions import BrokerQuestions
from eruca_console.cluster.group_questions import GroupQuestions
from eruca_console.cluster.message_questions import MessageQuestions
from eruca_console.cluster.policy_questions import PolicyQuestions
from eruca_console.cluster.topic_questions import TopicQuestions
from eruca_console.cluster.transaction_questions import TransactionQuestions


class Reading(
    BrokerQuestions,
    TopicQuestions,
    GroupQuestions,
    MessageQuestions,
    TransactionQuestions,
    AccessQuestions,
    PolicyQuestions,
):
    """The questions of one caller; each subject has a module of its own."""
