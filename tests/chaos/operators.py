"""An operator with the command line, who reaches brokers as clients do."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Final, NamedTuple

from chaos.client import World
from chaos.cluster import Party
from support.command_line import ERUCA

COMMAND_SECONDS: Final = 30.0
REPAIR_SECONDS: Final = 45.0
_CUT_DAMAGE: Final = "ERUCA_BROKER_CUT_DAMAGE"
_LAST_SIZE: Final = 20_000  # bytes of a process's output that have its last words
# A replica's own words, if damaged records keep it from opening its store.
_REFUSED_STARTS: Final = ("of acknowledged messages are damaged", "the log cannot end at")
NOT_BEHIND: Final = "the arbiter is not behind"


class Done(NamedTuple):
    """A command that has ended."""

    code: int | None  # None: it was ended, for it took too long
    text: str  # what it printed, on one line

    @property
    def is_ok(self) -> bool:
        """True if it succeeded."""
        return self.code == 0


async def eruca(world: World, *arguments: str, within_seconds: float = COMMAND_SECONDS) -> Done:
    """Run ``eruca`` as a process of its own; record it and return its end."""
    cluster = world.cluster
    environment = {
        **os.environ,
        "ERUCA_NAMESRV_URLS": cluster.parties["namesrv"].url,
        "ERUCA_CONTROLLER_URLS": ";".join(one.url for one in cluster.controllers()),
    }
    process = await asyncio.create_subprocess_exec(
        ERUCA,
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    code: int | None = None
    try:
        async with asyncio.timeout(within_seconds):
            output, _ = await process.communicate()
        code, text = process.returncode, " ".join(output.decode().split())
    except TimeoutError:
        text = f"not done within {within_seconds:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    value = {"command": " ".join(arguments), "code": code, "text": text[-500:]}
    world.recorder.note("command", value)
    return Done(code, text)


async def repair_arbiter(world: World, broker: str) -> bool:
    """Raise a group's row, if need be; return whether it fits the logs then."""
    deadline = time.monotonic() + REPAIR_SECONDS
    while time.monotonic() < deadline:
        done = await eruca(world, "broker", "repair-arbiter", broker, "--yes")
        if done.is_ok or NOT_BEHIND in done.text:
            return True
        await asyncio.sleep(0.5)  # a replica is starting, or the row has changed meanwhile
    return False


async def wipe(world: World, party: Party) -> None:
    """Kill a replica, and replace its store by an empty one."""
    await world.cluster.wipe(party)
    url = world.url_of(party.broker, party.replica)
    world.recorder.note("wiped", {"broker": party.broker, "replica": party.replica, "url": url})


async def cut_damage(world: World) -> None:
    """Start each replica again whose store does not open because of a flipped bit.

    A scrub repairs a store that is open. A store with damage in its last segment does not open
    again, until its operator accepts that the log is truncated there. The replica is a new member
    then, and copies the rest.
    """
    flipped = {
        f"{note.value['broker']}/{note.value['replica']}"
        for note in world.recorder.history().noted("flipped")
    }
    for name in sorted(flipped):
        party = world.cluster.parties[name]
        end = world.cluster.log_of(party).read_text()[-_LAST_SIZE:].splitlines()[-2:]
        if any(words in line for line in end for words in _REFUSED_STARTS):
            await world.cluster.stop(party, signal.SIGKILL)
            party.settings[_CUT_DAMAGE] = "true"
            world.cluster.run(party)
            await world.cluster.until_listening(party)
            del party.settings[_CUT_DAMAGE]
            world.recorder.note("damage-cut", {"broker": party.broker, "replica": party.replica})
