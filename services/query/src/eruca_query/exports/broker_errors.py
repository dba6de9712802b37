"""Convert a broker's failures to errors of this service that name the broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eruca.contract.errors import (
    BrokerUnreachableError,
    ClientError,
    ErucaError,
    InternalError,
    NotMasterError,
    NotMasterForSureError,
)

RETRY_AFTER_SECONDS: Final = 1.0


@contextmanager
def naming(broker_name: str) -> Iterator[None]:
    """Raise 503 if a broker does not answer, or is not the master; pass its own refusals on."""
    try:
        yield
    except (ClientError, InternalError) as error:
        raise BrokerUnreachableError(
            f"broker {broker_name} does not answer: {error.detail}",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        ) from error
    except NotMasterError as error:  # its redirect is for this service, not for its clients
        raise NotMasterForSureError(
            f"broker {broker_name}: {error.detail}", retry_after_seconds=RETRY_AFTER_SECONDS
        ) from error
    except ErucaError as error:
        raise type(error)(
            f"broker {broker_name}: {error.detail}",
            fix=error.fix,
            errors=error.errors,
            retry_after_seconds=error.retry_after_seconds,
        ) from error
