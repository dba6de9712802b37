"""Live updates."""

from __future__ import annotations

import pytest

from eruca.contract.errors import OverloadedError, UnavailableError
from eruca_console.core.pace import CLUSTER_SHARE_MAX, SAMPLE_COUNT
from eruca_console.shell.live import LiveStreams, event

pytestmark = pytest.mark.anyio


def streams(maximum: int = 2, per_caller: int = 1) -> LiveStreams:
    return LiveStreams(maximum=maximum, per_caller=per_caller, period_seconds=0.001)


def test_each_line_is_a_line_of_the_events_data() -> None:
    assert event("live", "<p>\na\n</p>", 3) == (
        "event: live\nid: 3\ndata: <p>\ndata: a\ndata: </p>\n\n"
    )


async def test_a_block_is_sent_when_it_has_changed_and_its_end_is_said() -> None:
    found = streams()
    found.begin("ann")
    texts = iter(["one", "one", "two", None])

    async def render() -> str | None:
        return next(texts)

    sent = [text async for text in found.stream("ann", "", render)]

    assert sent == [
        event("live", "one", 1),
        event("live", "two", 2),
        event("ended", "the session is over"),
    ]
    assert found.count == 0


async def test_a_failure_is_said_and_the_stream_goes_on() -> None:
    found = streams()
    found.begin("ann")
    steps = iter([UnavailableError("broker-a is away"), "back", None])

    async def render() -> str | None:
        step = next(steps)
        if isinstance(step, UnavailableError):
            raise step
        return step

    sent = [text async for text in found.stream("ann", "", render)]

    assert sent[0] == event("failed", "broker-a is away")
    assert event("live", "back", 1) in sent


async def test_pages_are_updated_less_often_if_they_ask_much() -> None:
    asked = 0.0
    found = LiveStreams(maximum=2, per_caller=1, period_seconds=0.001, asked_seconds=lambda: asked)
    found.begin("ann")

    async def render() -> str | None:
        nonlocal asked
        asked += 0.002
        if asked >= 0.002 * (SAMPLE_COUNT + 1.5):
            assert found.period_seconds == pytest.approx(0.002 / CLUSTER_SHARE_MAX, rel=0.1)
            return None
        return str(asked)

    async for _ in found.stream("ann", "", render):
        pass
    assert asked == pytest.approx(0.002 * (SAMPLE_COUNT + 2))


async def test_what_is_spent_without_open_pages_does_not_slow_down_the_next_ones() -> None:
    asked = 0.0
    found = LiveStreams(maximum=2, per_caller=1, period_seconds=0.001, asked_seconds=lambda: asked)

    async def seen(updates: int) -> None:
        left = updates

        async def render() -> str | None:
            nonlocal left
            left -= 1
            return str(left) if left else None

        found.begin("ann")
        async for _ in found.stream("ann", "", render):
            pass

    await seen(SAMPLE_COUNT // 2)
    asked += 100_000  # by other requests, overnight
    await seen(SAMPLE_COUNT + 1)
    found.begin("ann")

    assert found.period_seconds < 1.0


async def test_a_stop_ends_all_streams() -> None:
    found = streams()
    found.begin("ann")

    async def render() -> str:
        found.stop()
        return "one"

    assert [text async for text in found.stream("ann", "", render)] == [event("live", "one", 1)]


def test_streams_are_bounded_in_all_and_for_each_caller() -> None:
    found = streams()
    found.begin("ann")
    with pytest.raises(OverloadedError, match="too many pages"):
        found.begin("ann")
    found.begin("bob")
    with pytest.raises(OverloadedError):
        found.begin("eve")
    assert found.count == 2
