"""Convert rows of input to messages: lines of text, JSON lines, or CSV with a header.

========  ==============================================  =======================================
format    a row                                           its body
========  ==============================================  =======================================
lines     one line; blank ones are skipped                the line
jsonl     one JSON value per line; blank ones skipped     the line, or the text of ``body_field``
csv       a record as wide as the header                  a JSON object of strings, or that field
========  ==============================================  =======================================

A row that cannot become a message becomes a :class:`BadRow` with its line number, and reading
continues. The caller decides whether to stop. Only an unreadable header ends the rows, because rows
cannot be read without it. The stream is read only as far as the caller iterates.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from eruca.contract.limits import BODY_SIZE_MAX

_FORMATS_BY_SUFFIX: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BOM: Final = b"\xef\xbb\xbf"


class RowFormat(StrEnum):
    """The format of a file of rows."""

    LINES = "lines"
    JSONL = "jsonl"
    CSV = "csv"


@dataclass(frozen=True, slots=True)
class RowFields:
    """Map rows to messages: constant parts, and parts from a row's fields."""

    tag: str | None = None
    keys: tuple[str, ...] = ()
    sharding_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    body_field: str | None = None
    tag_field: str | None = None
    key_fields: tuple[str, ...] = ()
    sharding_key_field: str | None = None
    property_fields: tuple[str, ...] = ()

    @property
    def are_used(self) -> bool:
        """Tell whether a row's fields are used."""
        names = (self.body_field, self.tag_field, self.sharding_key_field)
        return any(names) or bool(self.key_fields or self.property_fields)


@dataclass(frozen=True, slots=True)
class Row:
    """A message to be sent."""

    line: int  # line number of its end in the input, from 1
    body: bytes
    tag: str | None
    keys: tuple[str, ...]
    sharding_key: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot become a message, and the reason."""

    line: int
    fault: str
    is_last: bool = False  # nothing after it can be read


def format_of(path: str) -> RowFormat:
    """Return the format for a file's extension; lines if it is unknown."""
    suffix = "." + path.rpartition(".")[2].lower() if "." in path else ""
    return RowFormat(_FORMATS_BY_SUFFIX.get(suffix, "lines"))


def rows_of(
    lines: Iterable[bytes], row_format: RowFormat, fields: RowFields
) -> Iterator[Row | BadRow]:
    """Yield a row, or its fault, for each row in *lines*.

    Args:
        lines: Lines as a binary file yields them, line ends included.
        row_format: Their format.
        fields: The sources of a message's parts.
    """
    if row_format is RowFormat.CSV:
        return _csv_rows(lines, fields)
    return _line_rows(lines, fields, is_json=row_format is RowFormat.JSONL)


def _line_rows(
    lines: Iterable[bytes], fields: RowFields, *, is_json: bool
) -> Iterator[Row | BadRow]:
    for number, raw in enumerate(lines, 1):
        line = (raw.removeprefix(_BOM) if number == 1 else raw).rstrip(b"\r\n")
        if not line.strip():
            continue
        try:
            values = _json_fields(line, fields) if is_json else {}
            yield _row(number, line, values, fields)
        except _RowFaultError as fault:
            yield BadRow(number, str(fault))


def _json_fields(line: bytes, fields: RowFields) -> Mapping[str, object]:
    try:
        value = json.loads(line.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise _RowFaultError(f"not UTF-8 (byte {error.start + 1})") from error
    except json.JSONDecodeError as error:
        raise _RowFaultError(f"not JSON: {error.msg} (column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        raise _RowFaultError(f"not JSON: {error}") from error
    if not fields.are_used:
        return {}
    if not isinstance(value, dict):
        raise _RowFaultError("not a JSON object, so it has no fields")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is valid in Python, not in JSON")


def _csv_rows(lines: Iterable[bytes], fields: RowFields) -> Iterator[Row | BadRow]:
    decoded = _DecodedLines(lines)
    reader = csv.reader(decoded, strict=True)
    header: list[str] | None = None
    while True:
        fault = ""
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            record, fault = [], f"not CSV: {error}"
        if decoded.take_fault():
            fault = fault or "not UTF-8"
        if header is None and len(set(record)) < len(record):
            fault = fault or "contains a field twice"
        if fault and header is None:
            yield BadRow(reader.line_num, f"the header: {fault}", is_last=True)
            return
        if fault:
            yield BadRow(reader.line_num, fault)
            continue
        if not record:
            continue
        if header is None:
            header = record
            continue
        if len(record) != len(header):
            yield BadRow(
                reader.line_num,
                f"expected {len(header)} fields as in the header, found {len(record)}",
            )
            continue
        values = dict(zip(header, record, strict=True))
        body = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
        try:
            yield _row(reader.line_num, body, values, fields)
        except _RowFaultError as error:
            yield BadRow(reader.line_num, str(error))


class _DecodedLines:
    """Lines as text for the CSV reader; records whether some bytes were not UTF-8."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self._is_first = True
        self._has_fault = False

    def __iter__(self) -> _DecodedLines:
        return self

    def __next__(self) -> str:
        raw = next(self._lines)
        if self._is_first:
            raw = raw.removeprefix(_BOM)
            self._is_first = False
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self._has_fault = True
            return raw.decode(errors="replace")

    def take_fault(self) -> bool:
        """Tell whether a line since the last call was not UTF-8."""
        has_fault, self._has_fault = self._has_fault, False
        return has_fault


class _RowFaultError(ValueError):
    """A row cannot become a message; the text says why."""


def _row(line: int, whole: bytes, values: Mapping[str, object], fields: RowFields) -> Row:
    body = whole
    if fields.body_field is not None:
        body = _text(values, fields.body_field).encode()
    if len(body) > BODY_SIZE_MAX:
        raise _RowFaultError(f"the body has {len(body)} bytes; the limit is {BODY_SIZE_MAX}")
    if not body:
        raise _RowFaultError("the body is empty")
    tag, sharding_key = fields.tag, fields.sharding_key
    if fields.tag_field is not None:
        tag = _text(values, fields.tag_field) or tag
    if fields.sharding_key_field is not None:
        sharding_key = _text(values, fields.sharding_key_field) or sharding_key
    keys = fields.keys + tuple(
        key for name in fields.key_fields if (key := _key(values, name)) is not None
    )
    properties = dict(fields.properties)
    for name in fields.property_fields:
        properties[name] = _text(values, name)
    return Row(line, body, tag, keys, sharding_key, properties)


def _key(values: Mapping[str, object], name: str) -> str | None:
    key = _text(values, name)
    if len(key.split()) > 1 or key != key.strip():
        raise _RowFaultError(f"field {name!r} is {key!r}: a key must not contain white space")
    return key or None


def _text(values: Mapping[str, object], name: str) -> str:
    """Return a field as text: strings unchanged, null as the empty text, all else as JSON."""
    if name not in values:
        near = ", ".join(list(values)[:20])
        raise _RowFaultError(f"no field {name!r}; the row's fields: {near or 'none'}")
    value = values[name]
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _RowFaultError(f"field {name!r} contains half of a surrogate pair") from error
    return text
