"""The shape of a handler: its arguments, its result, and the way to call it.

The shape is checked when a program registers the handler. Otherwise a wrong handler would fail at
the first message, and every message would be retried and become a dead letter.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import FunctionType, NoneType, UnionType
from typing import (
    Any,
    Final,
    NamedTuple,
    Never,
    NoReturn,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from eruca.contract.errors import ValidationError
from eruca.core.consuming.consume_context import ConsumeContext
from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.messages.received_message import ReceivedMessage

HandlerResult: TypeAlias = ConsumeStatus | Awaitable[ConsumeStatus | None] | None
"""Result of a handler: None, or a :class:`ConsumeStatus`; for an async one, the awaited result."""
Handler: TypeAlias = (
    Callable[[ReceivedMessage], HandlerResult]
    | Callable[[ReceivedMessage, ConsumeContext], HandlerResult]
    | Callable[[list[ReceivedMessage]], HandlerResult]
    | Callable[[list[ReceivedMessage], ConsumeContext], HandlerResult]
)
"""A function of a message, or of a list of messages if the consumer's batches may have several."""

_FIX: Final = "write def handle(message), or def handle(message, context)"
_VERDICT_FIX: Final = "return nothing, or an eruca.ConsumeStatus; raise an exception on failure"
_UNCHECKED: Final = (Any, object, NoneType, Never, NoReturn, ConsumeStatus)
_CONTEXT_PLACE: Final = 2  # of the arguments


class HandlerShape(NamedTuple):
    """Call signature of a handler."""

    is_async: bool
    takes_context: bool


def handler_shape(handler: object) -> HandlerShape:
    """Return the shape of *handler*.

    Raises:
        ValidationError: It is not a function of a message, or does not return a verdict.
    """
    if not callable(handler):
        raise ValidationError(f"handler: {handler!r:.80} cannot be called", fix=_FIX)
    if isinstance(handler, type):
        raise ValidationError(
            f"handler: {handler.__qualname__} is a class: a call creates an object and handles"
            " nothing",
            fix="pass a method of an instance",
        )
    call = getattr(handler, "__call__", None)  # noqa: B004  (an object may have an async one)
    for generates in (inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        if generates(handler) or generates(call):
            raise ValidationError(
                f"handler: {_name(handler)} is a generator: a call would run none of its code",
                fix="return instead of yielding",
            )
    is_async = is_async_function(handler)
    _check_result(handler, is_async=is_async)
    return HandlerShape(is_async, _takes_context(handler))


def is_async_function(function: Callable[..., Any]) -> bool:
    """Return whether a call of *function* returns an awaitable."""
    if isinstance(function, FunctionType) and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True  # a plain coroutine function, in a tenth of the time
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (not whether it is callable)
    )


def _takes_context(handler: Callable[..., Any]) -> bool:
    """Tell whether *handler* needs a second argument, the context."""
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return False  # a function of a library in C
    for count in (1, _CONTEXT_PLACE):
        try:
            signature.bind(*(None,) * count)
        except TypeError:
            continue
        return count == _CONTEXT_PLACE
    raise ValidationError(
        f"handler: {_name(handler)}{signature} cannot be called with a message, nor with a message"
        " and a context",
        fix=_FIX,
    )


def _check_result(handler: Callable[..., Any], *, is_async: bool) -> None:
    """Raise ValidationError if *handler*'s return annotation is not a verdict."""
    annotated = handler if hasattr(handler, "__annotations__") else type(handler).__call__
    try:
        result = get_type_hints(annotated).get("return", Any)
    except (AttributeError, NameError, SyntaxError, TypeError):
        # Names in annotations may be there for type checkers only.
        return
    wrong = [kind for kind in _alternatives(result) if not _is_verdict(kind, is_async=is_async)]
    if wrong:
        shown = getattr(wrong[0], "__qualname__", None) or str(wrong[0])
        raise ValidationError(
            f"handler: {_name(handler)} returns {shown}, which is not a verdict", fix=_VERDICT_FIX
        )


def _alternatives(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _is_verdict(kind: object, *, is_async: bool) -> bool:
    origin = get_origin(kind)
    if isinstance(origin, type) and issubclass(origin, Awaitable):
        # A plain function runs in a thread, which does not await the result.
        return is_async
    return kind in _UNCHECKED or not isinstance(kind, type)


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)[:80]
