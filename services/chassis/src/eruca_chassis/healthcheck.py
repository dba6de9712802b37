"""``python -m eruca_chassis.healthcheck PREFIX PORT``: tell a container engine how a service is.

It asks ``/readyz`` of the service in the same container, where the service's own variables say
that it listens: ``PREFIX_HOST``, ``PREFIX_PORT`` (default *PORT*) and ``PREFIX_TLS_CERT_FILE``.
Only the standard library is loaded, because an engine runs it every few seconds.

Over TLS it trusts the service's own certificate and nothing else, whatever names that has. If the
service requires certificates of its clients, it shows that of ``ERUCA_TLS_CERT_FILE``.

Exit codes: 0: ready; 1: not ready, stdout says why; 2: an argument or a variable is invalid.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
from collections.abc import Mapping, Sequence
from typing import Final

ANSWER_SECONDS: Final = 4.0  # below the time-out of the image's HEALTHCHECK
_HERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where it listens: how it is reached


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Ask the service; print the answer, and return the exit code."""
    try:
        prefix, default_port = arguments
        connection = _connection(prefix, default_port, environment)
    except (ValueError, OSError) as error:
        sys.stdout.write(f"usage: python -m eruca_chassis.healthcheck PREFIX PORT: {error}\n")
        return 2
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        sys.stdout.write(f"no answer from {connection.host}:{connection.port}: {error}\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(f"{answer.status} {_reason(body)}\n")
    return 0 if answer.status == http.client.OK else 1


def _connection(
    prefix: str, default_port: str, environment: Mapping[str, str]
) -> http.client.HTTPConnection:
    if environment.get(f"{prefix}_LISTEN"):
        raise ValueError(f"{prefix}_LISTEN is set; expected a service that listens on an address")
    bound = environment.get(f"{prefix}_HOST", "127.0.0.1").strip("[]")
    host = _HERE.get(bound, bound)
    port = int(environment.get(f"{prefix}_PORT", default_port))
    certificate = environment.get(f"{prefix}_TLS_CERT_FILE")
    if not certificate:
        return http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False  # its names are those for clients
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it need not be an authority's
    if own := environment.get("ERUCA_TLS_CERT_FILE"):
        context.load_cert_chain(own, environment.get("ERUCA_TLS_KEY_FILE") or None)
    return http.client.HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=context)


def _reason(body: bytes) -> str:
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("detail") or "ready") if isinstance(answer, dict) else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
