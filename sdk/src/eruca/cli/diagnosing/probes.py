"""One plain HTTP request of the doctor, and its result."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from eruca.aio.http.transport import connection_fault
from eruca.contract.errors import PROBLEM_MEDIA_TYPE, ErucaError

TIMEOUT_SECONDS: Final = 5.0

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Probe:
    """The result of a request: a valid answer or a fault."""

    seconds: float
    answer: httpx.Response | None  # of whatever status
    fault: str | None = None  # why there is no valid answer
    fix: str | None = None

    def model(self, kind: type[_Model]) -> _Model | None:
        """Return the answer as *kind*; None if it is not one."""
        if self.fault is not None or self.answer is None:
            return None
        try:
            return kind.model_validate_json(self.answer.content)
        except ValidationError:
            return None

    def member(self, *names: str) -> object:
        """Return the member of a JSON answer below *names*; None if there is none."""
        if self.fault is not None or self.answer is None:
            return None
        try:
            found: object = self.answer.json()
        except ValueError:
            return None
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        return found

    @property
    def code(self) -> str | None:
        """Return the error code in Eruca's form; None if there is none."""
        if self.answer is None or not _is_problem(self.answer):
            return None
        code: str | None = self.answer.json().get("code")
        return code

    def certificate_expires_at(self) -> datetime | None:
        """Return when the server's certificate expires; None without TLS."""
        if self.answer is None:
            return None
        tls = self.answer.extensions["network_stream"].get_extra_info("ssl_object")
        if tls is None or not (certificate := tls.getpeercert()):
            return None
        seconds = ssl.cert_time_to_seconds(certificate["notAfter"])
        return datetime.fromtimestamp(seconds, UTC)

    def date(self) -> datetime | None:
        """Return the answer's Date header, to the second; None if there is none."""
        text = self.answer.headers.get("date") if self.answer is not None else None
        try:
            return parsedate_to_datetime(text).astimezone(UTC) if text else None
        except ValueError:
            return None


async def ask(
    client: httpx.AsyncClient,
    url: str,
    *,
    method: str = "GET",
    json: Mapping[str, object] | None = None,
) -> Probe:
    """Return the result of a request to *url*; never raises."""
    started_at = time.perf_counter()
    answer, fault, fix = None, None, None
    try:
        answer = await client.request(method, url, json=json)
    except httpx.TimeoutException:
        fault = f"no answer within {TIMEOUT_SECONDS:g} s"
        fix = "check for a firewall, or a service that hangs"
    except httpx.ConnectError as error:
        fault = f"cannot connect: {connection_fault(error, url)}"
        fix = "start the service, or correct the address"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        fault = str(error) or type(error).__name__
        fix = "check that an Eruca service listens there"
    except ErucaError as error:  # of its credentials
        fault, fix = error.detail, error.fix
    if answer is not None and not answer.is_success:
        fault, fix = _refusal(answer)
    return Probe(time.perf_counter() - started_at, answer, fault, fix)


def _is_problem(answer: httpx.Response) -> bool:
    media_type: str = answer.headers.get("content-type", "")
    return media_type.startswith(PROBLEM_MEDIA_TYPE)


def _refusal(answer: httpx.Response) -> tuple[str, str | None]:
    if _is_problem(answer):
        document = answer.json()
        return f"status {answer.status_code}: {document['detail']}", document.get("fix")
    return (
        f"status {answer.status_code}, not in Eruca's form",
        "check what listens there; a proxy may answer in the service's place",
    )
