"""Records wait in memory, within a limit; what is lost is said."""

from __future__ import annotations

import pytest

from eruca.contract.access import Right
from eruca.contract.audit import AUDIT_TEXT_SIZE_MAX, AuditRecord
from eruca.contract.errors import DiskFullError, ErucaError, UnauthenticatedError
from eruca_access.audit.trail import WAITING_MAX, AuditTrail
from eruca_access.gate import KeyHolder
from eruca_access.needs import on_topic
from eruca_access.reporting import AuditLoop
from eruca_chassis.admission.gate import Act, Asked, Refusal
from eruca_chassis.admission.needs import KNOWN
from support.waiting import until

ANN = KeyHolder("user:ann", "abcd")
ASKED = Asked(KNOWN, {}, b"", {}, "10.0.0.1", "putTopic", "r1")
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def acts(trail: AuditTrail, count: int) -> None:
    demand = on_topic("orders", Right.ADMINISTER)
    for status in range(200, 200 + count):
        trail.acted(Act(ASKED, ANN, (demand,), 200 + status % 300), [])


def test_records_beyond_the_limit_are_lost_and_said_to_be() -> None:
    trail = AuditTrail("broker a")
    acts(trail, WAITING_MAX + 3)
    assert (len(trail), trail.lost_count) == (WAITING_MAX, 3)

    taken = trail.take(WAITING_MAX) + trail.take(WAITING_MAX)

    assert [r.event for r in taken[:-1]] == ["act"] * WAITING_MAX
    assert (taken[-1].event, taken[-1].count) == ("records_lost", 3)
    assert trail.take(1) == []


def test_records_that_were_not_written_come_first_again() -> None:
    trail = AuditTrail("broker a")
    acts(trail, 5)
    first = trail.take(2)
    trail.put_back(first)
    assert trail.take(5)[:2] == first


def test_a_text_of_a_request_is_cut_and_has_no_control_characters() -> None:
    trail = AuditTrail("broker a")
    demand = on_topic("\x1b[2J\x01" + "n" * 2 * AUDIT_TEXT_SIZE_MAX + "\ud800")
    trail.refused(Refusal(ASKED, UnauthenticatedError("no"), None, demand))
    [record] = trail.take(10)
    assert record.resource is not None
    assert record.resource.startswith("topic:?[2J?n")
    assert len(record.resource) == AUDIT_TEXT_SIZE_MAX
    AuditRecord.model_validate_json(record.model_dump_json())


@pytest.mark.parametrize("sent", ["\x7f", "\x85", "\x9b", "\u2028", "\u202e", "\u2066"], ids=ascii)
def test_a_text_of_a_request_neither_commands_a_terminal_nor_turns_a_line(sent: str) -> None:
    trail = AuditTrail("broker a")
    trail.refused(Refusal(ASKED, UnauthenticatedError("no"), None, on_topic(f"a{sent}b")))
    [record] = trail.take(10)
    assert record.resource == "topic:a?b"


async def test_a_loop_writes_again_what_nobody_took() -> None:
    trail = AuditTrail("broker a")
    acts(trail, 3)
    written: list[AuditRecord] = []
    failures: list[ErucaError] = [DiskFullError("no room")]

    async def write(records: list[AuditRecord]) -> None:
        if failures:
            raise failures.pop()
        written.extend(records)

    loop = AuditLoop(trail, write)  # type: ignore[arg-type] # it gets lists
    loop.start()
    await until(lambda: not failures)
    await loop.stop()

    assert [record.event for record in written] == ["act"] * 3
    assert (len(trail), trail.lost_count) == (0, 0)


async def test_what_nobody_takes_until_the_end_is_counted_as_lost() -> None:
    trail = AuditTrail("broker a")
    acts(trail, 3)

    async def write(_records: object) -> None:
        raise DiskFullError("no room")

    loop = AuditLoop(trail, write)
    loop.start()
    await loop.stop()

    assert trail.lost_count == 3


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_is_none_in_utc_is_refused(at: str) -> None:
    with pytest.raises(ValueError, match="out of range"):
        AuditRecord.model_validate({"at": at, "event": "act", "service": "namesrv"})
