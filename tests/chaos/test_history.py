"""A history pairs requests with their answers, survives its file, and refuses nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.history import Event, History, Recorder, UnmatchedEventError


def test_a_recorded_history_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder(path) as recorder:
        recorder.note("run", {"seed": 7})
        recorder.record("invoke", "p1", "send", {"message": "m0"})
        recorder.record("invoke", "p2", "send", {"message": "m1"})
        recorder.record("ok", "p2", "send", {"offset": 0})
        recorder.record("fail", "p1", "send", {"code": "not-master"})
        recorder.record("invoke", "p1", "send", {"message": "m2"})

    read = History.read(path)

    assert [(one.asked["message"], one.outcome, dict(one.told)) for one in read.operations] == [
        ("m0", "fail", {"code": "not-master"}),
        ("m1", "ok", {"offset": 0}),
        ("m2", "info", {}),
    ]
    assert read.operations[-1].ended_at == float("inf")
    assert read.setting("seed") == 7
    assert [one.op for one in recorder.history().operations] == ["send"] * 3


def test_a_file_that_breaks_off_is_a_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with Recorder(path) as recorder:
        recorder.record("invoke", "p1", "send", {})

        assert [one.outcome for one in History.read(path).operations] == ["info"]


@pytest.mark.parametrize(
    "kinds", [("ok",), ("fail",), ("invoke", "invoke"), ("invoke", "ok", "ok")], ids=str
)
def test_events_of_a_process_alternate(kinds: tuple[str, ...]) -> None:
    events = [Event(kind, "p1", at, "send", {}) for at, kind in enumerate(kinds)]  # type: ignore[arg-type]

    with pytest.raises(UnmatchedEventError):
        History.of(events)


def test_an_answer_to_another_request_is_refused() -> None:
    events = [Event("invoke", "p1", 0, "send", {}), Event("ok", "p1", 1, "pull", {})]

    with pytest.raises(UnmatchedEventError):
        History.of(events)
