"""What the request names is not there (404)."""

from __future__ import annotations

from eruca.contract.errors.requests import RequestError
from eruca.contract.names import (
    DEAD_LETTER_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    is_system_topic,
)


class NotFoundError(RequestError):
    """Nothing is there."""

    code = "not-found"
    status = 404
    title = "There is nothing at this path"
    default_fix = "check the URL; /docs lists the paths there are"


class TopicNotFoundError(NotFoundError):
    """The topic does not exist, and is not created by sending to it."""

    code = "topic-not-found"
    title = "The topic does not exist"

    @staticmethod
    def fix_of(topic: str) -> str:
        """Return how to come by a topic of this name."""
        if is_system_topic(topic):
            return "a broker makes topics of the system by itself; see eruca topic list --system"
        if topic.startswith(DEAD_LETTER_TOPIC_PREFIX):
            group = topic.removeprefix(DEAD_LETTER_TOPIC_PREFIX)
            return (
                f"a broker makes it with the group's first dead letter; see eruca dlq list {group}"
            )
        if topic.startswith(RETRY_TOPIC_PREFIX):
            return "a broker makes it for a group that consumes; see eruca group list"
        return f"create it: eruca topic create {topic}, or PUT /v1/topics/{topic}"

    default_fix = fix_of("NAME")


class QueueNotFoundError(NotFoundError):
    """The topic has no queue of this number here."""

    code = "queue-not-found"
    title = "The topic has no such queue on this broker"
    default_fix = "see the queues there are: eruca topic show NAME, or GET /v1/topics/NAME/queues"


class GroupNotFoundError(NotFoundError):
    """The consumer group does not exist."""

    code = "group-not-found"
    title = "The consumer group does not exist"
    default_fix = "create it: eruca group create NAME, or PUT /v1/groups/NAME"


class MemberNotFoundError(NotFoundError):
    """The client is no member of the group here: it never joined, left, or its session is over."""

    code = "member-not-found"
    title = "The client is not a member of the group"
    default_fix = "join: PUT /v1/groups/GROUP/members/CLIENT_ID; locks held before are gone"


class DeadLetterNotFoundError(NotFoundError):
    """The group has no such dead letter here, or retention has deleted it."""

    code = "dead-letter-not-found"
    title = "There is no such dead letter"
    default_fix = "see those there are: eruca dlq list GROUP, or GET /v1/groups/GROUP/dead-letters"


class ScheduledNotFoundError(NotFoundError):
    """No message of this recall handle waits for its delivery here."""

    code = "scheduled-not-found"
    title = "There is no such scheduled message"
    default_fix = (
        "give the recall_handle of the receipt; see messages that wait, with their handles: "
        "eruca scheduled list, or GET /v1/scheduled"
    )


class TransactionNotFoundError(NotFoundError):
    """No transaction of this id was begun here, or retention has deleted what was decided."""

    code = "transaction-not-found"
    title = "There is no such transaction"
    default_fix = "ask the broker that the receipt of the half message names"


class CheckNotFoundError(NotFoundError):
    """No such check is open: it was answered, or its time is over."""

    code = "check-not-found"
    title = "There is no such check"
    default_fix = "drop the answer; if the transaction is still open, it is checked again"


class WebhookNotFoundError(NotFoundError):
    """The producer group has no webhook."""

    code = "webhook-not-found"
    title = "The producer group has no webhook"
    default_fix = "set one: PUT /v1/producer-groups/GROUP/webhook"


class RecordNotFoundError(NotFoundError):
    """No record starts at this log offset, or retention has deleted it."""

    code = "record-not-found"
    title = "There is no record at this log offset"
    default_fix = (
        "use an offset that a receipt, an offset id or the log feed told; older ones may be gone"
    )


class MessageNotFoundError(NotFoundError):
    """No broker has stored a message of this id; every log has been looked through."""

    code = "message-not-found"
    title = "There is no message of this id"
    default_fix = "compare it with what sending returned; what is older than the retention is gone"


class BrokerNotFoundError(NotFoundError):
    """No broker of this name and id is registered."""

    code = "broker-not-found"
    title = "The broker is not registered"
    default_fix = "see those there are: eruca status, or GET /v1/brokers of a name server"


class KeyNotFoundError(NotFoundError):
    """The name server's key-value table has no such entry."""

    code = "key-not-found"
    title = "There is no such key"
    default_fix = "see the keys there are: GET /v1/kv/NAMESPACE"
