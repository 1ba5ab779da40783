"""The leader-epoch cache: the examples of Kafka's rules, and its file."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.log.checkpoints import CheckpointError
from broker_sim.log.config import LogConfig
from broker_sim.log.leader_epochs import EpochFile, LeaderEpochs
from broker_sim.log.log import Log
from controller.wire.records import build_values
from controller.wire.types import TopicPartition

TP = TopicPartition("t", 0)
EXAMPLE = [(0, 0), (2, 100), (5, 180)]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (0, 100)), (1, (0, 100)), (2, (2, 180)), (4, (2, 180)), (5, (5, 250)), (7, (-1, -1)), (-1, (-1, -1))],
)
def test_end_offset_for(epoch: Any, expected: Any) -> None:
    assert LeaderEpochs(list(EXAMPLE)).end_offset_for(epoch, leo=250) == expected


def test_end_offset_for_at_the_edges() -> None:
    assert LeaderEpochs().end_offset_for(3, leo=9) == (-1, -1)
    assert LeaderEpochs([(4, 10), (6, 20)]).end_offset_for(2, leo=30) == (2, 10)


ASSIGNMENTS = [
    pytest.param((5, 200), EXAMPLE, False, id="the newest epoch again, later: nothing"),
    pytest.param((5, 180), EXAMPLE, False, id="the newest epoch again: nothing"),
    pytest.param((5, 170), [(0, 0), (2, 100), (5, 170)], True, id="the newest epoch again, earlier"),
    pytest.param((5, 90), [(0, 0), (5, 90)], True, id="the newest epoch again, earlier than another"),
    pytest.param((6, 250), [*EXAMPLE, (6, 250)], True, id="a newer one"),
    pytest.param((6, 150), [(0, 0), (2, 100), (6, 150)], True, id="a newer one that starts earlier removes"),
    pytest.param((3, 190), [(0, 0), (2, 100), (3, 190)], True, id="an older one removes the newer"),
    pytest.param((-1, 300), EXAMPLE, False, id="no epoch: nothing"),
]


@pytest.mark.parametrize(("entry", "expected", "changed"), ASSIGNMENTS)
def test_assign(entry: Any, expected: Any, changed: Any) -> None:
    epochs = LeaderEpochs(list(EXAMPLE))
    assert epochs.assign(*entry) is changed
    assert epochs.entries == expected


FOUND = [
    pytest.param((2, 100, 170), EXAMPLE, id="as it is known"),
    pytest.param((2, 120, 170), EXAMPLE, id="its first batch was not read"),
    pytest.param((2, 90, 170), [(0, 0), (2, 90), (5, 180)], id="it starts earlier"),
    pytest.param((2, 100, 190), [(0, 0), (2, 100)], id="a newer one began where its batches are"),
    pytest.param((4, 100, 170), [(0, 0), (4, 100), (5, 180)], id="in place of an older one, below a newer"),
    pytest.param((7, 150, 190), [(0, 0), (2, 100), (7, 150)], id="in place of the newest"),
]


@pytest.mark.parametrize(("batches", "expected"), FOUND)
def test_what_is_found_in_batches_goes_before_what_was_known(batches: Any, expected: Any) -> None:
    """A loss of power may have brought back a file of before a cut."""
    epochs = LeaderEpochs(list(EXAMPLE))
    epochs.found(*batches)
    assert epochs.entries == expected


@pytest.mark.parametrize(
    ("offset", "expected"), [(250, EXAMPLE), (180, [(0, 0), (2, 100)]), (101, [(0, 0), (2, 100)]), (0, [])]
)
def test_truncate_from_end(offset: Any, expected: Any) -> None:
    epochs = LeaderEpochs(list(EXAMPLE))
    assert epochs.truncate_from_end(offset) is (expected != EXAMPLE)
    assert epochs.entries == expected


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, EXAMPLE), (50, [(0, 50), (2, 100), (5, 180)]), (100, [(2, 100), (5, 180)]), (999, [(5, 999)])],
)
def test_truncate_from_start(offset: Any, expected: Any) -> None:
    epochs = LeaderEpochs(list(EXAMPLE))
    epochs.truncate_from_start(offset)
    assert epochs.entries == expected


@settings(max_examples=80)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 90)), max_size=12), st.integers(0, 10))
def test_entries_rise_and_lookups_agree_with_the_definition(pairs: Any, epoch: Any) -> None:
    epochs = LeaderEpochs()
    for pair in pairs:
        epochs.assign(*pair)
    found = epochs.entries
    assert found == sorted(found)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(found))
    got, end = epochs.end_offset_for(epoch, leo=100)
    if got != -1:
        assert end == next((o for e, o in found if e > got), 100)
        assert all(e <= epoch for e in [got])


def test_the_file_in_kafkas_format(tmp_path: Path) -> None:
    file = EpochFile(tmp_path / "leader-epoch-checkpoint")
    assert file.read().entries == []
    file.path.touch()
    assert file.read().entries == [], "as Kafka leaves it until it writes one"
    file.write(LeaderEpochs(list(EXAMPLE)))
    assert file.path.read_text() == "0\n3\n0 0\n2 100\n5 180\n"
    assert file.read().entries == EXAMPLE


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n0\n0 0\n",
        "0\n1\n0 0\n1 5\n",
        "0\n2\n0 0\n",
        "0\n2\n0 0",
        "0\n-1\n",
        "0\n1\nx y\n",
        "0\n1\n1 2 3\n",
    ],
)
def test_another_content_is_refused(tmp_path: Path, text: Any) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError, match="leader-epoch-checkpoint"):
        EpochFile(path).read()


STEPS = st.lists(st.sampled_from(["append", "append", "epoch", "start", "end"]), min_size=2, max_size=25)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.data())
def test_after_a_kill_the_cache_is_that_of_the_batches_whatever_log_start_was_known(steps: Any, data: Any) -> None:
    """The file is written with each change, the checkpoint of the log start now and then: it may say less."""
    with tempfile.TemporaryDirectory() as folder:
        log, epoch = Log(TP, Path(folder) / "t-0", LogConfig(segment_bytes=400, segment_index_bytes=1_200)), 0
        log.create()
        for step in steps:
            if step == "append":
                log.append_as_leader(build_values([(b"k", b"x" * 60)], timestamp=0), leader_epoch=epoch, now_ms=0)
            elif step == "epoch":
                epoch += data.draw(st.integers(1, 2))
                log.assign_epoch(epoch, log.leo)
            elif step == "start":
                log.raise_log_start(data.draw(st.integers(log.log_start_offset, log.leo)))
            else:
                log.truncate(data.draw(st.integers(log.log_start_offset, log.leo)))
        start = data.draw(st.integers(0, log.log_start_offset))
        again = Log(TP, log.folder, log.config)
        again.load(is_clean=data.draw(st.booleans()), log_start_offset=start, recovery_point=0)
        read = {
            (max(header.base_offset, again.log_start_offset), header.partition_leader_epoch)
            for segment in again.segments
            for _, header in segment.headers()
            if header.last_offset >= again.log_start_offset
        }
        assert {(offset, again.epochs.epoch_for(offset)) for offset, _ in read} == read
        assert again.epochs.entries == sorted(set(again.epochs.entries))


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_takes_back_no_epochs_that_a_lower_one_has_followed(tmp_path: Path, is_clean: bool) -> None:
    """A broker that was away when a topic was deleted may lead the next one of that name with the log that it has."""
    log = Log(TP, tmp_path / "t-0", LogConfig())
    log.create()
    for epoch in (1, 4, 0, 3):
        log.append_as_leader(build_values([(b"k", b"v")] * 3, timestamp=1), leader_epoch=epoch, now_ms=1)
    assert log.epochs.entries == [(0, 6), (3, 9)]
    again = Log(TP, log.folder, LogConfig())
    again.load(is_clean=is_clean)
    assert again.epochs.entries == EpochFile(log.folder / "leader-epoch-checkpoint").read().entries == [(0, 6), (3, 9)]


@pytest.mark.parametrize("is_clean", [True, False])
def test_epochs_that_a_kill_left_above_the_end_are_gone_and_the_file_is_synced_with_the_batches(
    tmp_path: Path, is_clean: bool
) -> None:
    """After a kill nobody knows whether the file had reached the disk."""
    log = Log(TP, tmp_path / "t-0", LogConfig())
    log.create()
    for epoch in (1, 2):
        log.append_as_leader(build_values([(b"k", b"v")] * 3, timestamp=1), leader_epoch=epoch, now_ms=1)
    log.flush()
    file = EpochFile(log.folder / "leader-epoch-checkpoint")
    file.write(LeaderEpochs([(1, 0), (2, 3), (4, 6), (7, 9)]))
    again = Log(TP, log.folder, LogConfig())
    again.load(is_clean=is_clean, recovery_point=3)
    assert again.epochs.entries == file.read().entries == [(1, 0), (2, 3), (4, 6)]
    again.append_as_leader(build_values([(b"k", b"v")], timestamp=1), leader_epoch=4, now_ms=1)
    assert file.path in again.unflushed(include_active=True), "it was written"
    again.flush()
    third = Log(TP, log.folder, LogConfig())
    third.load(is_clean=is_clean, recovery_point=3)
    third.append_as_leader(build_values([(b"k", b"v")], timestamp=1), leader_epoch=4, now_ms=1)
    assert (file.path in third.unflushed(include_active=True)) is not is_clean
