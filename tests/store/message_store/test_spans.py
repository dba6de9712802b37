"""The spans of a store's appends, flushes and projections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from eruca.contract.errors import StoreFailedError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from eruca_broker.store.writing.traced_writer import MARKS_MAX, TracedWriter
from eruca_broker.store.writing.writer import Writer
from eruca_chassis.spans.tracing import LINKS_MAX, Linked
from support.message_stores import BOTH_MODES, ORDERS, Flushes, opened, refuse, send
from support.patience import PATIENCE_SECONDS
from support.stores import batch, small_settings

pytestmark = pytest.mark.anyio


class Request(Linked):
    """A sampled request."""


@dataclass(eq=False)
class Span(Linked):
    """Work that was recorded."""

    name: str
    links: list[Linked]
    attributes: Mapping[str, int]
    error: BaseException | None


class Recorder:
    """Records work, and knows for which request the caller works."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._current: Linked | None = None

    @contextmanager
    def request(self) -> Iterator[Request]:
        self._current = request = Request()
        yield request
        self._current = None

    def current(self) -> Linked | None:
        return self._current

    def worked(
        self,
        name: str,
        started_ns: int,
        links: Iterable[Linked],
        attributes: Mapping[str, int],
        error: BaseException | None = None,
    ) -> Linked:
        assert started_ns > 0
        self.spans.append(Span(name, list(links), attributes, error))
        return self.spans[-1]

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def store(tmp_path: Path, mode: FlushMode, recorder: Recorder) -> AsyncIterator[MessageStore]:
    settings = replace(small_settings(flush_mode=mode), tracing=recorder)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    assert recorder.spans == []  # nobody had asked for that
    yield store
    if store.refusal is None:
        await store.close()


def sent(store: MessageStore, body: bytes = b"x") -> asyncio.Future[object]:
    return asyncio.ensure_future(send(store, body))


async def begun(store: MessageStore, recorder: Recorder) -> tuple[Request, asyncio.Future[object]]:
    """Append for a request, and return it with the answer to come."""
    with recorder.request() as request:
        sending = sent(store)
        await asyncio.sleep(0)  # it is accepted now
    return request, sending


@BOTH_MODES
async def test_an_append_links_to_its_requests_and_what_follows_links_to_it(
    store: MessageStore, recorder: Recorder, mode: FlushMode
) -> None:
    request, sending = await begun(store, recorder)
    await sending
    await store.upkeep.flush()

    append, *later = recorder.spans
    assert (append.name, append.links, append.error) == ("append", [request], None)
    order = ["flush", "project"] if mode is FlushMode.SYNC else ["project", "flush"]
    assert [span.name for span in later] == order
    assert all(span.links == [append] for span in later)
    end = append.attributes["eruca.log_offset"] + append.attributes["eruca.bytes"]
    assert all(span.attributes["eruca.log_end_offset"] >= end for span in later)
    assert append.attributes["eruca.batches"] == 1


@BOTH_MODES
async def test_work_that_nobody_sampled_asked_for_has_no_span(
    store: MessageStore, recorder: Recorder
) -> None:
    await send(store, b"x")
    await store.upkeep.flush()

    assert recorder.spans == []


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_a_flush_links_to_all_appends_that_it_covers(
    store: MessageStore, recorder: Recorder, flushes: Flushes
) -> None:
    flushes.may_end.clear()
    first, sending = await begun(store, recorder)
    await asyncio.sleep(0)
    with recorder.request() as announced:
        store.announce(lambda: None)
    second, more = await begun(store, recorder)  # waits for the flush in progress
    flushes.may_end.set()
    await asyncio.gather(sending, more)

    appends = [span for span in recorder.spans if span.name == "append"]
    assert [span.links for span in appends] == [[first], [announced, second]]
    covered = [link for span in recorder.spans if span.name == "flush" for link in span.links]
    assert covered == appends


@pytest.mark.parametrize("mode", [FlushMode.ASYNC])
async def test_a_write_that_fails_is_an_error_and_nothing_follows(
    store: MessageStore, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("eruca_broker.store.log.segment.os.pwritev", refuse)
        _, sending = await begun(store, recorder)
        [outcome] = await asyncio.gather(sending, return_exceptions=True)
    assert isinstance(outcome, Exception)

    [append] = recorder.spans
    assert (append.name, type(append.error)) == ("append", OSError)


@pytest.mark.parametrize("mode", [FlushMode.SYNC])
async def test_a_flush_that_fails_is_an_error(
    store: MessageStore, recorder: Recorder, flushes: Flushes
) -> None:
    flushes.failing = True
    _, sending = await begun(store, recorder)
    [outcome] = await asyncio.gather(sending, return_exceptions=True)
    assert isinstance(outcome, StoreFailedError)
    flushes.failing = False

    assert recorder.names == ["append", "flush"]
    assert isinstance(recorder.spans[1].error, OSError)


@BOTH_MODES
async def test_an_append_from_a_callback_of_another_keeps_its_request(
    store: MessageStore, recorder: Recorder
) -> None:
    requests: list[Request] = []
    published = asyncio.Event()

    def append_another(_: object) -> None:
        with recorder.request() as second:
            requests.append(second)
            store.append_then(batch("orders", 0, [b"y"]), None, lambda _: published.set())

    with recorder.request() as first:
        requests.append(first)
        store.append_then(batch("orders", 0, [b"x"]), None, append_another)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await published.wait()

    appends = [span for span in recorder.spans if span.name == "append"]
    assert [span.links for span in appends] == [[request] for request in requests]


@pytest.mark.parametrize("mode", [FlushMode.ASYNC])
async def test_links_and_marks_are_limited(store: MessageStore, recorder: Recorder) -> None:
    noted = store.noting(lambda: None)
    sending = sent(store)
    await asyncio.sleep(0)
    for _ in range(LINKS_MAX + 3):
        with recorder.request():
            noted()
    await sending
    assert len(recorder.spans[0].links) == LINKS_MAX

    for _ in range(MARKS_MAX + 3):
        _, sending = await begun(store, recorder)
        await sending
    recorder.spans.clear()
    await store.upkeep.flush()

    [flush] = recorder.spans
    assert len(flush.links) == MARKS_MAX


@BOTH_MODES
async def test_a_store_without_traces_has_the_plain_writer(tmp_path: Path, mode: FlushMode) -> None:
    made: list[type[Writer]] = []
    for tracing in (None, Recorder()):
        settings = replace(small_settings(flush_mode=mode), tracing=tracing)
        store = await opened(tmp_path / str(len(made)), settings)
        made.append(type(store._writer))
        gather = list[int]().append
        assert (store.noting(gather) is gather) == (tracing is None)
        await store.close()

    assert made == [Writer, TracedWriter]
