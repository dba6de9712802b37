"""Errors of the formats' libraries and their storage: whether a person has to look. Pure.

The libraries have no error class in common, and their object stores report most failures as text.
So the text decides. A refusal, such as of wrong credentials, is the same on the next run. All else
is taken for a failure of the network, the storage or the catalogue, which may be over by then.
"""

from __future__ import annotations

import re
from typing import Final

from eruca.exporting.errors import UnavailableError
from eruca.tables.batches import TableError

_LENGTH_MAX: Final = 600  # of a text; a proxy's answer may be a page
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
# S3's answers; all else in them is the request's identity.
_XML: Final = re.compile(
    r"(?:<\?xml.*?\?> *)?<Error>.*?<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?.*?</Error>"
)

_CREDENTIALS: Final = (
    "check the credentials and their rights: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or"
    " ~/.aws/credentials for S3; ~/.pyiceberg.yaml or PYICEBERG_CATALOG__… for a catalogue"
)
_FILE_RIGHTS: Final = "allow this user to read and write there"
_BUCKET: Final = (
    "create the bucket, or correct its name, or the store's AWS_ENDPOINT_URL and AWS_REGION"
)
_REGION: Final = "set AWS_REGION to the bucket's region"
_CONDITIONAL: Final = (
    "remove the option conditional_put: of two exporters, the storage has to refuse one"
)
_FAULTS: Final = (
    (re.compile(r"NoSuchBucket|NO_SUCH_BUCKET|Bucket '[^']*' not found"), _BUCKET),
    (re.compile("conditional put is disabled"), _CONDITIONAL),
    (re.compile(r"PermanentRedirect|without LOCATION|AuthorizationHeaderMalformed"), _REGION),
    (
        re.compile(
            r"AccessDenied|ACCESS_DENIED|InvalidAccessKeyId|INVALID_ACCESS_KEY_ID"
            r"|SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH|INVALID_SIGNATURE"
            r"|InvalidClientTokenId|INVALID_CLIENT_TOKEN_ID|InvalidToken|ExpiredToken"
            r"|RequestTimeTooSkewed|REQUEST_TIME_TOO_SKEWED|no credentials found"
            r"|(?:status|code|HTTP)\D{0,12}(?:401|403)\b"
            r"|\b(?:401|403) (?:Unauthorized|Forbidden|Client Error)"
            r"|UnauthorizedError|ForbiddenError|OAuthError|access denied: (?!file:)\w+://"
        ),
        _CREDENTIALS,
    ),
    (re.compile(r"PermissionError|Permission denied"), _FILE_RIGHTS),
)
# The text of an outage has a URL, in which there may be any word or number, and the time it took.
_URL: Final = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s,;)\]}'\"]+", re.IGNORECASE)
_TRANSIENT: Final = re.compile(
    r"ConnectionError|ConnectionRefused|Connection refused|error sending request"
    r"|NETWORK_CONNECTION|Timeout|timed out|SlowDown|SLOW_DOWN"
    r"|\b(?:429|500|502|503|504)\b|ServiceUnavailable|ServerError|TooManyRequests|CommitFailed"
)


def text_of(error: Exception) -> str:
    """Return an error as one line without colours, of bounded length."""
    text = " ".join(_COLOUR.sub("", f"{type(error).__name__}: {error}").split())
    text = _XML.sub(lambda found: ": ".join(filter(None, found.groups())), text)
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}…"


def failure_of(name: str, error: Exception) -> TableError | UnavailableError:
    """Return the error to raise for a failure while a table is read or written.

    Args:
        name: The table's.
        error: What its library raised.
    """
    text = text_of(error)
    return _fault(name, text) or UnavailableError(
        f"{name} failed: {text}; nothing is lost: run it again"
    )


def opening_failure_of(target: str, error: Exception) -> TableError | UnavailableError:
    """Return the error to raise if a table cannot be opened: most often, its options are wrong."""
    text = text_of(error)
    if fault := _fault(target, text):
        return fault
    if _TRANSIENT.search(_searched(text)):
        return UnavailableError(
            f"{target} cannot be opened now: {text}; run it again, or check the URL of its"
            " catalogue or storage"
        )
    return TableError(
        f"{target} cannot be opened: {text}; check the place, and the options of its catalogue or"
        " storage (--table-option NAME=VALUE)"
    )


def _fault(name: str, text: str) -> TableError | None:
    searched = _searched(text)
    for pattern, fix in _FAULTS:
        if pattern.search(searched):
            return TableError(f"{name} is refused: {text}; {fix}")
    return None


def _searched(text: str) -> str:
    """Return a text without the addresses in it; only their schemes remain."""
    return _URL.sub(r"\1", text)
