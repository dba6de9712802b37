"""The difference between settings that are held and wanted."""

from __future__ import annotations

from eruca_console.core.setting_changes import Change, changes_of, needs_typing, same_everywhere


def shrinks(setting: str, before: int, after: int) -> bool:
    return after < before


def test_a_value_that_is_there_already_is_no_change() -> None:
    held = {"a": {"queues": 4, "retries": 3}, "b": {"queues": 2, "retries": 3}}
    wanted = {name: {"queues": 4, "retries": 3} for name in held}

    found = changes_of(wanted, held, takes_away=shrinks)

    assert found == [Change("b", "queues", 2, 4)]
    assert not needs_typing(found)


def test_a_broker_without_the_thing_gets_all_of_it() -> None:
    found = changes_of({"a": {"queues": 4, "retries": 3}}, {}, takes_away=shrinks)

    assert found == [Change("a", "queues", None, 4), Change("a", "retries", None, 3)]
    assert not needs_typing(found)


def test_a_value_that_is_unknown_may_be_a_loss() -> None:
    found = changes_of({"a": {"queues": 4}}, {}, ["a"], takes_away=shrinks)

    assert found == [Change("a", "queues", None, 4, is_known=False)]
    assert needs_typing(found)


def test_a_loss_needs_typing() -> None:
    found = changes_of({"a": {"queues": 1}}, {"a": {"queues": 2}}, takes_away=shrinks)

    assert found == [Change("a", "queues", 2, 1, takes_away=True)]
    assert needs_typing(found)


def test_brokers_that_differ_have_no_common_value() -> None:
    assert same_everywhere([], "queues") is None
    assert same_everywhere([{"queues": 1}, {"queues": 1}], "queues") == 1
    assert same_everywhere([{"queues": 1}, {"queues": 2}], "queues") is None
