"""What a start makes of the files that a broker left: snapshots, recovery points, leftovers, and a disk that failed."""

from __future__ import annotations

import contextlib
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.log import checkpoints, snapshots
from broker_sim.log.checkpoints import CheckpointError
from broker_sim.log.dirs import LogDirs
from broker_sim.log.errors import StorageFailure
from broker_sim.log.files import Files
from broker_sim.log.leader_epochs import FILE_NAME, EpochFile
from broker_sim.log.log import Log
from broker_sim.log.producers import ProducerStates
from broker_sim.log.segment import Segment
from broker_sim.log.stored_log import LogHooks
from controller.wire.records import Record, build_batch, build_values, parse_header
from tests.worlds.logs import SMALL, TP, append, names, new_log, reopened, values

# -- files of the segments -----------------------------------------------------------------------------------------


def test_index_files_are_as_long_as_they_may_get_until_their_segment_is_closed(tmp_path: Path) -> None:
    log = new_log(tmp_path)

    def lengths() -> list[tuple[int, int]]:
        return [(s.index_path.stat().st_size, s.time_path.stat().st_size) for s in log.segments]

    append(log, at=1_000)
    assert lengths() == [(1_200, 1_200)]
    for at in range(1, 12):
        append(log, at=1_000 + at)
    closed = [(8 * len(s.index_entries), 12 * len(s.time_entries)) for s in log.segments]
    assert len(closed) > 2
    assert lengths() == [*closed[:-1], (1_200, 1_200)]
    assert all(s.time_entries[-1][0] == s.max_timestamp for s in log.segments[:-1])
    log.close()
    assert lengths()[-1] == (8 * len(log.segments[-1].index_entries), 12 * len(log.segments[-1].time_entries))
    again, repairs = reopened(log, is_clean=True)
    assert not repairs
    assert lengths() == [*closed[:-1], (1_200, 1_200)]
    again.truncate(2)
    assert again.segments[0].index_path.stat().st_size == 1_200


def test_a_log_has_no_file_before_its_first_batch_and_all_of_them_then(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.assign_epoch(4, 0)
    assert list(log.folder.iterdir()) == []
    again, repairs = reopened(log, is_clean=False)
    assert (again.leo, repairs, list(log.folder.iterdir())) == (0, [], [])
    again.assign_epoch(0, 0)
    append(again, at=1_000)
    assert EpochFile(log.folder / FILE_NAME).read().entries == again.epochs.entries == [(0, 0)], "that of the batch"
    assert {path.suffix or path.name for path in log.folder.iterdir()} >= {".log", ".index", ".timeindex"}
    third, repairs = reopened(again, is_clean=False)
    assert third.leo == again.leo > 0


def test_an_empty_log_that_does_not_begin_at_0_keeps_its_start_over_a_kill(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.truncate_fully(1_000)
    again, _ = reopened(log, is_clean=False)
    assert (again.log_start_offset, again.leo) == (1_000, 1_000)


def test_removed_segments_wait_as_deleted_files_until_they_are_purged(tmp_path: Path) -> None:
    doomed: list[list[str]] = []
    log = new_log(tmp_path, hooks=LogHooks(doom=lambda _, found: doomed.append(found)))
    for _ in range(12):
        append(log)
    second = log.segments[1].base_offset
    log.config = replace(SMALL, retention_bytes=log.size_bytes - log.segments[0].size)
    assert log.delete_old_segments(now_ms=0, high_watermark=12) == 1
    assert [n.partition(".")[2] for n in doomed[0]] == ["index.deleted", "timeindex.deleted", "log.deleted"]
    assert set(doomed[0]) <= set(names(log))
    log.truncate(second)
    assert any(f"{log.leo:020d}" not in n and n.endswith(".snapshot.deleted") for found in doomed[1:] for n in found)
    for found in doomed:
        log.purge(found)
    assert not [n for n in names(log) if n.endswith(".deleted")]
    again, _ = reopened(log)
    assert (again.log_start_offset, again.leo) == (second, second)


# -- recovery ------------------------------------------------------------------------------------------------------


def test_only_what_is_above_the_recovery_point_is_checked(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(12):
        append(log)
    first, last = log.segments[0], log.segments[-1]
    data = bytearray(first.log_path.read_bytes())
    data[100] ^= 1
    first.log_path.write_bytes(data)
    again, repairs = reopened(log, recovery_point=last.base_offset)
    assert (again.leo, again.recovery_point, repairs) == (12, last.base_offset, [])
    again, repairs = reopened(log, recovery_point=0)
    assert (again.leo, again.recovery_point) == (0, 0)
    assert sum(repair.lost_bytes for repair in repairs) == sum(s.size for s in log.segments)
    assert repairs[0].path == first.log_path


def test_a_flush_raises_the_recovery_point_and_a_cut_lowers_it_on_disk_too(tmp_path: Path) -> None:
    dirs = LogDirs((str(tmp_path),), random.Random(1))
    dirs.open(broker_id=1, cluster_id="c", config_of=lambda topic: SMALL, now_ms=0)
    log = dirs.create(TP, SMALL)
    for _ in range(12):
        append(log)
    assert log.recovery_point == 0
    assert {p.suffix or p.name for p in log.unflushed()} == {".log", ".index", ".timeindex", FILE_NAME}
    log.flushed(log.segments[-1].base_offset)
    assert log.unflushed() == []
    dirs.dir_of(log).write_recovery_points()
    path = tmp_path / checkpoints.RECOVERY_POINT_FILE
    assert checkpoints.read_offsets(path) == {TP: log.segments[-1].base_offset}
    log.truncate(2)
    assert checkpoints.read_offsets(path) == {TP: 2}
    dirs.unlock()


def test_flush_messages_flushes(tmp_path: Path) -> None:
    synced: list[str] = []
    files = Files(lambda operation, path: synced.append(path.name) if operation == "sync" else None)
    log = new_log(tmp_path, replace(SMALL, flush_messages=3), files=files)
    for _ in range(2):
        append(log)
    assert (synced, log.recovery_point) == ([], 0)
    append(log)
    assert (len(synced), log.recovery_point) == (4, 3)
    for _ in range(3):
        append(log)
    assert (len(synced), log.recovery_point) == (7, 6), "no new epoch: its file is on the disk"


def test_a_log_that_ends_below_its_start_offset_is_given_up(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for _ in range(3):
        append(log)
    again, repairs = reopened(log, log_start_offset=50)
    assert (again.log_start_offset, again.leo, again.size_bytes) == (50, 50, 0)
    assert [repair.lost_bytes for repair in repairs] == [log.size_bytes]
    append(again)
    assert list(values(reopened(again, log_start_offset=50)[0])) == [50]


def test_an_index_without_its_log_is_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log)
    (log.folder / f"{7:020d}.index").write_bytes(b"\x00" * 8)
    again, repairs = reopened(log)
    assert [repair.path.name for repair in repairs] == [f"{7:020d}.index"]
    assert f"{7:020d}.index" not in names(again)


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_damaged_epoch_file_is_rebuilt_and_told(tmp_path: Path, is_empty: bool) -> None:
    log = new_log(tmp_path)
    append(log)
    if is_empty:
        log.truncate_fully(7)
    log.close()
    (log.folder / "leader-epoch-checkpoint").write_text("0\nx\n")
    again, repairs = reopened(log, is_clean=True)
    assert again.epochs.entries == ([] if is_empty else [(0, 0)])
    assert [repair.path.name for repair in repairs] == ["leader-epoch-checkpoint"]
    again.close()
    assert reopened(again, is_clean=True)[1] == []


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
                                  "replication-offset-checkpoint", "cleaner-offset-checkpoint"])  # fmt: skip
def test_a_damaged_checkpoint_counts_as_none_and_is_told(tmp_path: Path, name: Any) -> None:
    (tmp_path / name).write_text("0\n2\nt 0 1\n")
    dirs = LogDirs((str(tmp_path),), random.Random(1))
    report = dirs.open(broker_id=1, cluster_id="c", config_of=lambda topic: SMALL, now_ms=0)
    assert [(tp, repair.path.name) for tp, repair in report.repairs] == [(None, name)]
    dirs.unlock()


# -- leftovers -----------------------------------------------------------------------------------------------------


def swapping(tmp_path: Path) -> tuple[Log, dict[int, bytes | None]]:
    """A log whose first two segments were rewritten into one, which is about to be swapped in."""
    log = new_log(tmp_path)
    for number in range(12):
        append(log, b"%d" % number + b"x" * 60)
    kept = {0: values(log)[0], **{o: v for o, v in values(log).items() if o >= log.segments[1].next_offset - 1}}
    cleaned = log.new_cleaned_segment(0, ".cleaned")
    for segment in log.segments[:2]:
        for position, header in segment.headers():
            if header.base_offset in kept:
                cleaned.append(segment.read(position, header.size), header)
    cleaned.seal()
    return log, kept


def test_a_swap_that_was_cut_off_anywhere_is_undone_or_completed(tmp_path: Path) -> None:
    fails_at, outcomes, is_whole = 0, set(), False
    while not is_whole:
        folder = tmp_path / str(fails_at)
        folder.mkdir()
        log, kept = swapping(folder)
        before, done = values(log), []

        def fail(operation: str, path: Path, limit: int = fails_at, done: list[str] = done) -> None:
            done.append(operation)
            if len(done) > limit:
                raise OSError(5, "Input/output error")

        log.files.before = fail
        cleaned = Segment(log.folder, 0, shape=log.shape, files=log.files, suffix=".cleaned")
        with contextlib.suppress(StorageFailure):
            log.swap_in(cleaned, log.segments[:2])
            is_whole = True
        again, repairs = reopened(log)
        assert values(again) in (before, kept)
        assert not any(repair.lost_bytes for repair in repairs)
        outcomes.add(len(values(again)))
        assert again.leo == 12
        assert not [n for n in names(again) if n.endswith((".cleaned", ".swap", ".deleted"))]
        fails_at += 1
    assert fails_at > 12
    assert outcomes == {len(before), len(kept)}


# -- producers -----------------------------------------------------------------------------------------------------


def state_of(log: Log) -> dict[int, tuple[int, int]]:
    return {p: (s.batches[-1].last_sequence, s.batches[-1].last_offset) for p, s in log.producers if s.batches}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([-1, 7, 8, 9]), min_size=1, max_size=30), st.booleans(), st.data())
def test_producers_are_the_same_after_a_start_and_after_a_cut(who: Any, is_clean: Any, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, sequences = new_log(Path(folder)), {7: 0, 8: 0, 9: 0}
        expected: list[dict[int, tuple[int, int]]] = [{}]
        for producer in who:
            append(log, producer=producer, sequence=sequences.get(producer, -1))
            if producer in sequences:
                sequences[producer] += 1
            expected.append(state_of(log))
        cut = data.draw(st.integers(0, len(who)))
        if is_clean:
            log.close()
        again, _ = reopened(log, is_clean=is_clean)
        assert state_of(again) == expected[-1]
        again.truncate(cut)
        assert state_of(again) == expected[cut]
        third, _ = reopened(again)
        assert state_of(third) == expected[cut]


def test_a_damaged_snapshot_is_removed_and_an_earlier_one_used(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(12):
        append(log, producer=7, sequence=sequence)
    log.close()
    found = sorted(log.folder.glob("*.snapshot"))
    assert [int(p.stem) for p in found] == [*(s.base_offset for s in log.segments[1:]), 12]
    found[-1].write_bytes(found[-1].read_bytes()[:-1] + b"!")
    found[-2].write_bytes(b"")
    again, _ = reopened(log, is_clean=True)
    assert state_of(again) == {7: (11, 11)}
    assert [int(p.stem) for p in sorted(log.folder.glob("*.snapshot"))] == [int(p.stem) for p in found[:-2]]


def test_snapshots_that_belong_to_no_segment_are_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(12):
        append(log, producer=7, sequence=sequence)
    for offset in (1, 2, 40):
        (log.folder / f"{offset:020d}.snapshot").write_bytes(snapshots.encode(ProducerStates()))
    reopened(log)
    kept = [int(p.stem) for p in sorted(log.folder.glob("*.snapshot"))]
    assert kept == [s.base_offset for s in log.segments[1:]]


def test_files_whose_names_are_digits_of_no_number_are_nobodys(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, producer=7, sequence=0)
    log.close()
    strangers = [log.folder / f"{20 * each}.{suffix}" for each in "²x" for suffix in ("log", "snapshot")]
    for file in strangers:
        file.write_bytes(b"?")
    again, _ = reopened(log)
    assert state_of(again) == {7: (0, 0)} and all(file.exists() for file in strangers)


def test_producers_that_were_quiet_too_long_are_forgotten(tmp_path: Path) -> None:
    log = new_log(tmp_path, replace(SMALL, producer_id_expiration_ms=1_000))
    append(log, producer=7, sequence=0, at=5_000)
    append(log, producer=8, sequence=0, at=5_001)
    log.close()
    again = Log(TP, log.folder, log.config)
    again.load(is_clean=True, now_ms=6_000)
    assert set(state_of(again)) == {8}


def test_a_snapshot_has_the_fields_of_kafkas_schema() -> None:
    """Version 1, for one producer: id 0, epoch 0, last sequence 4 at offset 4. (`tests/kafka` reads whole files.)"""
    states = ProducerStates()
    batch = build_batch(
        [Record(n, 1_000, None, b"v") for n in range(5)], producer_id=0, producer_epoch=0, base_sequence=0
    )
    states.appended(parse_header(batch))
    data = snapshots.encode(states)
    assert data[:2] == b"\x00\x01"
    assert data[6:] == bytes.fromhex(
        "00000001" "0000000000000000" "0000" "00000004" "0000000000000004" "00000004"
        "00000000000003e8" "ffffffff" "ffffffffffffffff"
    )  # fmt: skip
    again = snapshots.decode(data, Path("s"), oldest_ms=0)
    assert {p: s.batches[-1] for p, s in again} == {p: s.batches[-1] for p, s in states}
    for damaged in (data[:5], data[:-1], b"\x00\x02" + data[2:], data[:-1] + b"!"):
        with pytest.raises(CheckpointError):
            snapshots.decode(damaged, Path("s"), oldest_ms=0)


# -- a disk that fails ---------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 150)),
        st.tuples(st.just("truncate"), st.integers(0, 4)),
        st.tuples(st.just("retain"), st.integers(400, 1_500)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("epoch"), st.just(0)),
    ),
    min_size=3,
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 120))
def test_a_disk_that_fails_at_any_step_loses_nothing_that_was_written(steps: Any, fails_at: Any) -> None:
    """After the failure the log is read as after a kill: what was acknowledged and not cut off or aged out is there."""
    with tempfile.TemporaryDirectory() as folder:
        log, asked, epoch = new_log(Path(folder)), [], 0
        kept: dict[int, bytes] = {}
        start = 0

        def fail(operation: str, path: Path) -> None:
            asked.append(operation)
            if len(asked) > fails_at:
                raise OSError(28, "No space left on device")

        log.files.before = fail
        try:
            for number, (step, argument) in enumerate(steps):
                if step == "append":
                    value = b"%d" % number + b"x" * argument
                    batch = build_values([(b"k", value)], timestamp=1_000 + number)
                    kept[log.append_as_leader(batch, leader_epoch=epoch, now_ms=0).base_offset] = value
                elif step == "truncate":
                    end = max(log.log_start_offset, log.leo - argument)
                    kept = {offset: value for offset, value in kept.items() if offset < end}
                    log.truncate(end)
                elif step == "retain":
                    log.config = replace(log.config, retention_bytes=argument)
                    bases = [s.base_offset for s in log.segments]
                    start = bases[-1]
                    log.delete_old_segments(now_ms=0, high_watermark=log.leo)
                    start = log.log_start_offset
                elif step == "flush":
                    log.flush()
                else:
                    epoch += 1
                    log.assign_epoch(epoch, log.leo)
        except StorageFailure:
            assert len(asked) > fails_at
        log.files.before = None
        again, _ = reopened(log, recovery_point=log.recovery_point)
        found = values(again)
        wanted = {offset: value for offset, value in kept.items() if offset >= start}
        assert {offset: found.get(offset) for offset in wanted} == wanted
        assert set(found) == set(range(again.log_start_offset, again.leo))


def test_a_segment_is_closed_by_its_age_whoever_made_it(tmp_path: Path) -> None:
    """Its records have no time. Where nobody said when it was made, its age counts from the next batch on; and each has
    its part of `segment.jitter.ms`, which was drawn anew at the start."""
    jitters = iter([30, 0, 10, 20, 0])
    config = replace(SMALL, segment_bytes=10_000, segment_ms=100, segment_jitter_ms=50)
    hooks = LogHooks(jitter_of=lambda limit_ms: next(jitters))
    log = Log(TP, tmp_path / "t-0", config, hooks=hooks)
    log.create()

    def write(now_ms: int) -> int:
        log.append_as_leader(build_batch([Record(0, -1, b"k", b"v")]), leader_epoch=0, now_ms=now_ms)
        return log.segments[-1].base_offset

    assert [write(at) for at in (1_000, 1_070, 1_071)] == [0, 0, 2]
    log.close()
    log = Log(TP, tmp_path / "t-0", config, hooks=hooks)
    log.load(is_clean=True)
    assert [segment.jitter_ms for segment in log.segments] == [10, 20]
    assert [write(at) for at in (5_000, 5_080, 5_081)] == [2, 2, 5]
