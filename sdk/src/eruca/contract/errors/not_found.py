"""Errors of a request that names something missing (404)."""

from __future__ import annotations

from eruca.contract.errors.requests import RequestError
from eruca.contract.names import (
    DEAD_LETTER_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    is_system_topic,
)


class NotFoundError(RequestError):
    """The path or the resource does not exist."""

    code = "not-found"
    status = 404
    title = "Nothing found at this path"
    default_fix = "check the URL; /docs lists the valid paths"


class TopicNotFoundError(NotFoundError):
    """The topic does not exist, and sending to it does not create it."""

    code = "topic-not-found"
    title = "The topic does not exist"

    @staticmethod
    def fix_of(topic: str) -> str:
        """Return the fix for a missing topic of this name."""
        if is_system_topic(topic):
            return "a broker makes system topics by itself; see eruca topic list --system"
        if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
            group = topic.removeprefix(DEAD_LETTER_TOPIC_PREFIX)
            return (
                "a broker creates it with the group's first dead letter; "
                f"see eruca dlq list {group}"
            )
        if topic.startswith(RETRY_TOPIC_PREFIX):
            return "a broker creates it when the group consumes; see eruca group list"
        return f"create it: eruca topic create {topic}, or PUT /v1/topics/{topic}"

    default_fix = fix_of("NAME")


class QueueNotFoundError(NotFoundError):
    """The topic has no queue with this id on this broker."""

    code = "queue-not-found"
    title = "The topic has no such queue on this broker"
    default_fix = "list the queues: eruca topic show NAME, or GET /v1/topics/NAME/queues"


class GroupNotFoundError(NotFoundError):
    """The consumer group does not exist."""

    code = "group-not-found"
    title = "The consumer group does not exist"
    default_fix = "create it: eruca group create NAME, or PUT /v1/groups/NAME"


class MemberNotFoundError(NotFoundError):
    """The client never joined the group, has left it, or its session has expired."""

    code = "member-not-found"
    title = "The client is not a member of the group"
    default_fix = "join: PUT /v1/groups/GROUP/members/CLIENT_ID; earlier locks are released"


class DeadLetterNotFoundError(NotFoundError):
    """The group has no such dead letter on this broker, or retention has deleted it."""

    code = "dead-letter-not-found"
    title = "The dead letter does not exist"
    default_fix = (
        "list the dead letters: eruca dlq list GROUP, or GET /v1/groups/GROUP/dead-letters"
    )


class ScheduledNotFoundError(NotFoundError):
    """This broker has no scheduled message with this recall handle."""

    code = "scheduled-not-found"
    title = "The scheduled message does not exist"
    default_fix = (
        "use the recall_handle of the receipt; list scheduled messages with their handles: "
        "eruca scheduled list, or GET /v1/scheduled"
    )


class TransactionNotFoundError(NotFoundError):
    """This broker knows no such transaction, or retention has deleted a decided one."""

    code = "transaction-not-found"
    title = "The transaction does not exist"
    default_fix = "send the request to the broker that the half message's receipt names"


class CheckNotFoundError(NotFoundError):
    """No such check is open: it is answered, or has expired."""

    code = "check-not-found"
    title = "The check does not exist"
    default_fix = "drop the answer; the checker retries while the transaction is undecided"


class WebhookNotFoundError(NotFoundError):
    """The producer group has no webhook."""

    code = "webhook-not-found"
    title = "The producer group has no webhook"
    default_fix = "set one: PUT /v1/producer-groups/GROUP/webhook"


class RecordNotFoundError(NotFoundError):
    """No record starts at this log offset, or retention has deleted it."""

    code = "record-not-found"
    title = "No record starts at this log offset"
    default_fix = (
        "use an offset from a receipt, an offset id or the log feed; retention deletes older ones"
    )


class MessageNotFoundError(NotFoundError):
    """No broker holds a message with this id; every log was searched."""

    code = "message-not-found"
    title = "No message has this id"
    default_fix = "compare the id with the send's receipt; retention deletes older messages"


class BrokerNotFoundError(NotFoundError):
    """No broker with this name and id is registered."""

    code = "broker-not-found"
    title = "The broker is not registered"
    default_fix = "list the brokers: eruca status, or GET /v1/brokers of a name server"


class KeyNotFoundError(NotFoundError):
    """The name server's key-value table has no such entry."""

    code = "key-not-found"
    title = "The key does not exist"
    default_fix = "list the keys: GET /v1/kv/NAMESPACE"


class BrokerGroupNotFoundError(NotFoundError):
    """The arbiter has no row of this broker name."""

    code = "broker-group-not-found"
    title = "The broker group does not exist"
    default_fix = "create it with If-None-Match: *; or list the groups: GET /v1/broker-groups"
