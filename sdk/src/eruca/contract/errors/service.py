"""Errors of the service: temporary ones (307, 408, 429, 503), and defects (500)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Unpack

from eruca.contract.errors.base import ErucaError, ProblemOptions

_DEFAULT_NETWORK: Final = "default"
_MASTER_URL_COUNT_MAX: Final = 16  # as many networks as a broker may register


class UnavailableError(ErucaError):
    """The same request may succeed later."""

    code = "unavailable"
    status = 503
    title = "The service is temporarily unavailable"
    retryable = True
    default_fix = "wait a moment, then retry"


class OverloadedError(UnavailableError):
    """A limit on work in progress is reached; the detail names it."""

    code = "overloaded"
    status = 429
    title = "Too much work is in progress"
    default_fix = "wait a moment, then retry; or add brokers"


class QuotaExceededError(OverloadedError):
    """The caller has used up a quota that the rules set for it; ``quota`` names it.

    Nothing of the request has been done. The service itself is not overloaded.
    """

    code = "quota-exceeded"
    title = "The caller has used up its quota"
    default_fix = "send less, or wait as Retry-After says; an operator may raise the quota"

    def __init__(
        self,
        detail: str,
        *,
        quota: str = "",
        limit: float = 0,
        **options: Unpack[ProblemOptions],
    ) -> None:
        super().__init__(detail, **options)
        self.quota = quota  # its name in the rules; empty: unknown
        self.limit = limit

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return the quota's name and its limit, if the document contains them."""
        quota, limit = document.get("quota"), document.get("limit")
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        return {
            "quota": quota if isinstance(quota, str) else "",
            "limit": limit if is_number else 0,
        }

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with the quota."""
        document = super().problem(request_id)
        return document | {"quota": self.quota, "limit": self.limit} if self.quota else document


class RequestTimeoutError(UnavailableError):
    """The request did not arrive in time; the service did nothing."""

    code = "request-timeout"
    status = 408
    title = "The request did not arrive in time"
    default_fix = "send the whole request without pauses; the detail names the limit"


class NotReadyError(UnavailableError):
    """The service is starting or shutting down, or cannot do its work."""

    code = "not-ready"
    title = "The service is not ready"
    default_fix = "wait a moment, then retry; or use another instance"


class NameServerSettlingError(UnavailableError):
    """The name server has just started, and some brokers may not have registered yet."""

    code = "name-server-settling"
    title = "The name server has just started; some brokers may not have registered yet"
    default_fix = "wait a moment, then retry; or use another name server"


class NoLiveBrokerError(UnavailableError):
    """No broker has registered its topics, so nobody knows whether a topic exists."""

    code = "no-live-broker"
    title = "No live broker is registered at the name server"
    default_fix = (
        "wait if a broker is restarting; otherwise start a broker with this name server in its "
        "ERUCA_BROKER_NAMESRV_URLS"
    )


class DiskFullError(UnavailableError):
    """The disk is too full to accept writes."""

    code = "disk-full"
    title = "The broker's disk is full"
    default_fix = "free disk space, shorten retention, or send to another broker"


class DatabaseUnavailableError(UnavailableError):
    """The service's PostgreSQL is unreachable; the service resumes when it is back."""

    code = "database-unavailable"
    title = "The database is unreachable"
    default_fix = "start it, or set DATABASE_URL to a running one; the service then resumes"


class ArbiterUnavailableError(UnavailableError):
    """The controller's store is unreachable. A change may have been made: repeat it unchanged."""

    code = "arbiter-unavailable"
    title = "The store of the broker groups is unreachable"
    default_fix = "wait a moment, then repeat the request unchanged; or use another controller"


class BrokerUnreachableError(UnavailableError):
    """The service cannot reach a broker that it needs; the detail names it."""

    code = "broker-unreachable"
    title = "A broker is unreachable"
    default_fix = "wait a moment, then retry; or start the broker"


class SearchIncompleteError(UnavailableError):
    """It was not found, and not every log could be searched."""

    code = "search-incomplete"
    title = "It was not found, and not everything could be searched"
    default_fix = (
        "retry when the brokers that the detail names are reachable; for a broker that was "
        "removed for good: eruca query forget"
    )


class StoreFailedError(UnavailableError):
    """The store has stopped accepting writes after an I/O error; the detail names it."""

    code = "store-failed"
    title = "The broker's store has failed"
    default_fix = "repair the disk, then restart the broker; acknowledged messages are kept"


class NotMasterError(UnavailableError):
    """Only the broker group's master answers this, and another replica is the master.

    ``master_urls`` has the master's URL by network, ``epoch`` its term. The ``Location`` header
    names the same request at the master. Nothing has been done.
    """

    code = "not-master"
    status = 307
    title = "Another replica is the master"
    default_fix = "send the same request to the master: follow Location, or use `master_urls`"

    def __init__(
        self,
        detail: str,
        *,
        epoch: int | None = None,
        master_urls: Mapping[str, str] | None = None,
        **options: Unpack[ProblemOptions],
    ) -> None:
        super().__init__(detail, **options)
        self.epoch = epoch  # of the master; None: unknown
        self.master_urls = dict(master_urls or {})  # by network; empty: unknown

    @classmethod
    def extension_members(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return epoch and URLs, if the document contains them."""
        epoch, urls = document.get("epoch"), document.get("master_urls")
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 1:
            epoch = None
        if not isinstance(urls, dict) or len(urls) > _MASTER_URL_COUNT_MAX:
            urls = {}
        texts = {network: url for network, url in urls.items() if url and isinstance(url, str)}
        return {"epoch": epoch, "master_urls": texts}

    def problem(self, request_id: str | None = None) -> dict[str, Any]:
        """Return the problem document, with epoch and URLs."""
        document = super().problem(request_id)
        if self.epoch is not None:
            document["epoch"] = self.epoch
        if self.master_urls:
            document["master_urls"] = self.master_urls
        return document

    @property
    def redirect_url(self) -> str | None:
        """The master's URL in the default network, or in the only one."""
        urls = self.master_urls
        return urls.get(_DEFAULT_NETWORK) or next(iter(urls.values()), None)


class NotMasterForSureError(UnavailableError):
    """The broker group has no master that is certain of its term; nothing has been done."""

    code = "not-master-for-sure"
    title = "No replica is certain to be the master"
    default_fix = "wait a moment, then retry: the replicas elect a master within seconds"


class NotEnoughReplicasError(UnavailableError):
    """Fewer replicas are in sync than the request or the group demands; nothing is stored."""

    code = "not-enough-replicas"
    title = "Too few replicas are in sync"
    default_fix = "wait until a replica has caught up, then retry; or demand fewer copies"


class OutcomeUnknownError(UnavailableError):
    """The broker ceased to be master before the write was confirmed; it may be stored or not.

    A retry may store it a second time, except under the same ``Idempotency-Key``.
    """

    code = "outcome-unknown"
    title = "It is unknown whether the write is stored"
    default_fix = "retry under the same Idempotency-Key, or look whether the write is stored"


class InternalError(ErucaError):
    """A defect of the service, logged under the request id."""

    code = "internal"
    status = 500
    title = "The service has a defect"
    default_fix = "report it with the request_id; the service's log has the details under it"
