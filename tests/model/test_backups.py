"""Backups beside a small model: runs that are interleaved, suspended and killed at every step.

The log grows, loses its end to another master, and loses its beginning to retention meanwhile. Each
backup that exists has every piece that it names, and its bytes are those of one log that existed.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eruca.cli.backups.copying import Made, back_up, live_numbers
from eruca.cli.backups.manifests import decoded, name_of, number_of, path_of
from eruca.contract.errors import ConflictError, RecordNotFoundError, StaleEpochError
from support.model_backups import ModelLog, ModelRepository


class Backups(RuleBasedStateMachine):
    """Up to three runs at once, over one log and one repository."""

    @initialize()
    def begin(self) -> None:
        self.log = ModelLog()
        self.log.append(100)
        self.repository = ModelRepository()
        self.runs: list[Coroutine[Any, Any, Made]] = []
        self.seen: set[int] = set()  # backups whose content was compared

    @rule(sizes=st.lists(st.integers(91, 380), min_size=1, max_size=6))
    def grow(self, sizes: list[int]) -> None:
        for size in sizes:
            self.log.append(size)

    @rule(count=st.integers(1, 5))
    def lose_the_end(self, count: int) -> None:
        self.log.truncate(count)
        self.log.append(120)

    @rule()
    def lose_the_beginning(self) -> None:
        self.log.delete_segment()

    @precondition(lambda self: len(self.runs) < 3)
    @rule(keep=st.one_of(st.none(), st.integers(1, 2)), piece_size=st.sampled_from([1, 250, 1000]))
    def start(self, keep: int | None, piece_size: int) -> None:
        run = back_up(self.repository, self.log, keep=keep, piece_size=piece_size)
        self.runs.append(run)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), steps=st.integers(1, 40))
    def go_on(self, data: st.DataObject, steps: int) -> None:
        run = data.draw(st.sampled_from(self.runs))
        for _ in range(steps):
            try:
                run.send(None)
            except StopIteration:
                self.runs.remove(run)
                return
            except (ConflictError, RecordNotFoundError, StaleEpochError):
                self.runs.remove(run)
                return
            self.check()

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(self.runs))
        run.close()
        self.runs.remove(run)

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "repository"):
            return
        objects = self.repository.objects
        sizes = {number_of(path): len(data) for path, data in objects.items()}
        for number in live_numbers({n: size for n, size in sizes.items() if n is not None}):
            manifest = decoded(objects[name_of(number)])
            content = {}
            for piece in manifest.pieces:
                data = objects.get(path_of(manifest.log_id, piece))
                if data is None:
                    assert self.is_doomed(number), f"backup {number} lacks {piece}"
                    break
                content[piece.begin] = data
            else:
                if number not in self.seen:
                    self.seen.add(number)
                    self.compare(manifest.min_offset, manifest.end_offset, content)

    def is_doomed(self, number: int) -> bool:
        """Tell whether a later backup deletes this one, and its run goes on or was killed."""
        manifests = [
            decoded(data)
            for path, data in self.repository.objects.items()
            if data and (number_of(path) or 0) > number
        ]
        return any(number in manifest.drops for manifest in manifests)

    def compare(self, begin: int, end: int, pieces: dict[int, bytes]) -> None:
        """Compare a backup with all logs that there have been."""
        copied = b"".join(pieces[place] for place in sorted(pieces))
        for version in (self.log.whole, *self.log.versions):
            wanted = (version[place] for place in sorted(version) if begin <= place < end)
            if b"".join(wanted) == copied:
                return
        raise AssertionError("the backup is no log that there has been")

    def teardown(self) -> None:
        for run in getattr(self, "runs", []):
            run.close()


TestBackups = Backups.TestCase
TestBackups.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
