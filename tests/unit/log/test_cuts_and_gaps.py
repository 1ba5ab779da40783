"""What a log holds and what is kept beside it say the same after every cut; a follower takes only what continues it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.log.config import LogConfig
from broker_sim.log.log import Log, UnexpectedOffset
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
    ("base", "count", "taken"), [(3, 2, True), (5, 1, True), (2, 1, False), (2, 3, False), (0, 9, False)]
)
def test_a_follower_takes_only_what_continues_its_log(tmp_path: Path, base: int, count: int, taken: bool) -> None:
    """It ends at 3. What begins below would be there twice, however far it goes; a gap is what compaction leaves."""
    log = filled(tmp_path, [(3, 0)])
    batch = place(build_values([(None, b"y")] * count, timestamp=1), base_offset=base, partition_leader_epoch=0)
    if taken:
        log.append_as_follower(batch, now_ms=1)
        assert log.leo == base + count
    else:
        with pytest.raises(UnexpectedOffset):
            log.append_as_follower(batch, now_ms=1)
        assert log.leo == 3
