"""A message's body in its views."""

from __future__ import annotations

import pytest

from eruca_console.core.bodies import SHOWN_BYTES_MAX, body_view


def test_json_is_laid_out_and_keeps_its_digits_and_order() -> None:
    shown = body_view(b'{"b":1.10,"a":[12345678901234567890,true]}')

    assert (shown.view, shown.possible) == ("json", ("json", "text", "hex"))
    assert shown.text == ('{\n  "b": 1.10,\n  "a": [\n    12345678901234567890,\n    true\n  ]\n}')


@pytest.mark.parametrize("octets", [b"order 17", b"17", b'{"a":', "订单".encode(), b""])
def test_other_text_is_text(octets: bytes) -> None:
    shown = body_view(octets)

    assert (shown.view, shown.possible) == ("text", ("text", "hex"))
    assert shown.text == octets.decode()


@pytest.mark.parametrize("octets", [b"\xff\xfe", b"a\x00b", b"\x1b[31m"])
def test_other_bytes_are_hexadecimal(octets: bytes) -> None:
    shown = body_view(octets, "text")

    assert (shown.view, shown.possible) == ("hex", ("hex",))


def test_hexadecimal_lines_have_their_offset_and_their_characters() -> None:
    shown = body_view(b"0123456789abcdef\x00<", "hex")

    assert shown.text == (
        "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n"
        "00000010  00 3c                                            .<"
    )


def test_of_a_large_body_the_beginning_is_shown_also_within_a_character() -> None:
    octets = b"x" + "é".encode() * SHOWN_BYTES_MAX

    shown = body_view(octets)

    assert (shown.is_cut, shown.size, shown.view) == (True, len(octets), "text")
    assert set(shown.text) == {"x", "é"}
