"""The JSON models: what a request may hold."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import eruca
from eruca.contract.access import PolicyTime
from eruca.contract.fields import GroupName, Moment, TopicName
from eruca.contract.groups import OffsetCommits
from eruca.contract.routes import BrokerRegistration, TopicRoute
from eruca.contract.topics import TopicSettings

TOPIC = TypeAdapter[str](TopicName)
GROUP = TypeAdapter[str](GroupName)
REGISTRATION: dict[str, Any] = {
    "cluster": "eruca",
    "urls": {"default": "http://127.0.0.1:10911"},
    "store_host": "127.0.0.1:10911",
    "data_version": 1,
}


@pytest.mark.parametrize("name", ["orders", "%RETRY%" + "g" * 200, "a|b_c-d%"])
def test_a_legal_topic_is_taken(name: str) -> None:
    assert TOPIC.validate_python(name) == name


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "é", "t" * 128, "%DLQ%" + "g" * 251])
def test_another_topic_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        TOPIC.validate_python(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "g" * 121])
def test_another_group_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        GROUP.validate_python(name)
    assert GROUP.validate_python("g" * 120)


def test_a_name_that_passes_the_pattern_can_still_be_refused() -> None:
    with pytest.raises(ValidationError, match="too long"):
        TOPIC.validate_python("t" * 200)


def test_topic_settings_have_rocketmqs_defaults() -> None:
    settings = TopicSettings()

    assert (settings.read_queue_count, settings.write_queue_count) == (4, 4)
    assert settings.permission == "rw"


@pytest.mark.parametrize("text", ["yesterday", "tomorrow", "2026-11-21", "1763800000", "T", ""])
def test_what_is_no_time_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(ValidationError, match="expected a time as in 2026-"):
        TypeAdapter[datetime](Moment).validate_python(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"])
def test_a_time_that_utc_does_not_have_is_refused(text: str) -> None:
    for kind in (Moment, PolicyTime):
        with pytest.raises(ValidationError, match="out of range"):
            TypeAdapter[datetime](kind).validate_python(text)


@pytest.mark.parametrize("delays", [[1, 2.5], (1, 2.5)])
def test_a_program_gives_delays_as_any_sequence(delays: list[float] | tuple[float, ...]) -> None:
    policy = eruca.CustomizedRetryPolicy(delays_seconds=delays)

    assert policy == eruca.CustomizedRetryPolicy(delays_seconds=[1, 2.5])
    assert policy.delays_seconds == [1, 2.5]


@pytest.mark.parametrize("delays", ['"12"', '["1"]', "[]", '{"0": 1}', "1"])
def test_delays_in_json_are_an_array_of_numbers(delays: str) -> None:
    with pytest.raises(ValidationError):
        eruca.CustomizedRetryPolicy.model_validate_json(f'{{"delays_seconds": {delays}}}')


@pytest.mark.parametrize(
    "wrong",
    [
        {"read_queue_count": 0},
        {"write_queue_count": 1_025},
        {"permission": "x"},
        {"read_queues": 4},
    ],
)
def test_a_request_with_a_wrong_or_unknown_field_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TopicSettings.model_validate(wrong)


def test_an_answer_may_hold_fields_of_a_later_version() -> None:
    route = TopicRoute.model_validate(
        {"topic": "orders", "queues": [], "brokers": [], "colour": "green"}
    )

    assert route.topic == "orders"


@pytest.mark.parametrize("host", ["127.0.0.1:10911", "[::1]:10911"])
def test_a_registration_names_an_address_and_a_port(host: str) -> None:
    registration = BrokerRegistration.model_validate(REGISTRATION | {"store_host": host})

    assert registration.store_host == host


@pytest.mark.parametrize(
    "wrong",
    [
        {"store_host": "localhost:10911"},
        {"store_host": "127.0.0.1"},
        {"store_host": "[fe80::1%eth0]:10911"},  # behind the % there may be any text
        {"store_host": "1" * 65},
        {"urls": {}},
        {"urls": {"default": "ftp://127.0.0.1"}},
        {"urls": {"default": "http://127.0.0.1/path"}},
        {"urls": {"default": "http://127.0.0.1", "in\nside": "http://127.0.0.1"}},
        {"urls": {"default": "http://127.0.0.1", "inside": "http://[::1"}},
        {"data_version": -1},
        {"expiry_seconds": float("nan")},
        {"cluster": ""},
    ],
)
def test_a_wrong_registration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BrokerRegistration.model_validate(REGISTRATION | wrong)


@pytest.mark.parametrize("offset", [-1, 2**63, 1.5, "x"])
def test_an_offset_has_63_bits(offset: object) -> None:
    commit = {"topic": "orders", "queue_id": 0, "offset": offset}

    with pytest.raises(ValidationError):
        OffsetCommits.model_validate({"offsets": [commit]})


@pytest.mark.parametrize(
    ("model", "flood"),
    [
        (OffsetCommits, {f"field-{i}": 0 for i in range(1_000)}),
        (OffsetCommits, {"offsets": [{f"field-{i}": 0 for i in range(1_000)}]}),
        (BrokerRegistration, REGISTRATION | {"urls": {str(i): 0 for i in range(1_000)}}),
        (BrokerRegistration, REGISTRATION | {"topics": [{}] * 1_000}),
    ],
)
def test_a_flood_of_faults_is_refused_at_the_first(
    model: type[BaseModel], flood: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(flood)

    assert refused.value.error_count() <= 10
