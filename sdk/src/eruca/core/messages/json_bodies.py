"""Bodies that were sent as JSON: check on the way out whether the stored bytes are JSON.

A producer of records may mark any body as JSON.

Source: RFC 8259.
"""

from __future__ import annotations

from typing import Final

import msgspec

_VALUE: Final = msgspec.json.Decoder(msgspec.Raw)


def json_text(body: bytes) -> msgspec.Raw | None:
    """Return *body* for embedding in a JSON document; None if it is not JSON."""
    try:
        body.decode()
        return _VALUE.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


def json_line(body: bytes) -> msgspec.Raw | None:
    """Return *body* for a line of NDJSON; None if it is not JSON.

    Line breaks are white space between JSON's tokens; in its texts they are escaped.
    """
    text = json_text(body)
    if text is None or (b"\n" not in body and b"\r" not in body):
        return text
    return msgspec.Raw(msgspec.json.format(body, indent=-1))
