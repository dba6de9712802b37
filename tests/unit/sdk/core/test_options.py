"""Option values: each checks itself, and an error names the option by its path, with the fix."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import pytest

import eruca

OPTIONS = {
    "batching": eruca.Batching,
    "retries": eruca.Retries,
    "limits": eruca.Limits,
    "membership": eruca.Membership,
    "offsets": eruca.Offsets,
    "listeners": eruca.Listeners,
}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (
            "batching.count_max",
            0,
            "expected 1 to 8192, found 0 (give batching.count_max from 1 to 8192)",
        ),
        ("batching.count_max", 1.5, "1.5 is not a whole number (give batching.count_max as"),
        ("batching.bytes_max", 0, "expected 1 to"),
        ("batching.linger_ms", -1, "(give batching.linger_ms of 0 or more)"),
        ("batching.linger_ms", math.nan, "expected 0 or more, found nan"),
        ("batching.linger_ms", math.inf, "expected 0 or more, found inf"),
        ("batching.in_flight_max", 0, "(give batching.in_flight_max of 1 or more)"),
        ("batching.in_flight_max", math.nan, "nan is not a whole number"),
        ("retries.retries_max", -1, "expected 0 to"),
        ("retries.retries_max", "3", "'3' is not a whole number or None"),
        ("retries.suspend_seconds", 0, "(give retries.suspend_seconds above 0)"),
        ("retries.on_poison", "skip", "'skip' is not one of 'block_queue', 'block_key'"),
        ("retries.none_is_failure", "no", "'no' is not True or False"),
        ("limits.queue_count_max", 0, "from 1 to 65535"),
        ("limits.queue_bytes_max", 0, "expected 1 to"),
        ("limits.bytes_max", 0, "expected 1 to"),
        ("limits.span_max", 65_536, "(give limits.span_max from 1 to 65535)"),
        ("membership.strategy", eruca.Averagely, "(give one, such as eruca.Averagely())"),
        ("membership.strategy", "averagely", "is not an allocation strategy"),
        ("membership.session_seconds", 2.9, "(give membership.session_seconds from 3 to"),
        ("membership.replaces_subscription_version", -1, "expected 0 or more, found -1"),
        ("offsets.commit_seconds", -0.1, "(give offsets.commit_seconds from 0 to 60)"),
        ("offsets.directory", 3, "3 is not a text (str) or None"),
        ("listeners.on_lost", 3, "3 is not a function"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path_with_the_fix(
    path: str, value: object, said: str
) -> None:
    group, option = path.split(".")

    with pytest.raises(eruca.ValidationError) as raised:
        OPTIONS[group](**{option: value})

    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)
    assert raised.value.fix


@pytest.mark.parametrize("kind", OPTIONS.values())
def test_options_are_frozen_and_equal_by_value(kind: Any) -> None:  # noqa: ANN401
    value = kind()
    name = dataclasses.fields(value)[0].name

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, 1)
    assert value == kind()


@pytest.mark.parametrize("client", [eruca.Client, eruca.AsyncClient])
def test_a_client_takes_each_group_of_options_under_its_name(client: Any) -> None:  # noqa: ANN401
    taken = {
        name: parameter.default
        for make in (client.producer, client.push_consumer)
        for name, parameter in inspect.signature(make).parameters.items()
        if name in OPTIONS
    }

    assert taken == {name: kind() for name, kind in OPTIONS.items()}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_value_of_another_kind_is_refused(name: str) -> None:
    client = eruca.AsyncClient()
    make: Any = client.producer if name == "batching" else client.push_consumer

    with pytest.raises(eruca.ValidationError, match=f"{name}: .*eruca.{OPTIONS[name].__name__}"):
        make("billing", **{name: {}})
