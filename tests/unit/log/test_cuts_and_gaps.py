"""What a log holds and what is kept beside it say the same after every cut; a follower takes only what continues it."""

from __future__ import annotations

import itertools
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker_sim.log.config import LogConfig
from broker_sim.log.log import Log, UnexpectedOffset
from controller.sim.disk import SimulatedDisk
from controller.wire.records import build_values, parse_header, place
from controller.wire.types import TopicPartition

TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=300, segment_index_bytes=1_000, index_interval_bytes=100, retention_ms=-1)


def filled(folder: Path, plan: list[tuple[int, int]]) -> Log:
    """A batch of so many records in an epoch so much higher than the last, each."""
    log, epoch = Log(TP, folder / "t-0", CONFIG), 0
    log.create()
    for count, higher in plan:
        epoch += higher
        log.append_as_leader(build_values([(None, b"x")] * count, timestamp=1), leader_epoch=epoch, now_ms=1)
    return log


def recounted(log: Log) -> list[tuple[int, int]]:
    """(epoch, where it begins), from the batches."""
    found: dict[int, int] = {}
    for batch in log.batches():
        header = parse_header(batch)
        found.setdefault(header.partition_leader_epoch, header.base_offset)
    return sorted(found.items())


PLAN = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(plan=PLAN, data=st.data())
def test_the_epochs_are_those_of_the_log_after_any_cut_and_in_the_next_life(
    plan: list[tuple[int, int]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = filled(Path(folder), plan)
        offset = data.draw(st.integers(0, log.leo))
        expected = [(epoch, start) for epoch, start in recounted(log) if start < offset]
        log.truncate(offset)
        assert log.epochs.entries == expected
        again = Log(TP, log.folder, CONFIG)
        again.load(is_clean=True)
        assert again.epochs.entries == expected


@pytest.mark.parametrize(
    ("batches", "taken"),
    [
        *(([(3, 2)], True), ([(5, 1)], True), ([(3, 2), (5, 1)], True), ([(4, 2), (9, 1)], True)),
        *(([(2, 1)], False), ([(2, 3)], False), ([(0, 9)], False)),
        *(([(3, 2), (4, 2)], False), ([(5, 3), (3, 1)], False), ([(3, 2), (3, 2)], False)),
    ],
)
def test_a_follower_takes_only_what_continues_its_log(
    tmp_path: Path, batches: list[tuple[int, int]], taken: bool
) -> None:
    """It ends at 3. What begins below would be there twice, however far it goes; a gap is what compaction leaves."""
    log = filled(tmp_path, [(3, 0)])
    data = [
        place(build_values([(None, b"y")] * count, timestamp=1), base_offset=base, partition_leader_epoch=0)
        for base, count in batches
    ]
    before = list(log.batches())
    if taken:
        log.append_as_follower(b"".join(data), now_ms=1)
    else:
        with pytest.raises(UnexpectedOffset):
            log.append_as_follower(b"".join(data), now_ms=1)
    assert list(log.batches()) == before + (data if taken else [])


@pytest.mark.parametrize("start", [0, 5])
def test_an_empty_log_begins_with_its_first_batch_where_that_is_too_far_for_its_segment(
    tmp_path: Path, start: int
) -> None:
    """Else the segment that names an offset so far below would be its first for ever."""
    log, far = filled(tmp_path, []), 1 << 32
    log.truncate_fully(start)
    batch = place(build_values([(None, b"y")] * 2, timestamp=1), base_offset=far, partition_leader_epoch=1)
    log.append_as_follower(batch, now_ms=1)
    again = Log(TP, log.folder, CONFIG)
    again.load(is_clean=False)
    for each in (log, again):
        assert ([s.base_offset for s in each.segments], each.log_start_offset, each.leo) == ([far], far, far + 2)


CUTS = list(itertools.product((0, 3, 6, 10, 13, 17), (2, 30)))


@pytest.mark.parametrize(("cut", "more"), CUTS)
def test_after_a_cut_each_read_finds_what_is_there_wherever_reads_before_it_had_ended(
    tmp_path: Path, cut: int, more: int
) -> None:
    """Of one segment without index entries: what a search remembers of the batches that were cut leads nowhere."""
    config = replace(CONFIG, segment_bytes=100_000, index_interval_bytes=100_000)
    for number, (first, last) in enumerate(itertools.combinations((0, 4, 6, 10, 13, 20), 2)):
        log = Log(TP, tmp_path / f"t-{number}", config)
        log.create()
        write(log, [20] * 20)
        assert len(log.read(first, max_bytes=100_000, bound=last)) == (last - first) * log.size_bytes // 20
        log.truncate(cut)
        write(log, [60, 7] * (more // 2))
        again = Log(TP, log.folder, config)
        again.load(is_clean=True)
        for offset in (min(last, log.leo - 1), *range(log.leo)):
            limits = {"max_bytes": 100_000, "bound": log.leo}
            assert log.read(offset, **limits) == again.read(offset, **limits), (first, last, offset)


def write(log: Log, sizes: list[int]) -> None:
    """A record of each size, in a batch of its own."""
    for size in sizes:
        log.append_as_leader(build_values([(None, b"y" * size)], timestamp=1), leader_epoch=0, now_ms=1)


STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 2)),
    st.tuples(st.just("cut"), st.floats(0, 1), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 6), st.just(0)),
    st.tuples(st.just("flush"), st.booleans(), st.just(0)),
    st.tuples(st.just("power"), st.booleans(), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(STEP, min_size=4, max_size=30), seed=st.integers(0, 99))
@example([("flush", True, 0)] * 4, 0)
@example([*[("append", 4, 1)] * 2, ("wait", 6, 0), *[("append", 4, 1)] * 3, ("flush", False, 0), ("power", True, 0)], 3)
@example([*[("append", 2, 1)] * 2, ("wait", 6, 0), ("cut", 0.5, 0), ("append", 2, 0), ("power", True, 0)], 16)
@example([*[("append", 1, 1)] * 2, ("wait", 6, 0), ("cut", 0.0, 0), ("append", 1, 0), ("power", True, 0)], 16)
@example(
    [
        *[("append", 2, higher) for higher in (0, 1, 2)],
        *(("wait", 6, 0), ("cut", 0.34, 0), ("append", 2, 2), ("append", 2, 2), ("power", True, 0)),
    ],
    11,
)
@example(
    [
        *[("append", count, 2) for count in (2, 1, 2)],
        *(("wait", 6, 0), ("cut", 0.4, 0), ("append", 3, 3), ("append", 2, 4), ("power", True, 0)),
    ],
    11,
)
def test_batches_and_epochs_agree_after_any_loss_of_power(steps: list[tuple[str, Any, int]], seed: int) -> None:
    """Whatever was not synced may be as it was before: what a cut took may be in the file of epochs again, and what was
    written may be missing there."""
    with tempfile.TemporaryDirectory() as folder:
        now_s = 0.0
        disk = SimulatedDisk(random.Random(seed), lambda: now_s)
        log = Log(TP, Path(folder) / "t-0", CONFIG, files=disk)
        log.create()
        written: dict[int, int] = {}
        for step, amount, higher in steps:
            if step == "append":
                # None is older than what the log knows of, be it without records: it would be cut before that comes.
                epoch = max(0, log.epochs.latest, *(e for e, _ in recounted(log))) + higher
                log.append_as_leader(build_values([(None, b"x")] * amount, timestamp=1), leader_epoch=epoch, now_ms=1)
            elif step == "wait":
                now_s += amount
            elif step == "cut":
                # Between batches, as a leader's epochs end.
                log.truncate(max((b for b in written if b <= log.leo * amount), default=log.leo))
            elif step == "flush" and amount:
                log.flush()
            elif step == "flush":
                for path in log.unflushed():
                    disk.sync(path)
                log.flushed(log.segments[-1].base_offset)
            else:
                if amount:
                    disk.lose_power()
                before, log = log, Log(TP, log.folder, CONFIG, files=disk)
                log.load(is_clean=False, recovery_point=before.recovery_point)
            headers = [parse_header(batch) for batch in log.batches()]
            written = {header.base_offset: header.partition_leader_epoch for header in headers}
            for header in headers:
                found = {log.epochs.epoch_for(offset) for offset in (header.base_offset, header.last_offset)}
                assert found == {header.partition_leader_epoch}


@pytest.mark.parametrize(("base", "count", "taken"), [(3, 5, True), (3, 2, False), (5, 2, True), (0, 20, True)])
def test_an_empty_log_that_is_to_start_within_a_batch_starts_with_it(
    tmp_path: Path, base: int, count: int, taken: bool
) -> None:
    """The leader's log starts at 5, within the first batch that it has. Kafka:
    `Partition.appendRecordsToFollowerOrFutureReplica`."""
    log = filled(tmp_path, [(2, 0)])
    log.truncate_fully(5)
    batch = place(build_values([(None, b"y")] * count, timestamp=1), base_offset=base, partition_leader_epoch=1)
    if not taken:
        with pytest.raises(UnexpectedOffset):
            log.append_as_follower(batch, now_ms=1)
        assert (log.log_start_offset, log.leo) == (5, 5)
        return
    log.append_as_follower(batch, now_ms=1)
    assert (log.log_start_offset, log.leo) == (base, base + count)
    assert log.raise_log_start(6)
    again = Log(TP, log.folder, CONFIG)
    again.load(is_clean=True, log_start_offset=6)
    assert (again.log_start_offset, again.leo, again.epochs.entries) == (6, base + count, [(1, 6)])
