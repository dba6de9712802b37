"""A producer that sends ahead, and the broker: lost connections, refusals, restarts, late packets.

The producer is its decisions (:class:`SendAhead`), and batches that are sent again until they are
stored or given up. The broker is its table of lanes and a log. Between them are connections: each
is two queues, of requests and of answers. A connection that the producer has given up may still
deliver requests, later, and in any interleaving with newer ones.

The promises:

1. First copies of batches are stored in the order in which the program has sent them.
2. Later copies repeat a suffix in its order: at the end the last copies are in order, too.
3. A batch that is reported as stored is stored.
4. Every batch is stored once nothing fails any more.
5. Several batches under way have a limited number of bytes together.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eruca.contract.errors import LaneGapError
from eruca.contract.wire import LanePosition
from eruca.core.producing.send_ahead import AHEAD_BYTES_MAX, Seat, SendAhead
from eruca_broker.core.batches.lanes import Lanes

AHEAD_MAX: Final = 4
LANE: Final = b"the lane"
URLS: Final = ("http://one", "http://two")

pick = st.integers(0, 99)
rarely = st.integers(0, 4).map(lambda number: number == 4)
small = AHEAD_BYTES_MAX // AHEAD_MAX
sizes = st.lists(
    st.sampled_from([small, small, small * 2, AHEAD_BYTES_MAX * 2]), min_size=1, max_size=AHEAD_MAX
)


class Request:
    """One attempt."""

    def __init__(self, number: int, position: LanePosition | None) -> None:
        self.number = number
        self.position = position


class Connection:
    """Requests on their way, and their answers: True if the batch is stored."""

    def __init__(self) -> None:
        self.there: deque[Request] = deque()
        self.at_broker: deque[Request] = deque()  # in progress or answered, in order
        self.outcomes: dict[Request, bool] = {}  # of those
        self.is_lost = False


class Batch:
    """A batch of the producer that is not finished."""

    def __init__(self, number: int, seat: Seat) -> None:
        self.number = number
        self.seat = seat
        self.connection: Connection | None = None  # of the attempt under way
        self.position: LanePosition | None = None  # … and its position


class SendingAhead(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ahead = SendAhead(LANE)
        self.lanes = Lanes(count_max=2)
        self.url = URLS[0]
        self.batches: list[Batch] = []  # unfinished, in order
        self.count = 0
        self.others = 0  # other producers' lanes
        self.stored: set[int] = set()  # reported as stored
        self.given_up: set[int] = set()
        self.log: list[int] = []  # written
        self.places: dict[Request, int] = {}  # there
        self.survives = 0  # entries of the log that were answered, or are before such a one
        self.accepted: list[tuple[Request, Connection]] = []  # not written yet
        self.pipe = Connection()
        self.connections = [self.pipe]
        self.abandoned: list[Connection] = []
        self.are_fenced = True  # no late request can pass for a new one
        self.needs_fence = False  # requests with a position may be on their way still

    # --- The producer -----------------------------------------------------------------------------

    @property
    def room(self) -> int:
        return (AHEAD_MAX if self.ahead.is_ahead else 1) - len(self.batches)

    @precondition(lambda self: self.room > 0)
    @rule(sizes=sizes, is_wanted=st.sampled_from([True, True, False]))
    def dispatch(self, sizes: list[int], is_wanted: bool) -> None:
        """The lane sends the next batches as soon as there is room."""
        if is_wanted:
            self.ahead.is_wanted = True
        for size in sizes[: self.room]:
            self.batches.append(Batch(self.count, self.ahead.enter(size)))
            self.count += 1
        self.send_what_may_be_sent()

    @initialize()
    def begin(self) -> None:
        self.go_ahead()

    @rule()
    def go_ahead(self) -> None:
        """Nothing fails for a while, and batches wait: the lane sends ahead then."""
        self.settle()
        self.ahead.is_wanted = True
        for _ in range(2):
            if not self.ahead.is_ahead:
                self.dispatch([small], is_wanted=True)
                self.settle()
        assert self.ahead.is_ahead
        self.dispatch([small] * AHEAD_MAX, is_wanted=True)
        assert self.ahead.under_way_count == AHEAD_MAX

    @precondition(lambda self: not self.batches)
    @rule(is_now=rarely)
    def rest(self, is_now: bool) -> None:
        if is_now:
            self.ahead.rest()

    def send_what_may_be_sent(
        self, *, may_have_position: bool = True, has_connection: bool = True
    ) -> None:
        for batch in self.batches:
            if batch.connection is not None:
                continue
            is_next = self.ahead.is_next(batch.seat)
            turn = self.ahead.turn(
                batch.seat,
                self.url,
                may_have_position=may_have_position,
                has_connection=has_connection,
            )
            assert turn is None or is_next
            if turn is None:
                continue
            if may_have_position and self.needs_fence:
                assert turn.position is not None, "late requests are shut out"
            batch.position = turn.position
            if turn.is_ahead:
                assert has_connection
                batch.connection = self.pipe
                if self.pipe.is_lost:
                    continue  # it is not sent; the program learns that later
            else:
                if turn.position is not None:  # the next epoch has another one
                    self.pipe = Connection()
                    self.connections.append(self.pipe)
                batch.connection = Connection()
                self.connections.append(batch.connection)
            assert turn.position is None or turn.position.lane == LANE
            batch.connection.there.append(Request(batch.number, turn.position))
            if turn.position is None and any(c.there for c in self.abandoned):
                self.are_fenced = False

    @precondition(lambda self: any(batch.connection is None for batch in self.batches))
    @rule(
        may_have_position=st.sampled_from([True, True, True, False]),
        has_connection=st.sampled_from([True, True, False]),
    )
    def send_again(self, may_have_position: bool, has_connection: bool) -> None:
        self.send_what_may_be_sent(
            may_have_position=may_have_position, has_connection=has_connection
        )

    @precondition(lambda self: any(c.outcomes for c in self.connections))
    @rule(number=pick)
    def hear(self, number: int) -> None:
        """An answer arrives; answers of a connection come in the order of its requests."""
        ready = [c for c in self.connections if c.at_broker and c.at_broker[0] in c.outcomes]
        if not ready:
            return
        connection = ready[number % len(ready)]
        request = connection.at_broker.popleft()
        is_stored = connection.outcomes.pop(request)
        [batch] = [b for b in self.batches if b.number == request.number]
        assert batch.connection is connection
        batch.connection = None
        if is_stored:
            self.survives = max(self.survives, self.places[request] + 1)
            self.ahead.stored(batch.seat)
            self.finish(batch)
            self.stored.add(batch.number)
            self.needs_fence = self.needs_fence and batch.position is None
        else:
            self.fail(batch)
        if connection is not self.pipe:
            self.connections.remove(connection)

    def fail(self, batch: Batch) -> None:
        self.ahead.failed(batch.seat)
        self.needs_fence = self.needs_fence or batch.position is not None

    def finish(self, batch: Batch) -> None:
        self.ahead.leave(batch.seat)
        self.batches.remove(batch)

    @precondition(lambda self: any(batch.connection for batch in self.batches))
    @rule(number=pick, is_late=st.booleans())
    def lose_connection(self, number: int, is_late: bool) -> None:
        """Every outcome on it is unknown; what is on its way is lost, or arrives later."""
        used = [batch.connection for batch in self.batches if batch.connection is not None]
        self.abandon(used[number % len(used)], is_late=is_late)

    def abandon(self, connection: Connection, *, is_late: bool) -> None:
        connection.is_lost = True
        if connection in self.connections:
            self.connections.remove(connection)
        if is_late and connection.there and connection not in self.abandoned:
            self.abandoned.append(connection)
            if any(request.position is None for request in connection.there):
                self.are_fenced = False  # as without lanes: a late copy may come at any time

    @property
    def losers(self) -> list[Batch]:
        """The batches under way on lost connections."""
        return [b for b in self.batches if b.connection is not None and b.connection.is_lost]

    @precondition(lambda self: self.losers)
    @rule(number=pick)
    def hear_of_loss(self, number: int) -> None:
        """The attempts on a lost connection end one after the other."""
        batch = self.losers[number % len(self.losers)]
        batch.connection = None
        self.fail(batch)

    @precondition(lambda self: any(batch.connection is None for batch in self.batches))
    @rule(number=pick, is_now=rarely)
    def give_up(self, number: int, is_now: bool) -> None:
        """A batch has failed for good, or was withdrawn; nobody knows whether it is stored."""
        if not is_now:
            return
        waiting = [batch for batch in self.batches if batch.connection is None]
        batch = waiting[number % len(waiting)]
        self.finish(batch)
        self.given_up.add(batch.number)

    # --- The broker -------------------------------------------------------------------------------

    @precondition(lambda self: any(c.there for c in self.connections))
    @rule(number=pick, count=st.integers(1, AHEAD_MAX))
    def arrive(self, number: int, count: int) -> None:
        ready = [c for c in self.connections if c.there]
        connection = ready[number % len(ready)]
        for _ in range(min(count, len(connection.there))):
            self.receive(connection)

    @precondition(lambda self: any(c.there for c in self.abandoned))
    @rule(number=pick)
    def arrive_late(self, number: int) -> None:
        ready = [c for c in self.abandoned if c.there]
        self.receive(ready[number % len(ready)])

    @precondition(lambda self: any(c.there for c in self.connections))
    @rule(number=pick)
    def refuse_at_the_head(self, number: int) -> None:
        """Overload, or a missing right: the broker has not seen the position."""
        ready = [c for c in self.connections if c.there]
        connection = ready[number % len(ready)]
        request = connection.there.popleft()
        connection.at_broker.append(request)
        connection.outcomes[request] = False

    def receive(self, connection: Connection) -> None:
        request = connection.there.popleft()
        connection.at_broker.append(request)
        if request.position is not None:
            try:
                self.lanes.check(request.position)
            except LaneGapError:
                connection.outcomes[request] = False
                return
            self.lanes.accept(request.position)
        self.accepted.append((request, connection))

    @precondition(lambda self: self.accepted)
    @rule()
    def write(self) -> None:
        for request, connection in self.accepted:
            self.places[request] = len(self.log)
            self.log.append(request.number)
            connection.outcomes[request] = True
        self.accepted.clear()

    @precondition(lambda self: self.accepted)
    @rule(goes_on=st.booleans())
    def fail_to_write(self, goes_on: bool) -> None:
        """Later batches may arrive before the producer knows."""
        self.take_back()
        if goes_on:
            for connection in self.connections:
                while connection.there:
                    self.receive(connection)

    def take_back(self) -> None:
        for request, connection in self.accepted:
            if request.position is not None:
                self.lanes.close(request.position)
            connection.outcomes[request] = False
        self.accepted.clear()

    @rule(is_other_broker=st.booleans(), count=st.integers(0, AHEAD_MAX), is_now=rarely)
    def restart(self, is_other_broker: bool, count: int, is_now: bool) -> None:
        """The broker dies, with its lanes and connections; some of the last writes are lost.

        Those were not answered: an answer waits until its message survives.
        """
        if not is_now:
            return
        self.accepted.clear()
        for connection in self.connections[:]:
            self.abandon(connection, is_late=False)
        self.abandoned.clear()
        kept = max(len(self.log) - count, self.survives)
        del self.log[kept:]
        self.lanes = Lanes(count_max=2)
        if is_other_broker:
            self.url = URLS[self.url == URLS[0]]

    @rule(count=st.integers(1, 2), is_now=rarely)
    def forget_lanes(self, count: int, is_now: bool) -> None:
        """Other producers need the room."""
        if not is_now:
            return
        for _ in range(count):
            self.others += 1
            self.lanes.accept(LanePosition(b"other %d" % self.others, 1, 0))
        if self.abandoned:
            self.are_fenced = False

    # --- The promises -----------------------------------------------------------------------------

    @invariant()
    def first_copies_are_in_order(self) -> None:
        firsts = [n for n in dict.fromkeys(self.log) if n not in self.given_up]
        assert firsts == sorted(firsts), self.log

    @invariant()
    def what_is_reported_is_stored(self) -> None:
        assert self.stored <= set(self.log)

    @invariant()
    def several_are_small_together(self) -> None:
        assert self.ahead.under_way_count <= 1 or self.ahead.bytes_under_way <= AHEAD_BYTES_MAX

    def settle(self) -> None:
        """Let everything that is not late arrive, and be answered."""
        for _ in range(200):
            if not self.batches:
                break
            while self.losers:
                self.hear_of_loss(0)
            self.send_what_may_be_sent()
            for connection in self.connections[:]:
                while connection.there:
                    self.receive(connection)
            if self.accepted:
                self.write()
            while any(c.at_broker for c in self.connections):
                self.hear(0)
        assert not self.batches, "a batch waits for ever"

    def teardown(self) -> None:
        self.settle()
        for connection in self.abandoned:
            while connection.there:
                self.receive(connection)
        if self.accepted:
            self.write()
        self.first_copies_are_in_order()
        if self.are_fenced:
            lasts = [n for n in dict.fromkeys(reversed(self.log)) if n not in self.given_up]
            assert lasts == sorted(lasts, reverse=True), self.log


TestSendingAhead = SendingAhead.TestCase
TestSendingAhead.settings = settings(max_examples=400, stateful_step_count=40, deadline=None)
