"""Recorded runs of real KRaft clusters (Kafka 4.1.0) under faults: every version of every partition, exactly.

`elr`: brokers killed below min.insync.replicas, eligible leader replicas, an unclean election. `controllers`: all three
controllers killed and back, brokers and controllers restarted one by one, a topic deleted and created again, moves.
The truth is what Kafka's own decoder says of the segments, folded; the snapshots are Kafka's own.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from broker_sim.replay.metadata_log import local
from broker_sim.replay.metadata_log.causes import Cause
from broker_sim.replay.metadata_log.files import FOLDER, metadata_files
from broker_sim.replay.metadata_log.fold import Kind

HERE: Final = Path(__file__).parents[3] / "kraft_runs"
SHARED: Final = Path(__file__).parents[5] / "shared" / "data" / "kraft" / "faults-a"
RUNS: Final = [HERE / "elr", HERE / "controllers", SHARED]


def read(*paths: Path) -> local.LocalLog:
    return local.read(metadata_files(paths)[0])


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_version_has_its_time_leader_epochs_isr_and_replicas(run: Path) -> None:
    if not run.is_dir():
        pytest.skip("the recorded run is not beside the repository (../shared/data/kraft)")
    truth = [json.loads(line) for line in (run / "truth.jsonl").read_text().splitlines()]
    log = read(run / "metadata")
    told = {
        (topic, partition, change.offset): {
            "ms": change.ts,
            "leader": change.leader,
            "leader_epoch": change.leader_epoch,
            "partition_epoch": change.partition_epoch,
            "isr": change.isr,
            "replicas": change.replicas,
            "adding": change.adding,
            "removing": change.removing,
            "elr": change.elr,
        }
        for (topic, partition), changes in log.changes.items()
        for change in changes
        if change.event in (Kind.CREATED, Kind.CHANGED)
    }
    written = {(row.pop("topic"), row.pop("partition"), row.pop("offset")): row for row in truth}
    assert told.keys() == written.keys()
    for place, row in written.items():
        assert {name: told[place][name] for name in row} == row, place


@pytest.mark.parametrize("run", RUNS[:2], ids=lambda run: run.name)
def test_the_state_at_the_latest_snapshot_is_that_of_the_snapshot(run: Path) -> None:
    log = read(run / "metadata")
    assert {one.what for one in log.checked} == {""}
    assert len(log.checked) == len(log.changes)


@pytest.mark.parametrize("run", RUNS[:2], ids=lambda run: run.name)
def test_from_any_snapshot_on_the_same_versions_follow(run: Path, tmp_path: Path) -> None:
    whole = read(run / "metadata")
    folder = run / "metadata" / FOLDER
    for snapshot in sorted(folder.glob("*.checkpoint")):
        at = int(snapshot.name[:20])
        cut = tmp_path / snapshot.stem / FOLDER
        cut.mkdir(parents=True)
        shutil.copy(snapshot, cut)
        begins = max(int(f.stem) for f in folder.glob("*.log") if int(f.stem) <= at)
        for segment in folder.glob("*.log"):
            if int(segment.stem) >= begins:
                shutil.copy(segment, cut)
        told = read(cut)
        for place, changes in whole.changes.items():
            rest = [c for c in changes if c.offset >= at]
            later = [c for c in told.changes.get(place, []) if c.offset >= at and c.event != Kind.SNAPSHOT]
            assert later == rest
        before = {c.event for changes in told.changes.values() for c in changes if c.offset < at}
        assert before <= {Kind.WITHOUT_STATE, Kind.CREATED, Kind.CHANGED}


def test_causes_of_a_run_with_every_kind_of_loss() -> None:
    told = Counter(c.cause for changes in read(HERE / "elr" / "metadata").changes.values() for c in changes)
    assert {Cause.FENCING, Cause.SHUTDOWN, Cause.LEADER, Cause.ELECTION, Cause.UNCLEAN_ELECTION} <= told.keys()
    assert not told[Cause.UNKNOWN]


def test_a_topic_that_was_created_again_begins_at_epoch_0() -> None:
    again = read(HERE / "controllers" / "metadata").changes["short-lived", 0]
    events = [(c.event, c.partition_epoch) for c in again if c.event != Kind.CHANGED]
    assert events == [(Kind.CREATED, 0), (Kind.DELETED, None), (Kind.CREATED, 0)]


def test_copies_and_overlaps_change_nothing(tmp_path: Path) -> None:
    shutil.copytree(HERE / "elr" / "metadata", tmp_path / "copy")
    once, twice = read(HERE / "elr" / "metadata"), read(HERE / "elr" / "metadata", tmp_path / "copy")
    assert (once.changes, once.checked) == (twice.changes, twice.checked)


def test_a_lost_segment_is_a_gap_behind_which_the_next_snapshot_tells_the_state(tmp_path: Path) -> None:
    shutil.copytree(HERE / "elr" / "metadata" / FOLDER, tmp_path / FOLDER)
    (tmp_path / FOLDER / f"{215:020}.log").unlink()
    cut, whole = read(tmp_path), read(HERE / "elr" / "metadata")
    assert [(g.start, g.end) for g in cut.inventory.gaps] == [(215, 244), (244, 335)]
    for place, changes in cut.changes.items():
        assert {c.event for c in changes} >= {Kind.UNKNOWN, Kind.SNAPSHOT}
        known = [c for c in changes if c.event in (Kind.CREATED, Kind.CHANGED)]
        assert [c for c in known if c not in whole.changes[place]] == []
