"""Errors of a valid request that the current state does not allow (403, 409, 410, 412, 421)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, Unpack

from eruca.contract.errors.base import ErucaError, ProblemOptions


class RefusedError(ErucaError):
    """The request is valid, and the current state does not allow it."""

    code = "refused"
    status = 409
    title = "The request was refused"


class PermissionDeniedError(RefusedError):
    """A permission of the topic, the group or the broker forbids the request."""

    code = "permission-denied"
    status = 403
    title = "The permission does not allow the request"
    default_fix = (
        "change the setting of the topic or group that the detail names, or use another one"
    )


class SystemTopicError(RefusedError):
    """The topic is a system topic: only the broker writes to it."""

    code = "system-topic-protected"
    status = 403
    title = "The topic is a system topic"
    default_fix = "use a topic of your own; only the broker writes to system topics"


class DerivedTopicError(SystemTopicError):
    """The topic holds a group's retries or dead letters: only the broker writes to it."""

    code = "derived-topic-protected"
    title = "The topic belongs to a consumer group"
    default_fix = (
        "send to the topic that the group consumes; to redrive dead letters: "
        "eruca dlq redrive GROUP"
    )

    @classmethod
    def of(cls, topic: str) -> Self:
        """Return the error of sending to *topic*, or of changing it."""
        return cls(
            f"topic {topic!r} belongs to a consumer group: only the broker writes to it and "
            "changes its settings"
        )


class CrossSiteError(RefusedError):
    """A browser sent the request for a page of a site that may not call the service."""

    code = "cross-site"
    status = 403
    title = "Pages of other sites may not call the service"
    default_fix = "call it from a program; or add the site to the setting explorer_origins"


class UnknownHostError(RefusedError):
    """The request's Host is neither an IP address nor an allowed name of the service."""

    code = "unknown-host"
    status = 421
    title = "The host is not a name of this service"
    default_fix = "use the service's IP address; or add the name to the setting allowed_hosts"


class ConflictError(RefusedError):
    """The request conflicts with the current state."""

    code = "conflict"
    status = 409
    title = "The request conflicts with the current state"
    default_fix = "read the current state, then decide again"


class SubscriptionConflictError(ConflictError):
    """The group has other subscriptions; the detail names the members and the difference."""

    code = "subscription-conflict"
    title = "The group has other subscriptions"
    default_fix = (
        "give all members of the group the same subscriptions; or set the group's "
        "subscription_mode to per_member; or cut over: send replaces_subscription_version"
    )


class ClientIdInUseError(ConflictError):
    """Another process uses this client id, or has taken it over."""

    code = "client-id-in-use"
    title = "The client id belongs to another process"
    default_fix = "give each process a client id of its own"


class StaleLockError(ConflictError):
    """The token's lock on the queue is no longer held; nothing has been changed."""

    code = "stale-lock"
    title = "The lock is no longer held"
    default_fix = "stop reading the queue; lock it again, and continue at the answer's next_offset"


class AlreadyDeliveredError(ConflictError):
    """The scheduled message has been delivered: it cannot be recalled."""

    code = "already-delivered"
    title = "The message has already been delivered"
    default_fix = "send another message that tells the consumers to ignore it"


class AlreadyDecidedError(ConflictError):
    """The transaction has the opposite decision; ``decision`` holds it, with time and author."""

    code = "already-decided"
    title = "The transaction already has the opposite decision"
    default_fix = "accept the decision; see `decision` for its outcome, time and author"

    def __init__(
        self,
        detail: str,
        *,
        decision: Mapping[str, Any] | None = None,
        **options: Unpack[ProblemOptions],
    ) -> None:
        super().__init__(detail, **options)
        self.decision = dict(decision or {})  # outcome, by, decided_at, reason …

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decision, if the document contains it."""
        decision = document.get("decision")
        return {"decision": decision if isinstance(decision, dict) else None}

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with the decision."""
        document = super().problem(request_id)
        return document | {"decision": self.decision} if self.decision else document


class CheckOutOfTurnError(ConflictError):
    """The number of checks differs from the request's; nothing has been changed."""

    code = "check-out-of-turn"
    title = "The check number is out of turn"
    default_fix = "read the transaction or the log, and continue with its next check number"


class OtherProducerGroupError(ConflictError):
    """Another producer group began the transaction."""

    code = "other-producer-group"
    title = "The transaction belongs to another producer group"
    default_fix = "use the producer group that began it"


class TransactionIdInUseError(ConflictError):
    """Another message has already begun a transaction with this id."""

    code = "transaction-id-in-use"
    title = "The id belongs to another transaction"
    default_fix = "give each message its own message_id, or omit it"


class StaleHandleError(ConflictError):
    """The message was redelivered with a newer handle, or is already acknowledged."""

    code = "stale-handle"
    title = "The handle has been superseded"
    default_fix = "drop the handle; an unacknowledged message is redelivered with a new handle"


class StaleEpochError(ConflictError):
    """The request names an epoch that a later one has replaced, or that never was this log's."""

    code = "stale-epoch"
    title = "A later epoch has begun"
    default_fix = "fetch the route and continue at the current master, with a fresh token or offset"


class LaneGapError(ConflictError):
    """A batch before this one of its lane was not stored, so this one was not either."""

    code = "lane-gap"
    title = "An earlier batch of the lane was not stored"
    default_fix = (
        "wait for every answer that is under way; then send what is not acknowledged again, in "
        "its order, under a later epoch from sequence 0"
    )


class ForeignReplicaError(ConflictError):
    """The replica's log does not descend from the master's; nothing of it has been changed."""

    code = "foreign-replica"
    title = "The replica's log is not a copy of the master's"
    default_fix = (
        "compare the two stores; to replace the replica, start it with an empty store directory"
    )

    def __init__(
        self,
        detail: str,
        *,
        master_begin: int | None = None,
        **options: Unpack[ProblemOptions],
    ) -> None:
        super().__init__(detail, **options)
        # Log offset with which the master's disk begins, if the logs only lack a common part.
        self.master_begin = master_begin

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the beginning of the master's disk, if the document contains it."""
        begin = document.get("master_begin")
        is_offset = isinstance(begin, int) and not isinstance(begin, bool) and begin >= 0
        return {"master_begin": begin if is_offset else None}

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with the beginning of the master's disk."""
        document = super().problem(request_id)
        if self.master_begin is not None:
            document["master_begin"] = self.master_begin
        return document


class PreconditionFailedError(RefusedError):
    """The resource has another version than ``If-Match`` names; nothing has been changed."""

    code = "precondition-failed"
    status = 412
    title = "The resource has another version"
    default_fix = "read the resource again, decide again, and send its current ETag in If-Match"


class ExpiredHandleError(RefusedError):
    """The delivery's lease has expired; the message is redelivered."""

    code = "expired-handle"
    status = 410
    title = "The delivery has expired"
    default_fix = (
        "receive again: the message comes with a new handle; request a longer lease, or extend it"
    )


class MisdirectedError(RefusedError):
    """The topic's order config assigns the sharding key to a queue on another broker."""

    code = "misdirected"
    status = 421
    title = "The sharding key belongs to another broker's queue"
    default_fix = "send it to that broker; GET /v1/topics/NAME/route of a name server has its URL"


class MessageDamagedError(RefusedError):
    """A requested message is damaged; ``errors`` points at its offset."""

    code = "message-damaged"
    status = 410
    title = "The message is damaged"
    default_fix = "skip its offset; or restore its log file from a backup and retry"


class RangeDeletedError(RefusedError):
    """Retention has deleted requested messages; ``errors`` points at each queue's."""

    code = "range-deleted"
    status = 410
    title = "Messages of the range have been deleted"
    default_fix = "make a new plan that starts at the first remaining offsets: missing=skip"
