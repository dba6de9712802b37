"""Rows of input become messages, and a bad one is named by its line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.cli.sending.rows import BadRow, Row, RowFields, RowFormat, format_of, rows_of
from eruca.contract.limits import BODY_SIZE_MAX

FLIGHTS_CSV = b"carrier,flight,tail\r\nUA,1545,N14228\r\nAA,1141,\r\n"
BY_FIELD = RowFields(tag_field="carrier", key_fields=("flight",), sharding_key_field="tail")


def rows(text: bytes, row_format: str, fields: RowFields | None = None) -> list[Row | BadRow]:
    return list(
        rows_of(text.splitlines(keepends=True), RowFormat(row_format), fields or RowFields())
    )


def test_each_line_is_a_body_and_blank_lines_are_none() -> None:
    found = rows(b"first\n\n  \nfour\xff\r\nlast", "lines", RowFields(tag="a", keys=("k",)))

    assert found == [
        Row(1, b"first", "a", ("k",), None, {}),
        Row(4, b"four\xff", "a", ("k",), None, {}),
        Row(5, b"last", "a", ("k",), None, {}),
    ]


def test_a_csv_row_becomes_a_json_object_and_its_columns_tag_and_keys() -> None:
    first, second = rows(FLIGHTS_CSV, "csv", BY_FIELD)

    assert first == Row(
        2,
        b'{"carrier":"UA","flight":"1545","tail":"N14228"}',
        "UA",
        ("1545",),
        "N14228",
        {},
    )
    assert isinstance(second, Row)
    assert second.sharding_key is None  # an empty field is no sharding key


def test_a_json_line_is_its_own_body_and_its_fields_tag_and_keys() -> None:
    line = b'{"carrier": "UA", "flight": 1545, "tail": null}'

    [row] = rows(line, "jsonl", BY_FIELD)

    assert row == Row(1, line, "UA", ("1545",), None, {})


def test_one_field_may_be_the_body_and_others_properties() -> None:
    fields = RowFields(body_field="tail", property_fields=("flight",), properties={"from": "csv"})

    first, second = rows(FLIGHTS_CSV, "csv", fields)

    assert first == Row(2, b"N14228", None, (), None, {"from": "csv", "flight": "1545"})
    assert second == BadRow(3, "the body is empty")


def test_a_byte_order_mark_is_no_part_of_the_first_field() -> None:
    [row] = rows(b"\xef\xbb\xbfa,b\n1,2\n", "csv", RowFields(key_fields=("a",)))
    [line] = rows(b"\xef\xbb\xbf[1]\n", "jsonl")

    assert isinstance(row, Row)
    assert row.keys == ("1",)
    assert isinstance(line, Row)
    assert line.body == b"[1]"


def test_a_quoted_csv_field_may_span_lines_and_is_named_by_its_last() -> None:
    first, second = rows(b'a,b\n1,"x\ny"\n2,3,4\n', "csv")

    assert isinstance(first, Row)
    assert json.loads(first.body) == {"a": "1", "b": "x\ny"}
    assert second == BadRow(4, "expected 2 fields as in the header, found 3")


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{", "not JSON: Expecting property name"),
        (b"NaN", "not JSON: NaN"),
        (b"9" * 5_000, "not JSON: Exceeds the limit"),
        (b"[" * 100_000, "not JSON: maximum recursion"),
        (b"\xff\xfe", "not UTF-8 (byte 1)"),
        (b"[1]", "not a JSON object"),
        (b'{"flight": 1}', "no field 'carrier'; the row's fields: flight"),
        (b'{"carrier": "UA", "flight": "a b", "tail": "x"}', "a key must not contain white space"),
        (b'{"carrier": "\\ud800", "flight": 1, "tail": "x"}', "half of a surrogate pair"),
    ],
)
def test_a_bad_json_line_is_named_and_reading_goes_on(line: bytes, fault: str) -> None:
    good = b'{"carrier": "UA", "flight": 1, "tail": "x"}\n'

    first, bad, last = rows(good + line + b"\n" + good, "jsonl", BY_FIELD)

    assert isinstance(bad, BadRow)
    assert bad.line == 2
    assert fault in bad.fault
    assert isinstance(first, Row)
    assert isinstance(last, Row)


def test_a_bad_csv_row_is_named_and_reading_goes_on() -> None:
    first, second, third = rows(b'a,b\n1,\xff\n"x"y,2\n3,4\n', "csv")

    assert first == BadRow(2, "not UTF-8")
    assert isinstance(second, BadRow)
    assert second.fault.startswith("not CSV")
    assert isinstance(third, Row)


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        (b"a,a", "contains a field twice"),
        (b"\xff,b", "not UTF-8"),
        (b'"a"x,b', "not CSV: ',' expected after '\"'"),
    ],
)
def test_behind_a_csv_header_that_cannot_be_read_no_row_is_taken_for_one(
    header: bytes, fault: str
) -> None:
    found = rows(header + b"\n1,2\n3,4\n", "csv")

    assert found == [BadRow(1, f"the header: {fault}", is_last=True)]


def test_a_body_over_the_limit_is_a_bad_row() -> None:
    [row] = rows(b"x" * (BODY_SIZE_MAX + 1), "lines")

    assert isinstance(row, BadRow)
    assert str(BODY_SIZE_MAX) in row.fault


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.csv", "csv"),
        ("A.CSV", "csv"),
        ("a.jsonl", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.txt", "lines"),
        ("-", "lines"),
        ("csv", "lines"),
    ],
)
def test_a_files_name_tells_its_format(path: str, expected: str) -> None:
    assert format_of(path) == expected


@given(st.binary(max_size=200), st.sampled_from(RowFormat))
def test_no_bytes_are_more_than_bad_rows(data: bytes, row_format: RowFormat) -> None:
    found = rows(data, row_format, BY_FIELD if row_format is not RowFormat.LINES else None)

    assert [row.line for row in found] == sorted(row.line for row in found)
