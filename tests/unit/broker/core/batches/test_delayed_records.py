"""Records that ask for a delay are refused, wherever they stand; all others are taken."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eruca.contract.errors import MalformedBatchError
from eruca.contract.properties import NAME_SEPARATOR, PROPERTY_SEPARATOR
from eruca.contract.records import Host, Record, encode_unstamped
from eruca.contract.wire import encode_batch
from eruca_broker.core.batches.batch import check_batch

HOST = Host.parse("127.0.0.1", 10911)
COUNTS = (1, 24, 64)
PLAIN = "TAGS\x01a\x02UNIQ_KEY\x01k\x02"


def check(texts: Sequence[str], *, are_bodies_alike: bool = True) -> None:
    records = [
        encode_unstamped(
            Record(
                topic="orders",
                body=b"x" if are_bodies_alike else b"x" * (number % 7 + 1),
                queue_id=1,
                properties=text,
            )
        )
        for number, text in enumerate(texts)
    ]
    check_batch(bytearray(encode_batch(records)), topic="orders", queue_id=1, store_host=HOST)


@pytest.mark.parametrize("are_bodies_alike", [True, False])
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("text", ["DELAY\x013", "TIMER_DELAY_MS\x019", "TIMER_DELAY_SEC\x011"])
def test_one_that_asks_for_a_delay_refuses_the_batch_wherever_it_stands(
    count: int, text: str, are_bodies_alike: bool
) -> None:
    for index in {0, count // 2, count - 1}:
        for around in ("{}\x02", "{}", PLAIN + "{}\x02", "{}\x02" + PLAIN):
            texts = [PLAIN] * count
            texts[index] = around.format(text)

            with pytest.raises(MalformedBatchError, match=f"record {index}: ") as refused:
                check(texts, are_bodies_alike=are_bodies_alike)

            assert text.partition("\x01")[0] in refused.value.detail
            assert "JSON" in str(refused.value.fix)


@pytest.mark.parametrize("are_bodies_alike", [True, False])
@pytest.mark.parametrize("count", COUNTS)
def test_all_of_them_may_ask(count: int, are_bodies_alike: bool) -> None:
    with pytest.raises(MalformedBatchError, match=r"record 0: .* DELAY "):
        check([PLAIN + "DELAY\x0117\x02"] * count, are_bodies_alike=are_bodies_alike)


def test_a_name_that_varies_within_alike_texts_is_read() -> None:
    texts = ["DELAX\x013\x02"] * 30
    texts[17] = "DELAY\x013\x02"
    with pytest.raises(MalformedBatchError, match="record 17"):
        check(texts)

    texts = ["DELAY\x010\x02"] * 30
    texts[17] = "DELAY\x013\x02"
    with pytest.raises(MalformedBatchError, match="record 17"):
        check(texts)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "text",
    [
        "DELAY\x010\x02",
        "DELAYED\x013\x02",
        "MODELAY\x013\x02",
        "a\x01DELAY\x02",
        "TAGS\x01DEL\x02",
        "xTIMER_DELAY_MS\x013\x02",
        "TIMER_OUT_MS\x011700000000000\x02TIMER_DELIVER_MS\x011700000000000\x02",
        "DELAY",
    ],
)
def test_what_asks_for_nothing_is_taken(count: int, text: str) -> None:
    check([text] * count)
    check([text, *[PLAIN] * (count - 1)])


def asks(text: str) -> bool:
    """Tell in the plainest way."""
    pairs = [fragment.split(NAME_SEPARATOR, 1) for fragment in text.split(PROPERTY_SEPARATOR)]
    named = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
    names = [name for name, _ in named]
    if any(name == "DELAY" and value.strip("0") for name, value in named):
        return True
    return "TIMER_OUT_MS" not in names and any(
        name in ("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS") for name in names
    )


names = st.sampled_from(
    ["DELAY", "DELAX", "A", "TIMER_DELAY_MS", "TIMER_DELAX_MS", "TIMER_OUT_MS", "DEL\x7fY", ""]
)
pairs = st.tuples(names, st.sampled_from(["0", "1", "DELAY", "\x7f", ""]))
lines = st.builds(
    lambda some, end: PROPERTY_SEPARATOR.join(map(NAME_SEPARATOR.join, some)) + end,
    st.lists(pairs, min_size=1, max_size=3),
    st.sampled_from(["", "\x02"]),
)


@settings(deadline=None)
@given(st.lists(lines, min_size=1, max_size=4), st.sampled_from(COUNTS), st.booleans())
@example(["A\x01DELAY\x02"], 24, True)
def test_a_check_says_what_the_plainest_does(
    some: list[str], count: int, are_bodies_alike: bool
) -> None:
    texts = (some * count)[:count]
    asking = [index for index, text in enumerate(texts) if asks(text)]

    if asking:
        with pytest.raises(MalformedBatchError, match=f"record {asking[0]}: "):
            check(texts, are_bodies_alike=are_bodies_alike)
    else:
        check(texts, are_bodies_alike=are_bodies_alike)
