"""Handlers: which functions can be one, and what is said of those that cannot."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

import eruca
from eruca.core.consuming.handler_shape import handler_shape


def plain(message: eruca.ReceivedMessage) -> None: ...


async def on_loop(message: eruca.ReceivedMessage, context: eruca.ConsumeContext) -> None: ...


def status(messages: list[eruca.ReceivedMessage]) -> eruca.ConsumeStatus | None: ...


def optional(message: eruca.ReceivedMessage, how: str = "so") -> None: ...


def anything(*arguments: object) -> Any: ...  # noqa: ANN401


def unannotated(message):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    ...


class Billing:
    def bill(self, message: eruca.ReceivedMessage) -> None: ...

    @staticmethod
    async def ship(message: eruca.ReceivedMessage) -> None: ...

    async def __call__(self, message: eruca.ReceivedMessage) -> None: ...


@pytest.mark.parametrize(
    ("handler", "is_async", "takes_context"),
    [
        (plain, False, False),
        (on_loop, True, True),
        (status, False, False),
        (optional, False, False),
        (anything, False, False),
        (unannotated, False, False),
        (lambda message: None, False, False),
        (lambda message, context: None, False, True),
        (functools.partial(optional, how="otherwise"), False, False),
        (functools.partial(on_loop, context=None), True, False),  # type: ignore[arg-type]
        (Billing().bill, False, False),
        (Billing().ship, True, False),
        (Billing(), True, False),
        ([].append, False, False),
        (Mock(), False, False),
    ],
)
def test_a_function_of_a_message_is_a_handler(
    handler: Callable[..., Any], *, is_async: bool, takes_context: bool
) -> None:
    assert handler_shape(handler) == (is_async, takes_context)


def three(message: object, context: object, more: object) -> None: ...


def named(message: object, *, by: str) -> None: ...


def nothing() -> None: ...


def generating(message: object) -> Iterator[int]:
    yield 1


async def generating_on_loop(message: object) -> AsyncIterator[int]:
    yield 1


def text(message: object) -> str:
    return str(message)


def number(message: object) -> int | None:
    return None


async def flag(message: object) -> bool:
    return True


def awaited_by_nobody(message: object) -> Awaitable[None]:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (None, "cannot be called"),
        ("bill", "cannot be called"),
        (7, "cannot be called"),
        (nothing, "nothing() -> 'None' cannot be called with a message"),
        (three, "cannot be called with a message"),
        (named, "cannot be called with a message"),
        (Billing.bill, None),
        (Billing, "Billing is a class"),
        (generating, "is a generator"),
        (generating_on_loop, "is a generator"),
        (text, "returns str, which is not a verdict"),
        (number, "returns int, which is not a verdict"),
        (flag, "returns bool, which is not a verdict"),
        (awaited_by_nobody, "which is not a verdict"),
        (on_loop(None, None), "cannot be called"),  # type: ignore[arg-type]
    ],
)
def test_what_can_be_no_handler_is_refused_where_it_is_registered(
    handler: Any,  # noqa: ANN401
    told: str | None,
) -> None:
    consumer = eruca.AsyncClient("http://127.0.0.1:1").push_consumer("billing")
    if told is None:  # taken for a function of a message and a context: nobody can tell
        assert handler_shape(handler).takes_context
        return

    for register in (
        consumer.on("orders"),
        lambda wrong: consumer.subscribe("orders", handler=wrong),
    ):
        with pytest.raises(eruca.ValidationError) as refused:
            register(handler)
        assert str(refused.value).startswith("handler: ")
        assert told in str(refused.value) or "is not a function" in str(refused.value)
        assert refused.value.fix
    if hasattr(handler, "close"):
        handler.close()
