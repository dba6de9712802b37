"""The service cannot now, which passes (408, 429, 503), or it has a defect (500)."""

from __future__ import annotations

from eruca.contract.errors.base import ErucaError


class UnavailableError(ErucaError):
    """The same request may succeed later."""

    code = "unavailable"
    status = 503
    title = "The service cannot do this now"
    retryable = True
    default_fix = "wait a moment, then repeat"


class OverloadedError(UnavailableError):
    """A limit on work in progress is reached; the detail names it."""

    code = "overloaded"
    status = 429
    title = "Too much work is in progress"
    default_fix = "wait a moment, then repeat; or add brokers"


class RequestTimeoutError(UnavailableError):
    """The request did not arrive in time; nothing of it was carried out."""

    code = "request-timeout"
    status = 408
    title = "The request did not arrive in time"
    default_fix = "send the request at once and without pauses; the detail names the limit"


class NotReadyError(UnavailableError):
    """The service is starting or stopping, or cannot do its work."""

    code = "not-ready"
    title = "The service is not ready"
    default_fix = "wait a moment, then repeat; or use another instance"


class NameServerSettlingError(UnavailableError):
    """The name server has just started, and not every broker has had the time to register."""

    code = "name-server-settling"
    title = "The name server has just started and may not know everything yet"
    default_fix = "wait a moment, then repeat; or ask another name server"


class DiskFullError(UnavailableError):
    """The disk is too full to accept writes."""

    code = "disk-full"
    title = "The broker's disk is full"
    default_fix = "free disk space, shorten retention, or send to another broker"


class DatabaseUnavailableError(UnavailableError):
    """The service's PostgreSQL is not there; it goes on when that is back."""

    code = "database-unavailable"
    title = "The database does not answer"
    default_fix = "start it, or set DATABASE_URL to one that runs; work goes on when it is back"


class BrokerUnreachableError(UnavailableError):
    """A broker that this needs does not answer the service; the detail names it."""

    code = "broker-unreachable"
    title = "A broker does not answer"
    default_fix = "wait a moment, then repeat; or start the broker"


class SearchIncompleteError(UnavailableError):
    """It was not found, and not every log could be searched."""

    code = "search-incomplete"
    title = "It was not found, and not everything could be searched"
    default_fix = (
        "repeat it once the brokers that the detail names answer; one that was taken away for "
        "good: eruca query forget"
    )


class StoreFailedError(UnavailableError):
    """The store has stopped accepting writes after an I/O error; the detail says which."""

    code = "store-failed"
    title = "The broker's store has failed"
    default_fix = "mend the disk, then restart the broker; what was acknowledged is kept"


class InternalError(ErucaError):
    """A defect of the service, logged under the request id."""

    code = "internal"
    status = 500
    title = "The service has a defect"
    default_fix = "report it with the request_id, under which the service's log has the details"
