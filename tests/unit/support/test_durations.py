"""The order of the test modules: the longest first, and one process for one Spark session."""

from __future__ import annotations

from support.durations import (
    ONE_SPARK_SESSION,
    alternating,
    place_in,
    recorded,
    unit_of,
    units_longest_first,
)


def test_the_longest_unit_comes_first() -> None:
    assert list(units_longest_first({"a.py": 1, "b.py": 30, "c.py": 2})) == ["b.py", "c.py", "a.py"]


def test_modules_of_one_spark_session_are_one_unit_with_all_their_seconds() -> None:
    first, second, *_ = ONE_SPARK_SESSION

    assert unit_of(f"tests/{first}::test_it[a-b]") == unit_of(f"tests/{second}::test_it")
    assert units_longest_first({first: 2, second: 3, "api/test_a.py": 4}) == {
        "spark": 5,
        "api/test_a.py": 4,
    }


def test_a_module_is_a_unit_of_its_own() -> None:
    assert unit_of("tests/api/broker/test_send.py::test_it[::]") == "api/broker/test_send.py"


def test_every_module_of_a_shared_session_has_a_record() -> None:
    assert recorded().keys() >= ONE_SPARK_SESSION


def test_units_that_start_a_java_take_turns_with_the_others() -> None:
    units = ["spark/test_kills.py", "spark", "a.py", "system/test_demo.py", "b.py"]

    assert list(alternating(units)) == [
        "spark/test_kills.py",
        "a.py",
        "spark",
        "b.py",
        "system/test_demo.py",
    ]


def test_a_unit_that_is_not_known_comes_first() -> None:
    ids = [f"tests/{name}.py::test_it" for name in ("b", "new", "a")]

    assert sorted(ids, key=place_in(["a.py", "b.py"])) == [
        "tests/new.py::test_it",
        "tests/a.py::test_it",
        "tests/b.py::test_it",
    ]
