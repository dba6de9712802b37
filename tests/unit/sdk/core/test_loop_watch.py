"""Event loops that turn, are late, or hang, as far as one can tell from outside."""

from __future__ import annotations

from eruca.core.loop_watch import LoopState, LoopWatch


def test_a_loop_that_has_not_been_asked_is_taken_to_turn() -> None:
    assert LoopWatch(10.0).look(5.0, 0.0) is LoopState.TURNING


def test_a_loop_that_has_not_answered_by_the_next_look_is_late() -> None:
    watch = LoopWatch(10.0)

    watch.ask(100.0)

    assert watch.look(105.0, 0.0) is LoopState.LATE


def test_an_answer_shows_that_it_turns() -> None:
    watch = LoopWatch(10.0)
    watch.ask(100.0)

    watch.answer()

    assert watch.look(105.0, 0.0) is LoopState.TURNING


def test_beyond_the_limit_it_hangs_until_it_answers() -> None:
    watch = LoopWatch(10.0)
    watch.ask(100.0)

    assert watch.look(110.0, 0.0) is LoopState.LATE
    assert watch.look(110.1, 0.0) is LoopState.HUNG

    watch.answer()
    assert watch.look(111.0, 0.0) is LoopState.TURNING


def test_the_limit_is_for_one_handler_of_several_that_block_in_one_turn() -> None:
    watch = LoopWatch(10.0)
    watch.ask(100.0)

    assert watch.look(115.0, 106.0) is LoopState.LATE
    assert watch.look(116.1, 106.0) is LoopState.HUNG
    assert watch.look(117.0, 116.5) is LoopState.LATE


def test_a_handler_that_began_before_the_question_does_not_shorten_the_time() -> None:
    watch = LoopWatch(10.0)
    watch.ask(100.0)

    assert watch.look(109.0, 91.0) is LoopState.LATE
