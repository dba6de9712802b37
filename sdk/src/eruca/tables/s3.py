"""Settings of S3 from its usual environment variables, where a library does not take them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from eruca.tables.batches import TableError

S3_SCHEMES: Final = ("s3", "s3a")
AWS_REGION: Final = "client.region"
S3_ENDPOINT: Final = "s3.endpoint"
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "ENDPOINT_URL", "ENDPOINT")


def iceberg_defaults() -> dict[str, str]:
    """Return pyiceberg's properties for S3 that the environment names.

    pyarrow reads credentials from the environment and ``~/.aws``, but no endpoint. Without a
    region, pyiceberg asks AWS for the bucket's, wherever the bucket is.

    Raises:
        TableError: The endpoint is no URL, or has credentials.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        _check_url("AWS_ENDPOINT_URL", endpoint)
    found = {
        AWS_REGION: os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        S3_ENDPOINT: endpoint,
    }
    return {name: text for name, text in found.items() if text}


def delta_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return delta-rs's options for S3, completed.

    delta-rs reads ``~/.aws/credentials`` only for AWS itself, unless it is told to for a store at
    an endpoint of its own. An endpoint beginning with ``http://`` is meant as it is written.

    Raises:
        TableError: An endpoint is no URL, with which delta-rs would panic, or has credentials.
    """
    options = dict(given)
    known = {**os.environ, **{name.upper(): text for name, text in given.items()}}
    endpoints = {name: known[name] for name in _ENDPOINTS if known.get(name)}
    for name, text in endpoints.items():
        _check_url(name, text)
    if "AWS_FORCE_CREDENTIAL_LOAD" not in known:
        options["AWS_FORCE_CREDENTIAL_LOAD"] = "true"
    is_plain = any(text.startswith("http://") for text in endpoints.values())
    if is_plain and not known.keys() & {"AWS_ALLOW_HTTP", "ALLOW_HTTP"}:
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def _check_url(name: str, text: str) -> None:
    """Refuse what is no URL, or has credentials; neither is shown, because it may have a secret."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_url = False
    if not (is_url and text.isascii() and text.isprintable() and not set(" @").intersection(text)):
        raise TableError(
            f"{name}: expected the http or https URL of a store without credentials, such as"
            " https://s3.example:9000; found another text (not shown, because it may contain a"
            " secret); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for credentials"
        )
