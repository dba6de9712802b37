"""A small broker group whose every interleaving can be searched.

A world is the arbiter's row, some replicas, and the requests and answers on their way. Everything
that decides is the product's (:mod:`eruca_broker.core.replication`). The world carries messages,
appends, crashes, and cuts the power. A record is a pair (epoch, write); write 0 begins an epoch. So
a log offset is an index here.

Messages arrive in any order and at any time, or never, which is the same as a broken network.
Nothing has a time: a replica may propose itself whenever the rules let it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from eruca_broker.core.replication.broker_group import (
    NO_CHANGE,
    BrokerGroup,
    Change,
    GroupChangeError,
    Member,
)
from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.core.replication.in_sync import (
    Copies,
    StaleEpochError,
    UnprovedReplicaError,
)
from eruca_broker.core.replication.lineage import Lineage, check_cut, common_end
from eruca_broker.core.replication.roles import restated

Log = tuple[tuple[int, int], ...]
BRANCH: Final = 100  # added to versions that are made after a restore: they are other ones


class BrokenPromiseError(Exception):
    """A world in which an answer no longer holds."""


@dataclass(frozen=True)
class Rules:
    """The shell's own rules, each of which a mutation may turn off."""

    is_sync: bool = False  # an acknowledged record survives a power cut
    new_term_after_restart: bool = True
    new_uid_after_power_cut: bool = True  # of a store that may have lost records
    new_uid_after_wipe: bool = True
    read_settles_no_request: bool = True  # unless the row has changed since
    answer_settles_its_request: bool = True  # and no later one
    proves_lineage: bool = True
    cuts_by_lineage: bool = True  # not by the confirmed offset
    continues_from_end: bool = True  # a new master keeps what it does not know to be confirmed
    acknowledges_durable: bool = True
    fetches_ahead: bool = False  # a second run while the first is on its way
    acknowledges_held: bool = True  # and not the run that is on its way
    asks_for_known: bool = True  # before a term: whether anybody knows a later row
    restates_lost_changes: bool = True  # a master whose set the arbiter has forgotten


class Replica(NamedTuple):
    """One store and the process that serves it."""

    uid: int = 0
    log: Log = ()
    durable: int = 0  # records that survive a power cut
    visible: int = 0
    epoch: int = 0  # the one it follows or leads
    leads: bool = False
    is_proved: bool = False  # its lineage, in this epoch
    proposed: int = 0  # the epoch that this process has asked for
    run: int = 0  # number of the process
    is_waiting: bool = False  # for an answer of the master
    is_ahead: bool = False  # … and for a second one
    is_asking: bool = False  # … of the arbiter
    copies: Copies | None = None  # of a master
    asked_version: int = -1  # of the row, when it asked for a change
    known: Change = NO_CHANGE  # the latest row that its processes have known


class Message(NamedTuple):
    """A request of replica *of*, or the answer to it."""

    kind: str
    of: int
    uid: int
    run: int
    to: int = -1
    epoch: int = 0
    begun: int = 0  # log offset from which it fetches
    place: int = 0  # an offset, or a version of the row
    log: Log = ()
    row: BrokerGroup | None = None
    number: int = 0  # of the change that made the row


class Budget(NamedTuple):
    """Number of events that may still happen."""

    writes: int = 2
    terms: int = 2
    changes: int = 2  # of the in-sync set
    crashes: int = 0
    power_cuts: int = 0
    wipes: int = 0
    restores: int = 0  # of the arbiter, from a copy of the same epoch


class World(NamedTuple):
    """All that is, at one moment."""

    row: BrokerGroup
    version: int
    replicas: tuple[Replica, ...]
    net: frozenset[Message]
    shown: Log  # records that anybody was ever shown
    budget: Budget
    older: tuple[tuple[BrokerGroup, int], ...] = ()  # earlier rows of this epoch; their versions
    is_restored: bool = False

    @property
    def change(self) -> Change:
        """The place of the row among all rows."""
        return Change(self.row.epoch, self.version % BRANCH)


def epochs_of(log: Log) -> EpochTable:
    """Return the epochs of a log."""
    return EpochTable(tuple(Epoch(epoch, at) for at, (epoch, write) in enumerate(log) if not write))


def lineage_of(log: Log) -> Lineage:
    """Return the extent of a log."""
    return Lineage(epochs_of(log), len(log))


class Worlds:
    """The worlds that can follow each other under *rules*."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def first(self, count: int, budget: Budget, *, in_sync: int) -> World:
        """Return a group of *count* replicas, of which the first *in_sync* have all of the log.

        Replica 0 is the master, in epoch 1.
        """
        members = [Member(index + 1, "0") for index in range(count)]
        row = BrokerGroup(1, members[0], frozenset(members[:in_sync]))
        log: Log = ((1, 0),)
        copies = Copies(1, members[0], row.in_sync)
        replicas = []
        for index in range(count):
            its: Log = log if index < in_sync else ()
            replicas.append(Replica(log=its, durable=len(its), epoch=1))
            if 0 < index < in_sync:
                copies = copies.proved(members[index]).acknowledged(
                    members[index], epoch=1, log_offset=1, written_end=1
                )
                replicas[index] = replicas[index]._replace(is_proved=True, visible=1)
        copies = copies.advanced(1)
        replicas[0] = replicas[0]._replace(leads=True, visible=1, copies=copies)
        return World(row, 1, tuple(replicas), frozenset(), log, budget)

    def following(self, world: World) -> Iterator[World]:
        """Yield each world that may be next.

        Raises:
            BrokenPromiseError: One of them breaks a promise.
        """
        for index in range(len(world.replicas)):
            yield from self._acts(world, index)
        if budget_left := world.budget.restores:
            spent = world.budget._replace(restores=budget_left - 1)
            # Requests to the processes before it are lost, and so are their answers. A replica
            # that repeats a request asks the others again, as before a new one.
            lost = frozenset(one for one in world.net if one.kind in ("ask", "answer"))
            senders = {(message.of, message.run) for message in lost}
            replicas = tuple(
                replica._replace(is_asking=False, asked_version=-1)
                if not replica.leads and (index, replica.run) in senders
                else replica
                for index, replica in enumerate(world.replicas)
            )
            for row, version in world.older:
                yield self._settled(
                    world._replace(
                        row=row,
                        version=version,
                        older=tuple(one for one in world.older if one[1] < version),
                        budget=spent,
                        net=world.net - lost,
                        replicas=replicas,
                        is_restored=True,
                    )
                )
        for message in world.net:
            yield from self._arrival(world._replace(net=world.net - {message}), message)

    # --- What a replica does by itself ------------------------------------------------------------

    def _acts(self, world: World, index: int) -> Iterator[World]:
        me, budget = world.replicas[index], world.budget
        member = self._member(me, index)
        yield from self._accidents(world, index)
        if world.row.epoch > me.epoch:
            yield self._settled(self._adopted(world, index))
        if me.leads:
            yield from self._lead(world, index, member)
            return
        is_barred = self.rules.asks_for_known and any(
            replica.known > world.change for replica in world.replicas
        )
        if budget.terms and not me.is_asking and not is_barred:
            spent = world._replace(budget=budget._replace(terms=budget.terms - 1))
            with suppress(GroupChangeError):
                row = world.row.next_term(member)
                yield self._asked(spent, index, row, proposed=row.epoch)
        master = self._leader(world, me.epoch)
        if master is not None and master != index and not me.is_waiting:
            yield self._fetched(world, index, master)
        if self.rules.fetches_ahead and me.is_waiting and not me.is_ahead:
            sent = [m for m in world.net if m.kind == "fetched" and m.of == index and m.log]
            for answer in sent:
                if (answer.run, answer.epoch, answer.begun) == (me.run, me.epoch, len(me.log)):
                    yield self._fetched_ahead(world, index, answer)
        if self.rules.is_sync and me.durable < len(me.log):
            yield self._with(world, index, me._replace(durable=len(me.log)))

    def _lead(self, world: World, index: int, member: Member) -> Iterator[World]:
        me, budget, copies = world.replicas[index], world.budget, world.replicas[index].copies
        assert copies is not None
        if budget.writes:
            written = self._appended(me, (me.epoch, budget.writes))
            spent = world._replace(budget=budget._replace(writes=budget.writes - 1))
            yield self._settled(self._advanced(self._with(spent, index, written), index))
        if self.rules.is_sync and me.durable < len(me.log):
            flushed = self._with(world, index, me._replace(durable=len(me.log)))
            yield self._settled(self._advanced(flushed, index))
        if copies.asked is not None:
            has_moved = world.version != me.asked_version
            if world.row.epoch == me.epoch and (
                has_moved or not self.rules.read_settles_no_request
            ):
                settled = me._replace(asked_version=-1, is_asking=False)
                settled = self._told(settled, world.row, world.change.number)
                yield self._settled(self._advanced(self._with(world, index, settled), index))
        elif me.known > world.change:
            if self.rules.restates_lost_changes and not me.is_asking:
                row = restated(member, me.epoch, copies.known)
                yield self._asked(world, index, row, proposed=row.epoch)
        elif budget.changes and world.row.epoch == me.epoch:
            spent = world._replace(budget=budget._replace(changes=budget.changes - 1))
            for other, its in enumerate(world.replicas):
                named = self._member(its, other)
                if copies.may_join(named):
                    yield self._change(spent, index, world.row.with_member(member, named))
            for named in copies.known - {member}:
                yield self._change(spent, index, world.row.without(member, named))

    def _change(self, world: World, index: int, row: BrokerGroup) -> World:
        me = world.replicas[index]
        assert me.copies is not None
        copies = me.copies.asking(row.in_sync)
        return self._asked(self._with(world, index, me._replace(copies=copies)), index, row)

    def _accidents(self, world: World, index: int) -> Iterator[World]:
        me, budget = world.replicas[index], world.budget
        restarted = me._replace(
            epoch=me.epoch if not self.rules.new_term_after_restart else epochs_of(me.log).last,
            leads=me.leads and not self.rules.new_term_after_restart,
            copies=me.copies if not self.rules.new_term_after_restart else None,
            is_proved=False,
            proposed=0,
            run=me.run + 1,
            is_waiting=False,
            is_ahead=False,
            is_asking=False,
            asked_version=-1,
        )
        if budget.crashes:
            spent = world._replace(budget=budget._replace(crashes=budget.crashes - 1))
            yield self._settled(self._with(spent, index, restarted))
        if budget.power_cuts:
            spent = world._replace(budget=budget._replace(power_cuts=budget.power_cuts - 1))
            is_new = not self.rules.is_sync and self.rules.new_uid_after_power_cut
            for end in range(me.durable if self.rules.is_sync else 0, len(me.log) + 1):
                lost = restarted._replace(
                    log=me.log[:end],
                    durable=end,
                    visible=min(me.visible, end),
                    epoch=epochs_of(me.log[:end]).last if not restarted.leads else me.epoch,
                    uid=me.uid + is_new,
                )
                yield self._settled(self._with(spent, index, lost))
        if budget.wipes and not me.leads:
            spent = world._replace(budget=budget._replace(wipes=budget.wipes - 1))
            uid = me.uid + self.rules.new_uid_after_wipe  # what it knew is gone as well
            yield self._settled(self._with(spent, index, Replica(uid=uid, run=me.run + 1)))

    def _adopted(self, world: World, index: int) -> World:
        """Follow the row's epoch, or lead it if this process has asked for it."""
        me = world.replicas[index]
        member = self._member(me, index)
        epoch = world.row.epoch
        follower = me._replace(
            epoch=epoch,
            leads=False,
            is_proved=not self.rules.proves_lineage,
            is_waiting=False,
            is_ahead=False,
            is_asking=False,
            copies=None,
            asked_version=-1,
            known=max(me.known, world.change),
        )
        if world.row.master != member or me.proposed != epoch:
            return self._with(world, index, follower)
        if not self.rules.continues_from_end:
            follower = follower._replace(log=me.log[: me.visible])
        copies = Copies(epoch, member, world.row.in_sync, confirmed=me.visible)
        leader = self._appended(follower._replace(leads=True, copies=copies), (epoch, 0))
        return self._advanced(self._with(world, index, leader), index)

    def _fetched(self, world: World, index: int, master: int) -> World:
        me = world.replicas[index]
        held = me.durable if self.rules.acknowledges_durable else len(me.log)
        kind = "fetch" if me.is_proved else "prove"
        sender = (index, me.uid, me.run, master, me.epoch)
        message = (
            Message(kind, *sender, begun=len(me.log), place=held)
            if me.is_proved
            else Message(kind, *sender, log=me.log)
        )
        waiting = self._with(world, index, me._replace(is_waiting=True))
        return self._settled(waiting._replace(net=world.net | {message}))

    def _fetched_ahead(self, world: World, index: int, answer: Message) -> World:
        """Let a replica fetch what follows the run in *answer*, which it does not have yet."""
        me = world.replicas[index]
        begun = len(me.log) + len(answer.log)
        held = me.durable if self.rules.acknowledges_held else begun
        fetch = Message(
            "fetch", index, me.uid, me.run, answer.to, me.epoch, begun=begun, place=held
        )
        waiting = self._with(world, index, me._replace(is_ahead=True))
        return self._settled(waiting._replace(net=world.net | {fetch}))

    # --- What arrives -----------------------------------------------------------------------------

    def _arrival(self, world: World, message: Message) -> Iterator[World]:
        match message.kind:
            case "prove" | "fetch":
                arrived = self._at_master(world, message)
            case "proved" | "fetched":
                arrived = self._at_replica(world, message)
            case "ask":
                arrived = self._at_arbiter(world, message)
            case _:
                arrived = self._answered(world, message)
        yield self._settled(arrived)

    def _at_master(self, world: World, message: Message) -> World:
        me = world.replicas[message.to]
        copies = me.copies
        assert copies is not None
        member = Member(message.of + 1, str(message.uid))
        if message.kind == "prove":
            cut_to = common_end(lineage_of(me.log), lineage_of(message.log))
            if not self.rules.cuts_by_lineage:
                cut_to = world.replicas[message.of].visible
            copies = copies.proved(member)
            answer = message._replace(kind="proved", place=cut_to, log=())
        else:
            try:
                copies = copies.acknowledged(
                    member,
                    epoch=message.epoch,
                    log_offset=message.place,
                    written_end=len(me.log),
                )
            except (StaleEpochError, UnprovedReplicaError):
                return world
            rest = me.log[message.begun :]
            answer = message._replace(kind="fetched", place=copies.confirmed, log=rest)
        world = self._with(world, message.to, me._replace(copies=copies))
        return self._advanced(world._replace(net=world.net | {answer}), message.to)

    def _at_replica(self, world: World, message: Message) -> World:
        me = world.replicas[message.of]
        me = me._replace(is_ahead=False) if me.is_ahead else me._replace(is_waiting=False)
        if message.kind == "proved":
            if self.rules.cuts_by_lineage:
                check_cut(message.place, visible_offset=me.visible, master=EpochTable())
            log = me.log[: message.place]
            durable = min(me.durable, len(log))
            me = me._replace(is_proved=True, log=log, durable=durable)
        elif message.begun == len(me.log):
            log = me.log + message.log
            visible = max(me.visible, min(message.place, len(log)))
            me = me._replace(
                log=log, visible=visible, durable=me.durable if self.rules.is_sync else len(log)
            )
        return self._with(world, message.of, me)

    def _at_arbiter(self, world: World, message: Message) -> World:
        assert message.row is not None
        if message.place == world.version:
            older = (*world.older, (world.row, world.version)) if world.budget.restores else ()
            if message.row.epoch > world.row.epoch:
                older = ()
            version = world.version % BRANCH + 1 + BRANCH * world.is_restored
            world = world._replace(row=message.row, version=version, older=older)
        answer = message._replace(kind="answer", row=world.row, number=world.change.number)
        return world._replace(net=world.net | {answer})

    def _answered(self, world: World, message: Message) -> World:
        me, row = world.replicas[message.of], message.row
        assert row is not None
        if self.rules.answer_settles_its_request and message.place != me.asked_version:
            return world
        me = me._replace(is_asking=False, asked_version=-1)
        if me.copies is not None and row.epoch == me.epoch and me.copies.asked is not None:
            me = self._told(me, row, message.number)
            return self._advanced(self._with(world, message.of, me), message.of)
        return self._with(world, message.of, me)

    def _told(self, me: Replica, row: BrokerGroup, number: int) -> Replica:
        """Let a master settle its change by a row of its epoch, unless that is an older one."""
        assert me.copies is not None
        change = Change(row.epoch, number)
        if change < me.known:
            return me._replace(copies=me.copies.answered(me.copies.known))
        return me._replace(copies=me.copies.answered(row.in_sync), known=change)

    # --- Parts ------------------------------------------------------------------------------------

    def _member(self, replica: Replica, index: int) -> Member:
        return Member(index + 1, str(replica.uid))

    def _with(self, world: World, index: int, replica: Replica) -> World:
        replicas = world.replicas
        return world._replace(replicas=(*replicas[:index], replica, *replicas[index + 1 :]))

    def _leader(self, world: World, epoch: int) -> int | None:
        for index, replica in enumerate(world.replicas):
            if replica.leads and replica.epoch == epoch:
                return index
        return None

    def _appended(self, replica: Replica, record: tuple[int, int]) -> Replica:
        log = (*replica.log, record)
        return replica._replace(
            log=log, durable=replica.durable if self.rules.is_sync else len(log)
        )

    def _asked(self, world: World, index: int, row: BrokerGroup, *, proposed: int = 0) -> World:
        me = world.replicas[index]
        message = Message("ask", index, me.uid, me.run, place=world.version, row=row)
        asking = me._replace(
            is_asking=True, asked_version=world.version, proposed=proposed or me.proposed
        )
        return self._with(world, index, asking)._replace(net=world.net | {message})

    def _advanced(self, world: World, index: int) -> World:
        """Publish what the master now knows to be confirmed."""
        me = world.replicas[index]
        assert me.copies is not None
        copies = me.copies.advanced(me.durable)
        visible = max(me.visible, copies.confirmed)
        return self._with(world, index, me._replace(copies=copies, visible=visible))

    def _settled(self, world: World) -> World:
        """Drop messages that can have no effect; check the promises.

        Raises:
            BrokenPromiseError: One is broken.
        """
        shown = world.shown
        for replica in world.replicas:
            seen = replica.log[: replica.visible]
            if seen[: len(shown)] != shown[: len(seen)]:
                raise BrokenPromiseError(f"shown {seen}, earlier {shown}")
            shown = max(shown, seen, key=len)
        for replica in world.replicas:
            has_begun = replica.leads and replica.epoch == world.row.epoch
            if has_begun and replica.log[: len(shown)] != shown:
                raise BrokenPromiseError(f"master of {replica.epoch} has {replica.log} of {shown}")
        net = frozenset(message for message in world.net if self._matters(world, message))
        return world._replace(shown=shown, net=net)

    def _matters(self, world: World, message: Message) -> bool:
        me = world.replicas[message.of]
        match message.kind:
            case "prove" | "fetch":
                target = world.replicas[message.to]
                return target.leads and target.epoch >= message.epoch
            case "proved" | "fetched":
                return message.run == me.run and message.epoch == me.epoch and not me.leads
            case "ask":
                # A request from an earlier version fails; its sender only has to learn that.
                return message.place == world.version or message.run == me.run
            case _:
                is_awaited = me.is_asking or not self.rules.answer_settles_its_request
                return message.run == me.run and is_awaited
