"""Bodies that were sent as JSON, on their way out: whether the stored bytes are still JSON.

A producer of records may say of any body that it is JSON.

Source: RFC 8259.
"""

from __future__ import annotations

from typing import Final

import msgspec

_VALUE: Final = msgspec.json.Decoder(msgspec.Raw)


def json_text(body: bytes) -> msgspec.Raw | None:
    """Return *body* as it stands in a JSON document; None: it is no JSON."""
    try:
        body.decode()
        return _VALUE.decode(body)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None


def json_line(body: bytes) -> msgspec.Raw | None:
    """Return *body* as it stands in a line of NDJSON; None: it is no JSON.

    Line breaks are white space between JSON's tokens; within its texts they are escaped.
    """
    text = json_text(body)
    if text is None or (b"\n" not in body and b"\r" not in body):
        return text
    return msgspec.Raw(msgspec.json.format(body, indent=-1))
