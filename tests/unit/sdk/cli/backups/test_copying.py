"""A backup's run: what it copies, what it uses again, what it deletes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from eruca.cli.backups.copying import Made, back_up, live_numbers, numbers, read_manifest
from eruca.cli.backups.manifests import LOG_FOLDER, Manifest, name_of, path_of
from eruca.cli.backups.pieces import Piece
from eruca.cli.backups.restoring import faults_of
from eruca.contract.errors import ConflictError, MessageDamagedError
from support.model_backups import ModelLog, ModelRepository, finished

PIECE_SIZE = 250


@pytest.fixture
def log() -> ModelLog:
    log = ModelLog()
    for size in (100, 120, 200, 91, 300, 110, 95):
        log.append(size)
    return log


@pytest.fixture
def repository() -> ModelRepository:
    return ModelRepository()


def backed_up(repository: ModelRepository, log: ModelLog, keep: int | None = None) -> Made:
    made = finished(back_up(repository, log, keep=keep, piece_size=PIECE_SIZE))
    assert isinstance(made, Made)
    return made


def content(repository: ModelRepository, manifest: Manifest) -> bytes:
    return b"".join(repository.objects[path_of(manifest.log_id, p)] for p in manifest.pieces)


def pieces(repository: ModelRepository) -> list[str]:
    return [path for path in repository.objects if path.startswith(LOG_FOLDER)]


def whole(log: ModelLog) -> bytes:
    return b"".join(log.content().values())


def test_a_backup_has_the_log_byte_for_byte(log: ModelLog, repository: ModelRepository) -> None:
    manifest = backed_up(repository, log).manifest

    assert (manifest.number, manifest.min_offset, manifest.end_offset) == (1, 0, log.end)
    assert content(repository, manifest) == whole(log)
    assert finished(faults_of(repository, manifest, reads=True, told=lambda _: None)) == []


def test_a_second_backup_copies_only_what_is_new(
    log: ModelLog, repository: ModelRepository
) -> None:
    first = backed_up(repository, log).manifest
    before = len(whole(log))
    log.append(150)

    second = backed_up(repository, log).manifest

    assert second.copied_bytes == len(whole(log)) - before == 150
    assert second.pieces[: len(first.pieces)] == first.pieces
    assert content(repository, second) == whole(log)


def test_a_second_backup_of_the_same_log_copies_nothing(
    log: ModelLog, repository: ModelRepository
) -> None:
    backed_up(repository, log)

    assert backed_up(repository, log).manifest.copied_bytes == 0


def test_a_killed_run_leaves_what_the_next_one_uses(
    log: ModelLog, repository: ModelRepository
) -> None:
    """Exhaustive over the step at which it is killed."""
    steps = 0
    while True:
        repository = ModelRepository()
        run = back_up(repository, log, piece_size=PIECE_SIZE)
        try:
            for _ in range(steps):
                run.send(None)
        except StopIteration:
            break
        run.close()
        stored = set(pieces(repository))
        repository.uploads.clear()

        manifest = backed_up(repository, log).manifest

        used = {path_of(manifest.log_id, piece) for piece in manifest.pieces}
        assert stored <= used
        assert used == stored | set(repository.uploads)
        assert content(repository, manifest) == whole(log)
        steps += 1
    assert steps > 10


def test_two_runs_at_once_make_one_backup(log: ModelLog, repository: ModelRepository) -> None:
    """Exhaustive over the step at which the first one is suspended, once it knows its number."""
    steps = 2
    while True:
        repository = ModelRepository()
        first = back_up(repository, log, keep=1, piece_size=PIECE_SIZE)
        try:
            for _ in range(steps):
                first.send(None)
        except StopIteration:
            break
        if finished(numbers(repository)):  # it has committed: they do not run at once
            first.close()
            break
        manifest = backed_up(repository, log, keep=1).manifest
        with pytest.raises(ConflictError, match="another run has made a backup"):
            finished(first)
        assert content(repository, manifest) == whole(log)
        steps += 1
    assert steps > 10


def test_old_backups_are_deleted_with_what_only_they_need(
    log: ModelLog, repository: ModelRepository
) -> None:
    for _ in range(3):
        backed_up(repository, log)
        log.append(150)
    log.delete_segment()

    made = backed_up(repository, log, keep=1)

    assert made.deleted_backups == [1, 2, 3]
    assert live_numbers(finished(numbers(repository))) == [4]
    needed = {path_of(made.manifest.log_id, piece) for piece in made.manifest.pieces}
    assert set(pieces(repository)) == needed
    assert content(repository, made.manifest) == whole(log)


def test_a_run_uses_nothing_that_another_one_is_about_to_delete(
    repository: ModelRepository,
) -> None:
    """A master whose disk is behind makes a short piece usable that is on its way out."""
    log = ModelLog()
    for _ in range(4):
        log.append(91)
    killed = back_up(repository, log, piece_size=1)
    for _ in range(3):
        killed.send(None)  # it has listed all pieces
    backed_up(repository, log)  # knows nothing of the killed one's piece, which is shorter
    while len(pieces(repository)) < 2:
        killed.send(None)
    killed.close()
    deleting = back_up(repository, log, keep=1, piece_size=PIECE_SIZE)
    while 2 not in finished(numbers(repository)):
        deleting.send(None)
    log.durable = log.records[2].begin

    manifest = backed_up(repository, log).manifest
    finished(deleting)

    assert manifest.end_offset == log.durable
    assert content(repository, manifest) == log.records[0].data + log.records[1].data


def test_what_is_not_durable_is_not_in_a_backup(log: ModelLog, repository: ModelRepository) -> None:
    log.durable = log.records[-1].begin

    made = backed_up(repository, log)

    assert content(repository, made.manifest) == whole(log)[: -len(log.records[-1].data)]
    assert made.not_durable_bytes == len(log.records[-1].data)


def test_the_number_of_a_deleted_backup_is_not_used_again(
    log: ModelLog, repository: ModelRepository
) -> None:
    stale = back_up(repository, log, piece_size=PIECE_SIZE)
    for _ in range(4):
        stale.send(None)
    for _ in range(3):
        backed_up(repository, log, keep=1)

    with pytest.raises(ConflictError, match="another run has made a backup"):
        finished(stale)


def test_a_killed_deletion_is_completed_by_the_next_backup(
    log: ModelLog, repository: ModelRepository
) -> None:
    """Exhaustive over the step at which the deletion is killed."""
    for steps in range(200):
        repository = ModelRepository()
        backed_up(repository, log)
        log.append(120)
        log.delete_segment()
        run = back_up(repository, log, keep=1, piece_size=PIECE_SIZE)
        try:
            for _ in range(steps):
                run.send(None)
        except StopIteration:
            break
        has_committed = 2 in finished(numbers(repository))
        run.close()

        made = backed_up(repository, log)

        if has_committed:
            assert 1 not in live_numbers(finished(numbers(repository)))
        for number in live_numbers(finished(numbers(repository))):
            manifest = finished(read_manifest(repository, number))
            faults = faults_of(repository, manifest, reads=True, told=lambda _: None)
            assert finished(faults) == []
        assert content(repository, made.manifest) == whole(log)
    else:
        raise AssertionError("the run does not end")


def test_a_log_that_lost_its_end_is_copied_from_there(
    log: ModelLog, repository: ModelRepository
) -> None:
    first = backed_up(repository, log).manifest
    log.truncate(2)
    log.append(140)

    second = backed_up(repository, log).manifest

    assert content(repository, second) == whole(log)
    assert 0 < second.copied_bytes < len(whole(log))
    assert finished(faults_of(repository, first, reads=True, told=lambda _: None)) == []


def test_retention_may_overtake_a_run() -> None:
    """Exhaustive over the step at which it does."""
    for steps in range(200):
        repository, log = ModelRepository(), ModelLog()
        for size in (100, 120, 200, 91, 300, 110, 95):
            log.append(size)
        run = back_up(repository, log, piece_size=PIECE_SIZE)
        try:
            for _ in range(steps):
                run.send(None)
        except StopIteration:
            break
        before = whole(log)
        log.delete_segment()
        manifest = finished(run).manifest
        assert content(repository, manifest) in (before, whole(log))
    else:
        raise AssertionError("the run does not end")


def test_a_damaged_record_makes_no_backup(log: ModelLog, repository: ModelRepository) -> None:
    backed_up(repository, log)
    log.append(100)
    log.damaged = log.records[-1].begin

    with pytest.raises(MessageDamagedError):
        backed_up(repository, log)

    assert live_numbers(finished(numbers(repository))) == [1]


def test_a_repository_of_another_broker_is_refused(
    log: ModelLog, repository: ModelRepository
) -> None:
    backed_up(repository, log)
    log.broker_name = "broker-b"

    with pytest.raises(ConflictError, match="backups of broker-a, not of broker-b"):
        backed_up(repository, log)


def _with_piece(manifest: Manifest, **changes: Any) -> Manifest:  # noqa: ANN401
    first, *rest = manifest.pieces
    return replace(manifest, pieces=[replace(first, **changes), *rest])


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda its: replace(its, number=7), "expected backup 1, found 7"),
        (lambda its: replace(its, segment_bytes=1), "expected segments of at least "),
        (lambda its: replace(its, segment_bytes=0), "expected segments of at least "),
        (lambda its: replace(its, pieces=its.pieces[1:]), "expected log offsets 0 to "),
        (lambda its: _with_piece(its, sha256="../x"), "at log offset 0 has an invalid value"),
        (lambda its: _with_piece(its, stored_ms=-1), "at log offset 0 has an invalid value"),
        (lambda its: _with_piece(its, stored_ms=10**15 - 1), "at log offset 0 has an invalid "),
    ],
)
def test_an_edited_manifest_is_refused(
    log: ModelLog,
    repository: ModelRepository,
    change: Callable[[Manifest], Manifest],
    fault: str,
) -> None:
    manifest = backed_up(repository, log).manifest
    repository.objects[name_of(1)] = msgspec.json.encode(change(manifest))

    with pytest.raises(ConflictError, match=fault):
        finished(read_manifest(repository, 1))


def test_a_piece_s_name_says_all_of_it() -> None:
    piece = Piece(400, 800, 310, 600, 7, 1_795_327_200_000, "ab" * 32, "0011aabb")

    assert Piece.of_name(piece.name, 310) == piece
    assert Piece.of_name(piece.name, 500) is None, "its size is impossible"
    assert Piece.of_name(piece.name + ".0f0f0f0f.unfinished", 310) is None
