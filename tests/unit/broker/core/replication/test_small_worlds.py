"""Every interleaving of small groups keeps the promises; without any one rule some break them.

A mutation leaves out one rule. The search must find a world that breaks a promise then, or the
search proves nothing of the rule.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import pytest

from eruca_broker.core.replication.broker_group import BrokerGroup, Member
from eruca_broker.core.replication.in_sync import Copies
from eruca_broker.core.replication.lineage import UncleanCutError
from support.replication_world import BrokenPromiseError, Budget, Rules, World, Worlds

Patch = tuple[type, str, object]


class Case(NamedTuple):
    """A group to search."""

    budget: Budget
    rules: Rules = Rules()
    replicas: int = 2
    in_sync: int = 2


def search(case: Case, worlds_max: int = 10**7) -> int:
    """Visit every world of *case*; return their number.

    Raises:
        BrokenPromiseError, UncleanCutError: One of them breaks a promise.
    """
    worlds = Worlds(case.rules)
    first = worlds.first(case.replicas, case.budget, in_sync=case.in_sync)
    seen, new = {first}, [first]
    while new and len(seen) < worlds_max:
        following: list[World] = []
        for world in new:
            for other in worlds.following(world):
                if other not in seen:
                    seen.add(other)
                    following.append(other)
        new = following
    assert len(seen) < worlds_max, "the search was cut off"
    return len(seen)


SOUND: Final = {
    "terms and changes": Case(Budget(writes=1, terms=1, changes=2)),
    "crash": Case(Budget(writes=1, terms=1, changes=1, crashes=1)),
    "power cut": Case(Budget(writes=1, terms=1, changes=1, power_cuts=1)),
    "power cut, flushed": Case(
        Budget(writes=1, terms=1, changes=0, power_cuts=1), Rules(is_sync=True)
    ),
    "fetches ahead": Case(Budget(writes=2, terms=1, changes=0), Rules(fetches_ahead=True)),
    "fetches ahead, power cut": Case(
        Budget(writes=2, terms=0, changes=0, power_cuts=1), Rules(fetches_ahead=True)
    ),
    "wiped disk": Case(Budget(writes=1, terms=1, changes=1, wipes=1)),
    "restored arbiter": Case(Budget(writes=1, terms=1, changes=1, restores=1)),
    "restored arbiter, changes": Case(Budget(writes=0, terms=1, changes=2, restores=1)),
    "restored arbiter, crash": Case(Budget(writes=1, terms=1, changes=1, crashes=1, restores=1)),
    "newcomer": Case(Budget(writes=1, terms=1, changes=1), in_sync=1),
    "three replicas": Case(Budget(writes=1, terms=1, changes=0), replicas=3, in_sync=3),
}


@pytest.mark.parametrize("name", SOUND)
def test_no_interleaving_of_a_small_group_breaks_a_promise(name: str) -> None:
    assert search(SOUND[name]) > 300


def known_only(copies: Copies) -> frozenset[Member]:
    return copies.known


def asked_only(copies: Copies) -> frozenset[Member]:
    return copies.known if copies.asked is None else copies.asked


def without_the_silent(copies: Copies, durable_end: int) -> Copies:
    least = min(
        (durable_end, *(end for member, end in copies.held if end and member in copies.waited_for))
    )
    return copies if least <= copies.confirmed else replace(copies, confirmed=least)


def without_the_replicas(copies: Copies, durable_end: int) -> Copies:
    return replace(copies, confirmed=max(copies.confirmed, durable_end))


def of_any_log(
    copies: Copies, member: Member, *, epoch: int, log_offset: int, written_end: int
) -> Copies:
    return copies._with(member, min(log_offset, written_end))


def acknowledged_by_proof(copies: Copies, member: Member) -> Copies:
    return copies._with(member, 2)


def term_of_anybody(group: BrokerGroup, member: Member) -> BrokerGroup:
    return BrokerGroup(group.epoch + 1, member, group.in_sync | {member})


QUIET: Final = Budget(writes=1, terms=1, changes=0)
CHANGING: Final = Budget(writes=1, terms=1, changes=1)

PATCHED: Final[dict[str, tuple[Patch, Case]]] = {
    "a newcomer is not waited for before it is in the set": (
        (Copies, "waited_for", property(known_only)),
        Case(CHANGING, in_sync=1),
    ),
    "a leaving member is not waited for any more": (
        (Copies, "waited_for", property(asked_only)),
        Case(CHANGING),
    ),
    "a silent member is not waited for": (
        (Copies, "advanced", without_the_silent),
        Case(Budget(writes=1, terms=2, changes=0)),
    ),
    "what is durable at the master is confirmed": (
        (Copies, "advanced", without_the_replicas),
        Case(QUIET),
    ),
    "a replica acknowledges before it has proved its lineage": (
        (Copies, "acknowledged", of_any_log),
        Case(Budget(writes=1, terms=1, changes=0), Rules(proves_lineage=False)),
    ),
    "a proof of lineage counts as an acknowledgement": (
        (Copies, "proved", acknowledged_by_proof),
        Case(Budget(writes=1, terms=2, changes=0, power_cuts=1), Rules(is_sync=True)),
    ),
    "a replica outside the in-sync set becomes master": (
        (BrokerGroup, "next_term", term_of_anybody),
        Case(CHANGING, in_sync=1),
    ),
}

LEFT_OUT: Final = {
    "a fetch acknowledges a run that is on its way": Case(
        Budget(writes=2, terms=1, changes=0),
        Rules(fetches_ahead=True, acknowledges_held=False),
    ),
    "a restarted master continues its epoch": Case(
        Budget(writes=2, terms=0, changes=0, power_cuts=1),
        Rules(new_term_after_restart=False, is_sync=True),
    ),
    "a machine that lost records keeps its store's name": Case(
        Budget(writes=1, terms=1, changes=0, power_cuts=1), Rules(new_uid_after_power_cut=False)
    ),
    "nobody is asked whether the arbiter has lost changes": Case(
        Budget(writes=1, terms=1, changes=1, restores=1), Rules(asks_for_known=False)
    ),
    "a wiped store keeps its name": Case(
        Budget(writes=1, terms=1, changes=0, wipes=1), Rules(new_uid_after_wipe=False)
    ),
    "a read settles a request that is on its way": Case(
        Budget(writes=1, terms=1, changes=2), Rules(read_settles_no_request=False), in_sync=1
    ),
    "an answer settles a later request": Case(
        Budget(writes=1, terms=1, changes=2), Rules(answer_settles_its_request=False)
    ),
    "a replica cuts to its confirmed offset": Case(
        Budget(writes=1, terms=1, changes=0, crashes=1), Rules(cuts_by_lineage=False)
    ),
    "a new master continues from its confirmed offset": Case(
        CHANGING, Rules(continues_from_end=False)
    ),
    "a replica acknowledges what it has not flushed": Case(
        Budget(writes=1, terms=1, changes=0, power_cuts=1),
        Rules(is_sync=True, acknowledges_durable=False),
    ),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_the_search_finds_a_rule_that_is_left_out(name: str) -> None:
    with pytest.raises((BrokenPromiseError, UncleanCutError, ValueError)):
        search(LEFT_OUT[name])


@pytest.mark.parametrize("name", PATCHED)
def test_the_search_finds_a_decision_that_is_changed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (owner, attribute, value), case = PATCHED[name]
    monkeypatch.setattr(owner, attribute, value)

    with pytest.raises((BrokenPromiseError, UncleanCutError, ValueError)):
        search(case)


@pytest.mark.parametrize("name", ["terms and changes", "crash", "three replicas"])
def test_a_successor_may_leave_out_the_master_before_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in ``roles.succession_of``: the members that are left hold everything confirmed."""
    next_term = BrokerGroup.next_term

    def succession(group: BrokerGroup, member: Member) -> BrokerGroup:
        term, silent = next_term(group, member), {group.master} - {member}
        return replace(term, in_sync=term.in_sync - silent)

    monkeypatch.setattr(BrokerGroup, "next_term", succession)
    assert search(SOUND[name]) > 300
