"""NDJSON has the rows that Arrow has."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.exports import EXPORT_COLUMNS
from eruca.contract.records import Record, encode_record
from eruca.rows.message_batches import Rows
from eruca_query.exports.rows.blocks import Block
from eruca_query.exports.rows.ndjson import ndjson_lines
from eruca_query.exports.rows.pulled_rows import rows_of
from support.records import RECORDS, example_record

ALL = [column.name for column in EXPORT_COLUMNS]


NO_JSON = np.zeros(1, np.bool_)


def rows_in(records: list[Record]) -> Rows:
    encoded = [
        encode_record(replace(record, queue_offset=offset)) for offset, record in enumerate(records)
    ]
    sizes = np.array([len(raw) for raw in encoded], np.int64)
    block = Block("broker-a", 0, 0, sizes, memoryview(b"".join(encoded)))
    return rows_of(block, "orders", ALL)


def batch_of(record: Record) -> pa.RecordBatch:
    return rows_in([record]).batch()


def as_arrow_has_it(row: dict[str, Any]) -> dict[str, Any]:
    body = row["body"]
    return row | {
        "body": body["text"].encode() if "text" in body else b64decode(body["base64"]),
        "stored_at": datetime.fromisoformat(row["stored_at"]),
        "born_at": row["born_at"] and datetime.fromisoformat(row["born_at"]),
        "properties": list(row["properties"].items()),
    }


@given(st.lists(RECORDS, min_size=1, max_size=8))
def test_each_line_tells_what_its_row_does(records: list[Record]) -> None:
    made = rows_in(records)
    batch = made.batch()

    lines = ndjson_lines(batch, made.are_json()).decode().removesuffix("\n").split("\n")

    assert [as_arrow_has_it(json.loads(line)) for line in lines] == batch.to_pylist()


def test_a_line_looks_as_documented() -> None:
    line = ndjson_lines(
        batch_of(example_record(body=b"text")).select(["stored_at", "body"]), NO_JSON
    )

    assert line == b'{"stored_at":"2023-11-14T22:13:20.100Z","body":{"text":"text"}}\n'


def test_a_body_that_is_no_text_is_told_in_base64() -> None:
    line = ndjson_lines(batch_of(example_record(body=b"\xff\0")).select(["body"]), NO_JSON)

    assert line == b'{"body":{"base64":"/wA="}}\n'


def test_a_far_time_is_exact_though_another_is_none() -> None:
    far, none = 171_363_453_501_045, -62_135_596_800_001  # in the year 7400; before the year 1
    records = [replace(example_record(), born_timestamp=born) for born in (none, far)]

    lines = ndjson_lines(rows_in(records).batch().select(["born_at"]), np.zeros(2, np.bool_))

    assert lines == b'{"born_at":null}\n{"born_at":"7400-04-17T07:18:21.045Z"}\n'


def sent_as_json(body: bytes) -> Record:
    record = example_record(body=body)
    return replace(record, properties=f"{record.properties}ERUCA_BODY_FORMAT\x01json\x02")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"price": 12.50, "big": 12345678901234567890123}', None),
        (b'{"a":\r\n [1,\n2]}', b'{"a":[1,2]}'),
        (b"null", None),
        (b'"caf\xc3\xa9"', None),
    ],
)
def test_a_body_that_was_sent_as_json_is_that_value_on_one_line(
    body: bytes, shown: bytes | None
) -> None:
    made = rows_in([sent_as_json(body), example_record(body=body)])

    lines = ndjson_lines(made.batch().select(["body"]), made.are_json())

    first, second, end = lines.split(b"\n")
    assert (first, end) == (b'{"body":{"json":' + (shown or body) + b"}}", b"")
    assert json.loads(second) == {"body": {"text": body.decode()}}


@pytest.mark.parametrize(("body", "shown"), [(b"{", {"text": "{"}), (b"\xff", {"base64": "/w=="})])
def test_a_body_that_is_said_to_be_json_and_is_none_is_shown_as_it_is(
    body: bytes, shown: dict[str, str]
) -> None:
    made = rows_in([sent_as_json(body)])

    assert json.loads(ndjson_lines(made.batch(), made.are_json()))["body"] == shown
