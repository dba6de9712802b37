"""Closing a client closes all that was made of it, whatever goes wrong on the way."""

from __future__ import annotations

import pytest

import eruca

pytestmark = pytest.mark.anyio


class Child:
    """Something that a client has made."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.has_left = False

    async def leave(self, *, drain: bool, failed: bool) -> None:
        del drain, failed
        self.has_left = True
        if self.error is not None:
            raise self.error


async def test_what_was_made_last_is_closed_first() -> None:
    left: list[int] = []

    class Ordered(Child):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        async def leave(self, *, drain: bool, failed: bool) -> None:
            del drain, failed
            left.append(self.number)

    async with eruca.AsyncClient("http://127.0.0.1:1") as client:
        for number in range(3):
            client.context.adopt(Ordered(number))

    assert left == [2, 1, 0]


async def test_what_cannot_be_closed_keeps_nothing_else_open() -> None:
    client = eruca.AsyncClient("http://127.0.0.1:1")
    children = [Child(ValueError("one")), Child(), Child(ValueError("two")), Child()]
    for child in children:
        client.context.adopt(child)

    with pytest.raises(ValueError, match="two") as raised:
        await client.close()

    assert all(child.has_left for child in children)
    assert raised.value.__notes__ == ["closing failed elsewhere, too: ValueError('one')"]
    with pytest.raises(eruca.ClosedError):
        client.context.check_open()
    await client.close()  # again, harmless
