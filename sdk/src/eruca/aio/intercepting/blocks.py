"""Enter and leave the contexts of interceptors around one call.

An interceptor's error is logged and has no other effect. Interceptors are entered in their order,
and left in reverse. A context is left without an exception: the call object tells about the error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Self, TypeVar

_C = TypeVar("_C")

_logger = logging.getLogger(__name__)


class Blocks:
    """The entered contexts of one call."""

    __slots__ = ("_entered",)

    def __init__(
        self, methods: Sequence[Callable[[_C], AbstractContextManager[object]]], call: _C
    ) -> None:
        self._entered: list[AbstractContextManager[object]] = []
        for method in methods:
            try:
                block = method(call)
                block.__enter__()
            except Exception:  # the outermost frame of an interceptor
                _logger.exception("an interceptor failed before its call: %r", method)
            else:
                self._entered.append(block)

    def leave(self) -> None:
        """Leave the contexts."""
        while self._entered:
            block = self._entered.pop()
            try:
                block.__exit__(None, None, None)
            except Exception:  # the outermost frame of an interceptor
                _logger.exception("an interceptor failed after its call: %r", block)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.leave()
