"""Queue allocation: every queue has one reader, whatever order the lists arrive in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.core.allocation import (
    AllocationError,
    AllocationFault,
    AllocationStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    NamedMachineRooms,
    allocate,
    sorted_members,
)
from eruca.core.messages.message_queue import MessageQueue

ROOMS = "rst"
EVERYTHING = [
    Averagely(),
    AveragelyByCircle(),
    ConsistentHash(),
    ConsistentHash(virtual_nodes=1),
    ByMachineRoom(frozenset(ROOMS)),
    MachineRoomNearby(Averagely()),
    MachineRoomNearby(ConsistentHash()),
]
EVENLY = [Averagely(), AveragelyByCircle(), ByMachineRoom(frozenset(ROOMS))]

queue_sets = st.sets(
    st.builds(
        MessageQueue,
        st.just("orders"),
        st.builds("{}@{}".format, st.sampled_from(ROOMS), st.sampled_from("abc")),
        st.integers(0, 20),
    ),
    max_size=40,
)
member_sets = st.sets(
    st.builds("{}@{}".format, st.sampled_from(ROOMS), st.text(max_size=3)), min_size=1, max_size=12
)


def shuffled(items: set[Any], random: Random) -> list[Any]:
    """Return *items* in some order, one of them twice."""
    listed = [*items, *list(items)[:1]]
    random.shuffle(listed)
    return listed


def shares(
    strategy: AllocationStrategy, queues: set[MessageQueue], members: set[str], random: Random
) -> dict[str, list[MessageQueue]]:
    """Return each member's share: each of them sees both lists in an order of its own."""
    return {
        member: allocate(strategy, shuffled(queues, random), shuffled(members, random), member)
        for member in members
    }


def kind(strategy: object) -> str:
    """Name a strategy the same in every process."""
    return type(strategy).__name__


@pytest.mark.parametrize("strategy", EVERYTHING, ids=kind)
@given(queues=queue_sets, members=member_sets, random=st.randoms())
def test_every_queue_has_exactly_one_reader(
    strategy: AllocationStrategy, queues: set[MessageQueue], members: set[str], random: Random
) -> None:
    found = shares(strategy, queues, members, random)

    assert Counter(queue for share in found.values() for queue in share) == Counter(queues)
    assert all(share == sorted(share) for share in found.values())


@pytest.mark.parametrize("strategy", EVENLY, ids=kind)
@given(queues=queue_sets, members=member_sets, random=st.randoms())
def test_even_shares_differ_by_one_queue_at_most(
    strategy: AllocationStrategy, queues: set[MessageQueue], members: set[str], random: Random
) -> None:
    sizes = [len(share) for share in shares(strategy, queues, members, random).values()]

    assert max(sizes) - min(sizes) <= 1


@given(queues=queue_sets, members=member_sets, newcomer=st.text(min_size=1), random=st.randoms())
def test_on_the_ring_queues_move_to_a_newcomer_only(
    queues: set[MessageQueue], members: set[str], newcomer: str, random: Random
) -> None:
    """Read backwards: when a member goes, its own queues move and no others."""
    before = shares(ConsistentHash(), queues, members - {newcomer}, random)

    after = shares(ConsistentHash(), queues, members | {newcomer}, random)

    for member, share in before.items():
        assert set(after[member]) == set(share) - set(after[newcomer])


@given(queues=queue_sets, members=member_sets)
def test_a_room_with_members_reads_its_own_queues(
    queues: set[MessageQueue], members: set[str]
) -> None:
    inhabited = {member[0] for member in members}
    for member in members:
        for queue in allocate(MachineRoomNearby(Averagely()), queues, members, member):
            assert queue.broker_name[0] == member[0] or queue.broker_name[0] not in inhabited


def test_the_averages_are_those_of_the_worked_examples() -> None:
    """RocketMQ's: ten queues among four members, four among three."""

    def table(strategy: AllocationStrategy, queues: int, members: int) -> list[list[int]]:
        listed = [MessageQueue("orders", "a", queue_id) for queue_id in range(queues)]
        names = [f"m{n}" for n in range(members)]
        return [[q.queue_id for q in allocate(strategy, listed, names, name)] for name in names]

    assert table(Averagely(), 10, 4) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert table(AveragelyByCircle(), 10, 4) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    assert table(Averagely(), 4, 3) == [[0, 1], [2], [3]]
    assert table(Averagely(), 2, 3) == [[0], [1], []]


def test_a_machine_room_shares_out_what_is_left_over_by_turns() -> None:
    queues = [MessageQueue("orders", "r@a", queue_id) for queue_id in range(10)]
    strategy, members = ByMachineRoom(frozenset("r")), ["m0", "m1", "m2", "m3"]

    found = [[q.queue_id for q in allocate(strategy, queues, members, name)] for name in members]

    assert found == [[0, 1, 8], [2, 3, 9], [4, 5], [6, 7]]


@pytest.mark.parametrize("broker_name", ["elsewhere@a", "r", "r@", "@a", "r@a@b"])
def test_a_queue_of_no_room_of_ours_is_not_read(broker_name: str) -> None:
    queues = [MessageQueue("orders", broker_name, 0)]

    assert allocate(ByMachineRoom(frozenset("r")), queues, ["m"], "m") == []


@pytest.mark.parametrize("strategy", [*EVERYTHING, ByConfig()], ids=kind)
def test_who_is_not_listed_gets_nothing(strategy: AllocationStrategy) -> None:
    queues = [MessageQueue("orders", "r@a", 0)]

    assert allocate(strategy, queues, ["r@other"], "r@me") == []
    assert allocate(strategy, queues, [], "r@me") == []
    assert allocate(strategy, [], ["r@me"], "r@me") == []


def test_of_a_configured_list_counts_what_the_topic_has() -> None:
    here, gone, other = (
        MessageQueue("orders", "a", 0),
        MessageQueue("orders", "a", 7),
        MessageQueue("payments", "a", 0),
    )
    strategy = ByConfig((other, gone, here))

    assert strategy.share([here], ["m"], "m") == [other, gone, here]
    assert allocate(strategy, [here], ["m"], "m") == [here]


@pytest.mark.parametrize(
    ("queues", "members", "member", "fault"),
    [
        ([], [], "", AllocationFault.MEMBER_EMPTY),
        ([], [], "m", AllocationFault.QUEUES_EMPTY),
        ([MessageQueue("orders", "r@a", 0)], [], "m", AllocationFault.MEMBERS_EMPTY),
    ],
)
@pytest.mark.parametrize("strategy", EVERYTHING, ids=kind)
def test_a_strategy_refuses_empty_lists(
    strategy: AllocationStrategy,
    queues: list[MessageQueue],
    members: list[str],
    member: str,
    fault: AllocationFault,
) -> None:
    with pytest.raises(AllocationError) as caught:
        strategy.share(queues, members, member)

    assert caught.value.fault is fault


def test_a_ring_without_nodes_gives_nothing_and_one_with_fewer_is_refused() -> None:
    queues = [MessageQueue("orders", "a", 0)]

    assert allocate(ConsistentHash(virtual_nodes=0), queues, ["m"], "m") == []
    with pytest.raises(AllocationError) as caught:
        ConsistentHash(virtual_nodes=-1)
    assert caught.value.fault is AllocationFault.VIRTUAL_NODES_NEGATIVE


def test_of_two_nodes_at_one_place_the_later_one_stays() -> None:
    strategy = ConsistentHash(virtual_nodes=1, position=lambda _: 7)

    assert strategy.ring(["m", "n"]) == [(7, "n-0", "n")]


def test_rooms_nobody_knows_are_an_error() -> None:
    near, lost = MessageQueue("orders", "r@a", 0), MessageQueue("orders", "a", 0)
    strategy = MachineRoomNearby(Averagely(), NamedMachineRooms())

    with pytest.raises(AllocationError, match=r"machine room of .* is unknown") as caught:
        allocate(strategy, [near, lost], ["r@m"], "r@m")
    assert caught.value.fault is AllocationFault.QUEUE_ROOM_UNKNOWN
    with pytest.raises(AllocationError, match="'m'") as caught:
        allocate(strategy, [near], ["m", "r@m"], "r@m")
    assert caught.value.fault is AllocationFault.MEMBER_ROOM_UNKNOWN


def test_rooms_without_members_are_visited_in_javas_order() -> None:
    """A character beyond the basic plane sorts before U+FFFD there, and after it in Python."""

    @dataclass(frozen=True)
    class Rooms:
        def room_of_queue(self, queue: MessageQueue) -> str:
            return queue.broker_name

        def room_of_member(self, _: str) -> str:
            return "mine"

    queues = [MessageQueue("orders", room, 0) for room in ("\ufffd", "\U0001f33f", "mine")]

    found = MachineRoomNearby(Averagely(), Rooms()).share(queues, ["m"], "m")

    assert [queue.broker_name for queue in found] == ["mine", "\U0001f33f", "\ufffd"]
    assert sorted_members(["\ufffd", "\U0001f33f"]) == ["\U0001f33f", "\ufffd"]


@pytest.mark.parametrize(
    ("strategy", "name"),
    [
        (Averagely(), "AVG"),
        (AveragelyByCircle(), "AVG_BY_CIRCLE"),
        (ByConfig(), "CONFIG"),
        (ByMachineRoom(frozenset()), "MACHINE_ROOM"),
        (ConsistentHash(), "CONSISTENT_HASH"),
        (MachineRoomNearby(AveragelyByCircle()), "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"),
    ],
)
def test_a_strategy_has_rocketmqs_name(strategy: AllocationStrategy, name: str) -> None:
    assert strategy.name == name
