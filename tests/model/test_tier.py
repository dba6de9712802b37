"""The tier's writers against a model: two brokers, suspended anywhere, elected anyhow.

Each request to the store is a step of its own, and a writer may be suspended, killed or overtaken
between two of them. Segments have names instead of bytes: a history is a list of names.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from eruca_broker.core.tier.faults import found_by_size, sound_end
from eruca_broker.core.tier.manifests import Manifest, TierSegment, faults, log_begin
from eruca_broker.core.tier.restoring import (
    UnrestorableError,
    check_room,
    chosen,
    extended,
    lost_of,
    size_of,
)
from eruca_broker.core.tier.steps import (
    FencedError,
    LogExtent,
    TierMismatchError,
    Writer,
    added,
    check_abandonment,
    check_fence,
    first_manifest,
    following,
    next_base,
    orphans,
    purged,
    reconciled,
    renewed,
    retained,
    to_compare,
    with_expired,
    without_missing,
)

SIZE = 100  # bytes of a segment
HOUR_MS = 3_600_000
BROKERS = st.integers(0, 1)


class Broker:
    """A broker's log, as names of closed segments, and what it does with the tier."""

    def __init__(self) -> None:
        self.segments: list[str] = []  # of the whole log, those deleted here included
        self.deleted = 0  # segments that retention has deleted here
        self.epoch = 0
        self.has_led = False  # a former master may go on as one, a replica never does
        self.shown: Manifest | None = None  # its readers' one; a restart remembers it
        self.reached = 0
        self.end_restart()

    def end_restart(self) -> None:
        """Forget everything that a process knows."""
        self.manifest: Manifest | None = None
        self.is_writer = False
        self.faults: set[str] = set()  # paths of objects that are known to be missing
        self.creating: Manifest | None = None  # the request that is under way
        self.deleting: list[str] = []  # … and those after it

    @property
    def extent(self) -> LogExtent:
        """The part of the log that is here."""
        end = len(self.segments) * SIZE
        return LogExtent(self.deleted * SIZE, end, end, SIZE)

    @property
    def writer(self) -> Writer:
        """The broker as a writer."""
        return Writer("eruca", "broker-a", "log", self.epoch)

    @property
    def tiered_to(self) -> int:
        """The number of segments that the tier has."""
        if not self.is_writer or self.manifest is None or self.creating is not None:
            return 0
        return sound_end(self.manifest, self.faults, self.deleted * SIZE) // SIZE


class TierMachine(RuleBasedStateMachine):
    """Two brokers of a group, and the object store."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers = [Broker(), Broker()]
        self.master = 0
        self.brokers[0].has_led = True
        self.objects: dict[str, str] = {}  # names of the segments, by path
        self.manifests: list[Manifest] = []  # number n is at index n - 1
        self.names = 0
        self.now_ms = 0
        self.floor = 0  # where the tier began last
        self.expired_bases: set[int] = set()  # … and what had expired then
        self.is_clean = True  # no election has lost anything
        self.is_older = False  # the master's store was replaced by an older copy
        self.lost: set[str] = set()  # paths of objects that something else has deleted
        self.has_expired_here = False  # a log that was restored begins before the tier
        self.unnoticed: set[str] = set()  # … which no broker knows yet
        self.waiting: list[list[int]] = []  # for each message that waits, where its copies are

    # --- The log ----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3))
    def close_segments(self, count: int) -> None:
        for _ in range(count):
            self.names += 1
            self.now_ms += HOUR_MS
            self.brokers[self.master].segments.append(f"{self.names}")

    @rule()
    def fail_over(self) -> None:
        """The other broker has everything that was confirmed, and retention follows the master."""
        old, new = self.brokers[self.master], self.brokers[1 - self.master]
        new.segments, new.deleted = [*old.segments], old.deleted
        self._elect(max(old.epoch, new.epoch) + 1)

    @rule(lost=st.integers(1, 3))
    def elect_uncleanly(self, lost: int) -> None:
        """The other broker becomes the master without the last segments."""
        old, new = self.brokers[self.master], self.brokers[1 - self.master]
        kept = max(len(old.segments) - lost, old.deleted)
        new.segments, new.deleted = old.segments[:kept], old.deleted
        self._truncate_waiting(kept)
        self.is_clean = False
        self._elect(max(old.epoch, new.epoch) + 1)

    def _elect(self, epoch: int) -> None:
        """Make the other one master; the former one may not notice for long."""
        self.master = 1 - self.master
        self.is_clean = self.is_clean and not self.is_older
        new = self.brokers[self.master]
        new.epoch, new.has_led = epoch, True
        new.end_restart()

    @rule(who=BROKERS)
    def restart(self, who: int) -> None:
        self.brokers[who].end_restart()

    @rule(lost=st.integers(1, 3))
    def restore_older_copy(self, lost: int) -> None:
        """The master's store is replaced by a copy without the last segments; no election."""
        broker = self.brokers[self.master]
        del broker.segments[max(len(broker.segments) - lost, broker.deleted) :]
        self._truncate_waiting(len(broker.segments))
        self.is_older = True
        if not self.manifests or self.manifests[-1].epoch < broker.epoch:
            self.is_clean = False  # the election before explains what its log lacks
        broker.end_restart()

    @rule()
    def wait(self) -> None:
        """A delayed message is stored, in the open segment."""
        self.waiting.append([len(self.brokers[self.master].segments)])

    @rule(number=st.integers(0, 5))
    def end_waiting(self, number: int) -> None:
        if number < len(self.waiting):
            del self.waiting[number]

    def _truncate_waiting(self, end: int) -> None:
        """Forget the copies that are lost with the segments from *end* on."""
        kept = ([place for place in places if place < end] for places in self.waiting)
        self.waiting = [places for places in kept if places]

    @rule(room=st.integers(0, 6))
    def restore_from_tier(self, room: int) -> None:
        """The master's disk is lost, and its store is restored from the tier.

        The operator has stopped all replicas first: a former master that wakes later, and has less
        than the tier, would take its election for the reason, and abandon what was restored.
        """
        broker = self.brokers[self.master]
        manifest = self.manifests[-1] if self.manifests else first_manifest(broker.writer)
        bytes_max = room * (SIZE + 2)
        is_there = {one.base // SIZE for one in with_expired(manifest)}
        try:
            segments = chosen(manifest, begin=None, room=bytes_max)
            end = segments[-1].end // SIZE
            known = [
                max(p for p in places if p < end) for places in self.waiting if places[0] < end
            ]
            offsets = [place * SIZE for place in known if place * SIZE < segments[0].base]
            first = min([segments[0].base // SIZE, *is_there.intersection(known)])
            segments = extended(manifest, segments, offsets)
            assert segments[0].base // SIZE == first, "not all who wait are there, or it is more"
            check_room(segments, bytes_max)
        except UnrestorableError:
            return
        if self.lost & {path for one in segments for path in one.paths}:
            return  # refused, with the object's name
        assert sum(map(size_of, segments)) <= bytes_max
        missing = [place for place in known if place < first]
        assert not is_there.intersection(missing), "the tier has it, and it is not restored"
        assert lost_of(segments, offsets) == len(missing)
        assert [one.base // SIZE for one in segments] == [*range(first, end)]
        self.is_clean = self.is_clean and not self.is_older and len(broker.segments) <= end
        names = dict(enumerate(broker.segments))  # those from before the tier
        names |= {one.base // SIZE: one.sha256 for one in with_expired(manifest)}
        broker.segments = [names.get(place, "?") for place in range(end)]
        broker.deleted = first
        self.has_expired_here |= segments[0] not in manifest.segments
        self._truncate_waiting(end)
        self.waiting = [places for places in self.waiting if places[-1] >= first]
        broker.end_restart()
        broker.shown, broker.reached = manifest, end * SIZE
        for other in self.brokers:
            if other is not broker:
                other.has_led = False
                other.end_restart()

    @rule(number=st.integers(0, 20))
    def lose_object(self, number: int) -> None:
        """Something else deletes an object; both brokers are restarted later."""
        if number < len(self.objects):
            path = sorted(self.objects)[number]
            del self.objects[path]
            self.lost.add(path)
            for broker in self.brokers:
                broker.end_restart()

    @rule(number=st.integers(0, 20))
    def lose_object_unnoticed(self, number: int) -> None:
        """Something else deletes an object, and no broker is restarted."""
        if number < len(self.objects):
            path = sorted(self.objects)[number]
            del self.objects[path]
            self.lost.add(path)
            self.unnoticed.add(path)

    @rule(who=BROKERS)
    def scrub(self, who: int) -> None:
        """Look at all objects; store again what is missing, if its segment is here."""
        broker = self.brokers[who]
        if not broker.is_writer or broker.manifest is None or broker.creating is not None:
            return
        for segment in broker.manifest.segments:
            place = segment.base // SIZE
            is_here = place >= broker.deleted and broker.segments[place] == segment.sha256
            for path in set(segment.paths) - self.objects.keys():
                if is_here:
                    self.objects[path] = segment.sha256
                    self.lost.discard(path)
                else:
                    broker.faults.add(path)
            broker.faults -= self.objects.keys()
            self.unnoticed -= set(segment.paths) if who == self.master else self.objects.keys()

    @rule()
    def delete_here(self) -> None:
        broker = self.brokers[self.master]
        if broker.deleted < min(broker.tiered_to, len(broker.segments) - 1):
            assert broker.manifest is not None
            for segment in broker.manifest.segments:
                if segment.base == broker.deleted * SIZE:
                    known = set(segment.paths) - self.unnoticed
                    assert known <= set(self.objects), "the last copy is deleted"
            for places in self.waiting:
                if places[-1] == broker.deleted:
                    places.append(len(broker.segments))  # carried forward, to the open segment
            broker.deleted += 1

    # --- The writer -------------------------------------------------------------------------------

    @rule(who=BROKERS)
    def take_over(self, who: int) -> None:
        """Read the latest manifest, reconcile it, and send the next one if that is different."""
        broker = self.brokers[who]
        if not broker.has_led or broker.creating is not None or broker.deleting:
            return
        latest = self.manifests[-1] if self.manifests else first_manifest(broker.writer)
        try:
            check_fence(latest, broker.epoch)
        except FencedError:
            return
        equal = next(
            (
                one
                for one in to_compare(latest, broker.extent)
                if broker.segments[one.base // SIZE] == one.sha256
            ),
            None,
        )
        ours = reconciled(latest, broker.extent, equal)
        try:
            check_abandonment(latest, ours, broker.epoch, is_permitted=False)
        except TierMismatchError:
            return
        sizes = {path: 1 if path.endswith("queues") else SIZE for path in self.objects}
        ours = without_missing(ours, broker.extent, sizes)
        unnamed = orphans(ours, self.objects)
        broker.manifest, broker.is_writer = latest, True
        broker.faults = {*found_by_size(ours, sizes)}
        if who == self.master:
            self.unnoticed -= {path for one in ours.segments for path in one.paths}
        if ours != latest or unnamed:
            broker.creating = following(ours, broker.writer, now_ms=self.now_ms, condemned=unnamed)

    @rule(who=BROKERS, is_killed=st.booleans())
    def upload(self, who: int, *, is_killed: bool) -> None:
        """Store the objects of the next segment, and send the manifest that names them."""
        broker = self.brokers[who]
        if not broker.is_writer or broker.manifest is None:
            return
        if broker.creating is not None or broker.deleting:
            return
        base = next_base(broker.manifest, broker.extent)
        if base is None:
            return
        name = broker.segments[base // SIZE]
        self.names += 1
        segment = TierSegment(
            base=base,
            end=base + SIZE,
            epoch=broker.epoch,
            records=1,
            first_ms=self.now_ms,
            last_ms=self.now_ms,
            chunk_size=SIZE,
            sha256=name,
            head_size=1,
            head_sha256="",
            side_size=1,
            upload=f"{self.names}",
        )
        self.objects[segment.path] = name
        if is_killed:
            broker.end_restart()
            return
        self.objects[segment.side_path] = name
        broker.creating = following(
            added(broker.manifest, segment), broker.writer, now_ms=self.now_ms
        )

    @rule(who=BROKERS, number=st.integers(0, 20), is_killed=st.booleans())
    def renew(self, who: int, number: int, *, is_killed: bool) -> None:
        """Store another side object of a segment, and send the manifest that names it."""
        broker = self.brokers[who]
        if not broker.is_writer or broker.manifest is None:
            return
        if broker.creating is not None or broker.deleting:
            return
        segments = broker.manifest.segments
        if not segments:
            return
        segment = segments[number % len(segments)]
        if not self.objects.keys() >= {*segment.paths}:
            return
        self.names += 1
        found = replace(segment, side_upload=f"{self.names}")
        self.objects[found.side_path] = found.sha256
        if is_killed:
            broker.end_restart()
            return
        broker.creating = following(
            renewed(broker.manifest, segment, found, now_ms=self.now_ms),
            broker.writer,
            now_ms=self.now_ms,
        )

    @rule(keep_hours=st.sampled_from([1, 5]))
    def expire(self, keep_hours: int) -> None:
        broker = self.brokers[self.master]
        if not broker.is_writer or broker.manifest is None:
            return
        if broker.creating is not None or broker.deleting:
            return
        kept = retained(
            broker.manifest,
            keep_hours=keep_hours,
            now_ms=self.now_ms,
            local_min_offset=broker.deleted * SIZE,
            grace_ms=3 * HOUR_MS,
        )
        if kept is not broker.manifest:
            broker.creating = following(kept, broker.writer, now_ms=self.now_ms)

    @rule(who=BROKERS, deletions=st.integers(0, 3), renewals=st.integers(0, 2))
    def settle(self, who: int, deletions: int, renewals: int) -> None:
        """Let a broker do all that is due, without a pause; then let retention delete here."""
        for turn in range(8):
            if turn >= 8 - renewals:
                self.renew(who, turn, is_killed=False)
            self.create(who)
            while self.brokers[who].deleting:
                self.delete(who)
            if not self.brokers[who].is_writer:
                self.take_over(who)
            else:
                self.upload(who, is_killed=False)
        for _ in range(deletions):
            self.delete_here()

    @rule(who=BROKERS)
    def create(self, who: int) -> None:
        """The request to create a manifest arrives at the store, however late."""
        broker = self.brokers[who]
        manifest, broker.creating = broker.creating, None
        if manifest is None:
            return
        if manifest.number <= len(self.manifests):
            broker.end_restart()
            return
        assert manifest.number == len(self.manifests) + 1, "a number is free in between"
        self.manifests.append(manifest)
        broker.manifest, broker.deleting = manifest, [*manifest.condemned]

    @rule(who=BROKERS)
    def delete(self, who: int) -> None:
        """One request to delete a condemned object arrives, however late."""
        broker = self.brokers[who]
        if broker.deleting:
            self.objects.pop(broker.deleting.pop(), None)
            if not broker.deleting and broker.manifest is not None:
                broker.manifest = purged(broker.manifest, broker.manifest.condemned)

    # --- Readers ----------------------------------------------------------------------------------

    @rule(who=BROKERS)
    def refresh(self, who: int) -> None:
        """Read the latest manifest, for readers; one that is listed may be overtaken at once."""
        broker = self.brokers[who]
        broker.shown = self.manifests[-1] if self.manifests else first_manifest(broker.writer)
        broker.reached = max(broker.extent.min_offset, broker.shown.end_offset or 0)

    @rule()
    def follow(self) -> None:
        """The replica has the master's log, and deletes what the master has deleted."""
        master, replica = self.brokers[self.master], self.brokers[1 - self.master]
        replica.has_led = False  # it leads no longer, and what it was doing has ended
        replica.end_restart()
        replica.segments, replica.deleted = [*master.segments], master.deleted

    @invariant()
    def the_log_has_a_record_from_its_beginning_on(self) -> None:
        """A reader that begins there gets each segment up to those that are here."""
        for broker in self.brokers:
            local = broker.extent.min_offset
            begin = log_begin(broker.shown, reached=broker.reached, local=local)
            if begin is None or broker.shown is None or begin == local:
                continue
            ends = {one.base: one.end for one in broker.shown.segments}
            place = begin
            while place < local and place in ends:
                place = ends[place]
            # Until its master's next manifest, a reader may lack the last ones: 503, and no gap.
            assert place >= local or place == broker.shown.end_offset

    @invariant()
    def no_reader_skips_what_the_tier_has(self) -> None:
        for broker in self.brokers:
            local, latest = broker.extent.min_offset, self.manifests[-1:]
            answered = log_begin(broker.shown, reached=broker.reached, local=local)
            if answered is None or broker.shown is None:
                continue  # refused: nobody knows here where queues begin, nor where the log does
            late = {one.segment for one in broker.shown.expired}  # they may have come back since
            true = [one.base for of in latest for one in of.segments if one not in late]
            assert answered <= min([local, *true])

    # --- What holds -------------------------------------------------------------------------------

    @invariant()
    def every_named_object_is_there(self) -> None:
        for manifest in self.manifests[-1:]:
            assert faults(manifest) is None
            for segment in manifest.named:
                for path in set(segment.paths) - self.lost:
                    assert self.objects.get(path) == segment.sha256

    @invariant()
    def epochs_of_manifests_ascend(self) -> None:
        epochs = [manifest.epoch for manifest in self.manifests]
        assert epochs == sorted(epochs)

    @invariant()
    def what_the_master_deleted_is_in_the_tier(self) -> None:
        broker = self.brokers[self.master]
        if not self.manifests:
            assert not broker.deleted
            return
        manifest = self.manifests[-1]
        found = {one.base // SIZE: one.sha256 for one in manifest.segments}
        first = (manifest.min_offset or 0) // SIZE
        if not self.has_expired_here:
            assert first <= broker.deleted, "a gap between the tier and the log here"
        for place in range(first, broker.deleted):
            assert found.get(place) == broker.segments[place]

    @invariant()
    def the_beginning_moves_back_only_to_what_has_expired(self) -> None:
        if self.manifests and self.manifests[-1].min_offset is not None:
            begin = self.manifests[-1].min_offset
            assert begin >= self.floor or begin in self.expired_bases
            self.floor = begin
            self.expired_bases = {one.segment.base for one in self.manifests[-1].expired}

    @invariant()
    def nothing_is_abandoned_without_a_loss(self) -> None:
        if self.is_clean and self.manifests:
            assert not self.manifests[-1].abandoned


TestTier = TierMachine.TestCase
TestTier.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


def segment_at(place: int) -> TierSegment:
    """Return a segment of one record, stored at time 0, at a place in the log."""
    return TierSegment(
        base=place * SIZE,
        end=place * SIZE + SIZE,
        epoch=0,
        records=1,
        first_ms=0,
        last_ms=0,
        chunk_size=SIZE,
        sha256="",
        head_size=1,
        head_sha256="",
        side_size=1,
        upload="00",
    )


def test_a_manifest_that_condemns_what_it_needs_is_refused() -> None:
    segment = segment_at(0)
    whole = replace(
        first_manifest(Writer("eruca", "broker-a", "log", 0)), number=1, segments=[segment]
    )

    assert faults(whole) is None
    for broken in (
        replace(whole, condemned=[segment.path]),
        replace(whole, abandoned=[segment]),
        replace(whole, segments=[segment, replace(segment, upload="01")]),
    ):
        assert faults(broken) is not None


def test_a_former_master_does_not_write_after_a_later_one() -> None:
    later = replace(first_manifest(Writer("eruca", "broker-a", "log", 3)), number=4)

    with pytest.raises(FencedError):
        following(later, Writer("eruca", "broker-a", "log", 2), now_ms=0)


def test_an_hour_of_expiry_is_bounded_and_a_full_tier_keeps_up() -> None:
    def segments(count: int) -> list[TierSegment]:
        return [segment_at(place) for place in range(count)]

    def after(manifest: Manifest, hours: float) -> Manifest:
        return retained(
            manifest, keep_hours=24, now_ms=int(hours * HOUR_MS), local_min_offset=99 * SIZE * SIZE
        )

    first = first_manifest(Writer("eruca", "broker-a", "log", 0))
    small, large = replace(first, segments=segments(50)), replace(first, segments=segments(2_400))

    once = after(small, 1_000)
    assert len(once.expired) == 10
    assert after(once, 1_000.9) is once, "the next ones expire an hour later"
    assert len(after(once, 1_001).expired) == 20
    assert len(after(large, 1_000).expired) == 200, "twice as many as are written in an hour"
    assert after(once, 1_024).condemned == [path for one in segments(10) for path in one.paths]
    assert after(once, 10).segments == small.segments, "they were not too old"
    other = replace(first, segments=segments(3)[1:], abandoned=segments(1))
    assert after(after(other, 1_000), 10).segments == other.segments, "it is of another history"
