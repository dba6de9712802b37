"""Errors of the service: temporary ones (408, 429, 503), and defects (500)."""

from __future__ import annotations

from eruca.contract.errors.base import ErucaError


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


class InternalError(ErucaError):
    """A defect of the service, logged under the request id."""

    code = "internal"
    status = 500
    title = "The service has a defect"
    default_fix = "report it with the request_id; the service's log has the details under it"
