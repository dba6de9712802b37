"""The request is understood, and not allowed in this state (403, 409, 410)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from eruca.contract.errors.base import ErucaError


class RefusedError(ErucaError):
    """Understood, and not allowed in this state."""

    code = "refused"
    status = 409
    title = "The request was refused"


class PermissionDeniedError(RefusedError):
    """The topic's or broker's permission forbids it."""

    code = "permission-denied"
    status = 403
    title = "The permission does not allow it"
    default_fix = (
        "change the topic's or the group's settings, which the detail names, or use another one"
    )


class SystemTopicError(RefusedError):
    """The topic belongs to the system."""

    code = "system-topic-protected"
    status = 403
    title = "The topic belongs to the system"
    default_fix = "use a topic of your own; system topics are written by the broker alone"


class DerivedTopicError(SystemTopicError):
    """The topic holds a group's retries or dead letters: the broker alone writes there."""

    code = "derived-topic-protected"
    title = "The topic belongs to a consumer group"
    default_fix = (
        "send to the topic that the group consumes; to send dead letters once more: "
        "eruca dlq redrive GROUP"
    )

    @classmethod
    def of(cls, topic: str) -> Self:
        """Return the error of sending to *topic*, or of changing it."""
        return cls(
            f"topic {topic!r} belongs to a consumer group: the broker alone writes there, and it "
            "follows its group"
        )


class CrossSiteError(RefusedError):
    """A browser sent it for a page of a site that may not call the service."""

    code = "cross-site"
    status = 403
    title = "Pages of other sites may not call the service"
    default_fix = "call it from a program; or name the site in the service's explorer_origins"


class UnknownHostError(RefusedError):
    """The request's Host is neither an address nor a name that the service knows as its own."""

    code = "unknown-host"
    status = 421
    title = "The host is no name of this service"
    default_fix = "use its IP address; or add the name to the service's setting allowed_hosts"


class ConflictError(RefusedError):
    """The state has changed, or already is otherwise."""

    code = "conflict"
    status = 409
    title = "The request conflicts with the current state"
    default_fix = "look at what there is now, and decide anew"


class SubscriptionConflictError(ConflictError):
    """The group subscribes to something else; the detail names the members and the difference."""

    code = "subscription-conflict"
    title = "The group has other subscriptions"
    default_fix = (
        "let all members of the group subscribe alike; or set the group's subscription_mode to "
        "per_member; or cut over: send replaces_subscription_version"
    )


class ClientIdInUseError(ConflictError):
    """Another process is a member under this client id, or has taken it over."""

    code = "client-id-in-use"
    title = "The client id belongs to another process"
    default_fix = "give each process a client id of its own"


class StaleLockError(ConflictError):
    """The queue is not locked by this token any more; nothing has been changed."""

    code = "stale-lock"
    title = "The lock is not held any more"
    default_fix = "stop reading the queue; lock it again, and read on where the answer says"


class AlreadyDeliveredError(ConflictError):
    """The scheduled message has been delivered: it cannot be recalled."""

    code = "already-delivered"
    title = "The message has been delivered already"
    default_fix = "tell its consumers by a further message, if they are not to act on it"


class AlreadyDecidedError(ConflictError):
    """The transaction was decided otherwise; ``decision`` says what, when and by whom."""

    code = "already-decided"
    title = "The transaction has been decided otherwise"
    default_fix = "take it as decided: `decision` says what, when and by whom"

    def __init__(
        self,
        detail: str,
        *,
        decision: Mapping[str, Any] | None = None,
        fix: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        request_id: str | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(
            detail,
            fix=fix,
            errors=errors,
            request_id=request_id,
            retry_after_seconds=retry_after_seconds,
        )
        self.decision = dict(decision or {})  # outcome, by, decided_at, reason …

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was decided, if the document says it."""
        decision = document.get("decision")
        return {"decision": decision if isinstance(decision, dict) else None}

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with what was decided."""
        document = super().problem(request_id)
        return document | {"decision": self.decision} if self.decision else document


class CheckOutOfTurnError(ConflictError):
    """The transaction's checks are not where the request says; nothing has been changed."""

    code = "check-out-of-turn"
    title = "It is not the turn of this check"
    default_fix = "read the transaction, or the log, and go on from there"


class OtherProducerGroupError(ConflictError):
    """The transaction was begun by another producer group."""

    code = "other-producer-group"
    title = "The transaction belongs to another producer group"
    default_fix = "name the producer group that began it"


class TransactionIdInUseError(ConflictError):
    """A transaction of this id has been begun with another message."""

    code = "transaction-id-in-use"
    title = "The id belongs to another transaction"
    default_fix = "give each message an id of its own, or none"


class StaleHandleError(ConflictError):
    """The delivery has been handed out anew since: this handle is not the latest."""

    code = "stale-handle"
    title = "The handle has been superseded"
    default_fix = "drop the handle; a message that is not done comes again, with another one"


class ExpiredHandleError(RefusedError):
    """The delivery's time is over; the message is, or will be, handed out again."""

    code = "expired-handle"
    status = 410
    title = "The delivery has expired"
    default_fix = (
        "receive again: the message comes with another handle; ask for more time, or extend it"
    )


class MisdirectedError(RefusedError):
    """The message belongs to another broker, by its sharding key and the topic's order config."""

    code = "misdirected"
    status = 421
    title = "Another broker's queue"
    default_fix = "send it to that broker: GET /v1/topics/NAME/route of a name server has its URL"


class MessageDamagedError(RefusedError):
    """A message that was asked for is damaged; ``errors`` points at its offset."""

    code = "message-damaged"
    status = 410
    title = "The message is damaged"
    default_fix = "read around it; or restore its log's file from a backup, and repeat"


class RangeDeletedError(RefusedError):
    """Retention has deleted messages that were asked for; ``errors`` points at each queue's."""

    code = "range-deleted"
    status = 410
    title = "Messages of the range have been deleted"
    default_fix = "plan anew, from the first offsets that are left: missing=skip"
