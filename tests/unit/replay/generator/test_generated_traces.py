"""Generated traces: the rules of the replay must find the truth that was told in closed form, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_sim.replay.errors import EXIT_USAGE
from broker_sim.replay.generator.columns import broker_rows, of_rows, partition_batches
from broker_sim.replay.generator.command import main
from broker_sim.replay.generator.plan import ClusterPlan, FaultKind
from broker_sim.replay.generator.story import PartitionStory
from broker_sim.replay.rows import LaneRow, OutcomeKind
from broker_sim.replay.rules.lane import Lane
from broker_sim.replay.validation import local
from controller.wire.types import BrokerId

CHANGES = ("isr_shrink", "isr_expand")


def told(plan: ClusterPlan, index: int) -> tuple[PartitionStory, list[dict[str, Any]]]:
    story = PartitionStory(plan, index)
    story.tell()
    rows = [row for batch in partition_batches(plan, story) for row in batch.to_pylist()]
    return story, rows


def lane_rows(plan: ClusterPlan, rows: list[dict[str, Any]], broker: int) -> Iterator[LaneRow]:
    """What the job gives the lane of this broker: its rows of the partition and its own, by process and `seq`."""
    own = of_rows(plan, broker_rows(plan), plan.partition_count).to_pylist()
    mine = [r for r in (*rows, *own) if r["role"] == "broker" and r["broker"] == broker]
    ends = Counter[int]()
    for row in mine:
        ends[row["run"]] = max(ends[row["run"]], row["ts"])
    for row in sorted(mine, key=lambda r: (r["run"], r["seq"])):
        known = {name: row[name] for name in LaneRow._fields if name in row}
        yield LaneRow(**known, of_topic=False, run_ticks=0, run_end=ends[row["run"]])


def derived(plan: ClusterPlan, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = []
    for broker in plan.broker_ids:
        lane = Lane(broker=BrokerId(broker))
        for row in lane_rows(plan, rows, broker):
            lane.feed(row)
        lane.finish()
        kinds = (OutcomeKind.SHRINK.value, OutcomeKind.EXPAND.value)
        found += [(o.ts, o.kind, broker, o.epoch, tuple(o.isr or ())) for o in lane.outcomes if o.kind in kinds]
    return sorted(found)


def truth(story: PartitionStory) -> list[tuple[Any, ...]]:
    rows = [t for t in story.truth if t["event"] in CHANGES]
    return [(t["ts"], t["event"], t["leader"], t["leader_epoch"], tuple(t["isr"])) for t in rows]


def assert_the_rules_find_the_truth(plan: ClusterPlan) -> int:
    changes = 0
    for index in range(plan.partition_count):
        story, rows = told(plan, index)
        assert derived(plan, rows) == truth(story), f"{plan.topic_partition(index)}, seed {plan.seed}"
        changes += len(truth(story))
    return changes


@pytest.mark.parametrize(
    ("why", "changed"),
    [
        ("the default cluster", {}),
        ("more brokers than replicas, so that replicas can move", {"brokers": 5, "fault_every_ms": 30_000}),
        ("two replicas of which both must be in sync, so that the high watermark freezes", {
            "replication_factor": 2, "min_insync_replicas": 2}),
        ("one replica, which is offline while its broker is away", {"replication_factor": 1}),
        ("rare appends, between which nothing needs to be fetched", {"append_interval_ms": 20_000}),
        ("dense appends", {"append_interval_ms": 24, "hours": 0.2, "fault_every_ms": 5_000}),
        ("a short limit, an odd one", {"lag_time_max_ms": 4_001}),
        ("five replicas", {"brokers": 7, "replication_factor": 5, "min_insync_replicas": 3}),
        ("only kills", {"faults_wanted": {FaultKind.KILL: 1}}),
        ("only throttled followers", {"faults_wanted": {FaultKind.SLOW: 1}}),
    ],
)  # fmt: skip
def test_the_rules_find_the_truth(why: str, changed: dict[str, Any]) -> None:
    plan = ClusterPlan(**{"partitions_per_topic": 3, "hours": 0.5, "seed": 7, "fault_every_ms": 30_000, **changed})
    assert plan.faults
    changes = assert_the_rules_find_the_truth(plan)
    assert changes > 3 or plan.replication_factor == 1


@settings(max_examples=4, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    brokers=st.integers(3, 6),
    append_interval_ms=st.sampled_from([40, 700, 9_000]),
    lag_time_max_ms=st.integers(2_000, 40_000),
)
def test_whatever_the_seed(seed: int, brokers: int, append_interval_ms: int, lag_time_max_ms: int) -> None:
    assert_the_rules_find_the_truth(
        ClusterPlan(
            brokers=brokers,
            partitions_per_topic=2,
            hours=0.2,
            seed=seed,
            append_interval_ms=append_interval_ms,
            lag_time_max_ms=lag_time_max_ms,
            fault_every_ms=10_000,
        )
    )


def test_a_tick_between_the_last_two_steps_of_a_move_removes_who_is_not_assigned_any_more() -> None:
    """The leader drops the replica before the controller does, which then has nothing to write."""
    plan = ClusterPlan(
        brokers=6,
        partitions_per_topic=2,
        hours=0.5,
        seed=1334,
        append_interval_ms=40,
        lag_time_max_ms=15_083,
        fault_every_ms=10_000,
    )
    story, rows = told(plan, 1)
    assert derived(plan, rows) == truth(story)
    shrinks = [(t["replica"], t["isr"]) for t in story.truth if t["event"] == "isr_shrink" and t["leader_epoch"] == 2]
    assert shrinks[0] == (6, (1, 5, 2))


def test_what_moves_copied_is_the_sum_of_what_added_replicas_fetched() -> None:
    """Per partition, through outcomes and histories, as the job does it."""
    plan = ClusterPlan(
        brokers=5,
        partitions_per_topic=6,
        hours=0.5,
        seed=3,
        fault_every_ms=20_000,
        faults_wanted={FaultKind.REASSIGN: 1},
    )
    rows = [row for i in range(plan.partition_count) for row in told(plan, i)[1]]
    rows += of_rows(plan, broker_rows(plan), plan.partition_count).to_pylist()
    plain = [{k: v for k, v in row.items() if v is not None} for row in rows]
    adding = {(r["topic"], r["partition"], r["broker"], r["epoch"]): r["adding"] for r in plain if r["ev"] == "leader"}
    fetched = Counter[tuple[str, int]]()
    for row in plain:
        if row["ev"] == "fetch":
            place = (row["topic"], row["partition"])
            if row["replica"] in adding[(*place, row["broker"], row["epoch"])]:
                fetched[place] += row["bytes"]
    copied = Counter[tuple[str, int]]()
    moves = 0
    for row in local.histories_of(plain, local.outcomes_of(plain, "P37")):
        if row["table"] == "reassignments":
            copied[row["topic"], row["partition"]] += row["copied_bytes"]
            moves += 1
    assert moves > 5 and copied == fetched and all(fetched.values())


def test_a_wrong_rule_is_found_out() -> None:
    """The comparison can fail: followers that are dropped half a second late are not what was told."""
    plan = ClusterPlan(partitions_per_topic=1, seed=1, faults_wanted={FaultKind.PAUSE: 1})
    story, rows = told(plan, 0)
    late = ClusterPlan(partitions_per_topic=1, seed=1, faults_wanted={FaultKind.PAUSE: 1}, lag_time_max_ms=31_000)
    assert derived(late, rows) != truth(story)


def test_every_row_has_a_place_of_its_own() -> None:
    """`seq` rises with time for each emitter and is never used twice, over all partitions and the broker's own rows."""
    plan = ClusterPlan(brokers=4, partitions_per_topic=3, hours=0.6, fault_every_ms=20_000)
    rows = [r for i in range(3) for r in told(plan, i)[1]]
    rows += of_rows(plan, broker_rows(plan), plan.partition_count).to_pylist()
    of_emitter: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for row in rows:
        of_emitter.setdefault((row["role"], row["broker"]), []).append((row["seq"], row["ts"]))
    for places in of_emitter.values():
        places.sort()
        assert len({seq for seq, _ in places}) == len(places)
        assert [ts for _, ts in places] == sorted(ts for _, ts in places)


def test_one_seed_is_one_trace(tmp_path: Path) -> None:
    words = ["--partitions-per-topic", "2", "--hours", "0.2", "--seed", "5", "--fault-every-ms", "10000"]
    for name in ("a", "b"):
        assert main(["generate", "--out", str(tmp_path / name), *words]) == 0
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*.json*"))
    assert [f.name for f in files if f.name.startswith("broker-")]
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_both_formats_have_the_same_rows(tmp_path: Path) -> None:
    words = ["--partitions-per-topic", "3", "--hours", "0.2", "--fault-every-ms", "10000"]
    assert main(["generate", "--out", str(tmp_path / "lines"), *words]) == 0
    assert main(["generate", "--out", str(tmp_path / "parquet"), "--format", "parquet", *words]) == 0
    lines = [json.loads(li) for f in (tmp_path / "lines/trace").iterdir() for li in f.read_text().splitlines()]
    table = pq.read_table(tmp_path / "parquet/trace").drop_columns(["role", "run"]).to_pylist()
    nulls_left_out = [{k: v for k, v in row.items() if v is not None} for row in table]

    def key(row: dict[str, Any]) -> tuple[int, int]:
        return row["broker"], row["seq"]

    assert sorted(lines, key=key) == sorted(nulls_left_out, key=key)
    of_partitions = pq.read_table(tmp_path / "parquet/trace/part-00000.parquet")
    places = [(row["topic"], row["partition"], *key(row)) for row in of_partitions.to_pylist()]
    assert places == sorted(places), "sorted within each partition"
    for file in (tmp_path / "lines/trace").iterdir():
        seqs = [json.loads(line)["seq"] for line in file.read_text().splitlines()]
        assert seqs == sorted(set(seqs))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--brokers", "0"], "brokers: 0; at least 1"),
        (["--replication-factor", "4"], "replication factor: 4; 1 to 3"),
        (["--hours", "0"], "hours: 0.0; more than 0"),
        (["--append-interval-ms", "15"], "append interval: 15 ms; at least 16 with a skew of 1"),
        (["--append-interval-ms", "100", "--skew", "10"], "append interval: 100 ms; at least 160 with a skew of 10"),
        (["--faults", "pause=1,fire=2"], "no kind 'fire'; there are pause, slow, kill"),
        (["--faults", "pause=much"], "pause: 'much' is no number"),
    ],
)
def test_what_cannot_be_generated_is_refused(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "--out", str(tmp_path / "out"), *words]) == EXIT_USAGE
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert main(["generate", "--out", str(tmp_path)]) == EXIT_USAGE
    assert "exists already" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
