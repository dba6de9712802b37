"""Repair: any member's copy will do, and damage without one is remembered (rule 11)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import cast

import pytest

from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import PROBLEM_MEDIA_TYPE, RecordNotFoundError
from eruca_broker.processors.replication.repair import Repair
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.store.upkeep.record_repair import RefusedCopyError
from eruca_broker.store.upkeep.upkeep import StoreUpkeep
from support.scripted_transport import Request, ScriptedTransport

pytestmark = pytest.mark.anyio

BEHIND, OTHER, SOUND = "http://behind", "http://other", "http://sound"


@dataclass
class ManualUpkeep:
    """Upkeep that takes one copy, and refuses any other."""

    mended: list[tuple[int, bytes]] = field(default_factory=list)

    async def mend(self, log_offset: int, copy: bytes) -> bool:
        if copy != b"the record":
            raise RefusedCopyError("it is another log's")
        self.mended.append((log_offset, copy))
        return True


@dataclass
class Damaged:
    """A replica's status, as it would answer."""

    is_damaged: bool = False


async def answer(request: Request) -> HttpResponse:
    assert request.target == "/v1/log/records/879"
    if request.url == BEHIND:
        problem = RecordNotFoundError("not yet").problem("1")
        headers = {"content-type": PROBLEM_MEDIA_TYPE}
        return HttpResponse(404, headers, json.dumps(problem).encode())
    return HttpResponse(200, {}, b"the record" if request.url == SOUND else b"another one")


def repair(urls: list[str]) -> tuple[Repair, ManualUpkeep, Damaged]:
    upkeep, shown = ManualUpkeep(), Damaged()
    made = Repair(
        cast(StoreUpkeep, upkeep),
        cast(Replication, shown),
        lambda: urls,
        ScriptedTransport(answer),
    )
    return made, upkeep, shown


async def test_the_next_member_is_asked_until_a_copy_is_accepted() -> None:
    made, upkeep, shown = repair([BEHIND, OTHER, SOUND])

    assert await made.at(879)

    assert upkeep.mended == [(879, b"the record")]
    assert not shown.is_damaged


async def test_damage_that_nobody_could_repair_is_shown_until_somebody_can() -> None:
    urls = [BEHIND, OTHER]
    made, upkeep, shown = repair(urls)
    assert not await made.at(879)
    assert shown.is_damaged

    urls.append(SOUND)

    assert await made.at(879)
    assert not shown.is_damaged
    assert upkeep.mended
