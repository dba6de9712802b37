"""One is not many, and none is."""

from __future__ import annotations

from eruca.cli.counts import counted


def test_only_one_is_singular() -> None:
    assert [counted(n, "message") for n in (0, 1, 2, 2_000)] == [
        "0 messages",
        "1 message",
        "2 messages",
        "2,000 messages",
    ]
    assert [counted(n, "batch", "batches") for n in (1, 2)] == ["1 batch", "2 batches"]
