"""The channel between service and worker: words arrive whole, in order, with what came along."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from eruca_query.exports.workers.channel import WORD_SIZE_MAX, Channel
from support.waiting import until

pytestmark = pytest.mark.anyio


class End:
    """One end, and what it has heard."""

    def __init__(self, end: socket.socket) -> None:
        self.heard: list[bytes] = []
        self.lent: list[socket.socket] = []
        self.is_lost = False
        self.channel = Channel(end, self._hear, self._lose)

    def _hear(self, data: bytes, lent: socket.socket | None) -> None:
        self.heard.append(data)
        if lent is not None:
            self.lent.append(lent)

    def _lose(self) -> None:
        self.is_lost = True


@asynccontextmanager
async def both_ends() -> AsyncIterator[tuple[End, End]]:
    one, other = map(End, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    try:
        yield one, other
    finally:
        for end in (one, other):
            end.channel.close()
            for lent in end.lent:
                lent.close()


def descriptors_of(inode: int) -> int:
    """Count this process's descriptors that lead to the same socket."""
    found = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all there is to it
        with suppress(OSError):  # one that was closed since
            found += os.fstat(int(name)).st_ino == inode
    return found


async def test_words_arrive_whole_and_in_order() -> None:
    words = [b"a", b"bc" * 1_000, bytes(WORD_SIZE_MAX), b"d"]
    async with both_ends() as (one, other):
        for word in words:
            one.channel.tell(word)
            other.channel.tell(word)

        await until(lambda: len(one.heard) == len(other.heard) == len(words))
        assert one.heard == other.heard == words


async def test_what_the_other_end_has_no_room_for_is_kept_with_its_connections() -> None:
    async with both_ends() as (one, other):
        ours, theirs = socket.socketpair()
        inode = os.fstat(theirs.fileno()).st_ino
        with ours:
            with theirs:
                for number in range(3_000):
                    one.channel.tell(b"%d" % number, theirs if number % 100 == 0 else None)
            assert descriptors_of(inode) > 0
            assert not other.heard  # nobody had a turn to listen, and nobody waited

            await until(lambda: len(other.heard) == 3_000)

            assert other.heard == [b"%d" % number for number in range(3_000)]
            assert len(other.lent) == 30
            other.lent[-1].send(b"hello")
            assert ours.recv(5) == b"hello"
    assert descriptors_of(inode) == 0


async def test_an_end_that_goes_is_told_and_telling_it_more_is_no_error() -> None:
    async with both_ends() as (one, other):
        other.channel.close()
        one.channel.tell(b"into the void")

        await until(lambda: one.is_lost)
        one.channel.tell(b"into the void")
        other.channel.tell(b"from the void")

        assert not other.is_lost  # it went by itself
        assert one.heard == []


async def test_an_end_that_closes_keeps_none_of_what_it_has_not_told() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    inodes = [os.fstat(end.fileno()).st_ino for end in (one, other)]
    end = End(one)
    with other:
        for _ in range(3_000):
            end.channel.tell(b"word", other)
        assert descriptors_of(inodes[1]) > 1  # kept until they are sent
        end.channel.close()
    await asyncio.sleep(0)

    assert [*map(descriptors_of, inodes)] == [0, 0]
