"""`--execute --dry-run`, and the warning of a throttle that is too low: the pure effect, then through the tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controller.admin.cluster.log_dirs import LogDir, ReplicaLog
from controller.admin.cluster.queries import PartitionInfo
from controller.admin.commands import reassign_partitions as reassign
from controller.admin.reassignment.effect import Effect, Now, effect, smallest_useful_rate, steps
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, PartitionReplica, ReplicaAssignment, TopicPartition

FOO_0, FOO_1 = TopicPartition("foo", 0), TopicPartition("foo", 1)


def ids(*brokers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


def state(
    number: int, replicas: tuple[int, ...], *, leader: int | None = None, isr: tuple[int, ...] | None = None
) -> Any:
    return PartitionInfo(
        partition=number,
        leader=BrokerId(replicas[0] if leader is None else leader),
        replicas=ids(*replicas),
        isr=ids(*(replicas if isr is None else isr)),
    )


def log_dir(path: str, *logs: tuple[TopicPartition, int]) -> LogDir:
    replicas = [ReplicaLog(partition=p, size_bytes=size, offset_lag=0, is_future=False) for p, size in logs]
    return LogDir(path=path, replicas=tuple(replicas))


def world(**changes: Any) -> Now:
    """foo-0 on 0,1 with 1000 bytes; foo-1 on 1,0 with 300; brokers 0 to 2, broker 2 with two directories."""
    known: dict[str, Any] = {
        "partitions": {FOO_0: state(0, (0, 1)), FOO_1: state(1, (1, 0))},
        "dirs": {
            0: [log_dir("/d", (FOO_0, 1000), (FOO_1, 290))],
            1: [log_dir("/d", (FOO_0, 990), (FOO_1, 300))],
            2: [log_dir("/a", (TopicPartition("x", 0), 7)), log_dir("/b")],
        },
        "live": frozenset({0, 1, 2}),
    }
    return Now(**{**known, **changes})


def of(now: Now, log_dirs: dict[PartitionReplica, str] | None = None, **targets: tuple[int, ...]) -> Effect:
    names = {"foo_0": FOO_0, "foo_1": FOO_1}
    return effect({names[n]: ids(*t) for n, t in targets.items()}, log_dirs or {}, now)


def test_bytes_per_broker_and_link_and_the_peak_of_each_directory() -> None:
    result = of(world(), foo_0=(1, 2), foo_1=(2, 1))
    assert result.links == {(0, 2): 1000, (1, 2): 300}
    assert (result.bytes_total, result.bytes_into(BrokerId(2)), result.bytes_out_of(BrokerId(0))) == (1300, 1300, 1000)
    assert [(d.broker, d.path, d.before, d.peak, d.after) for d in result.dirs] == [
        (0, "/d", 1290, 1290, 0),
        (2, "/a", 7, 307, 307),
        (2, "/b", 0, 1000, 1000),
    ]
    assert result.least_seconds(100) == 13
    assert result.least_seconds(-1) is None


def test_leaders() -> None:
    stays = of(world(), foo_0=(2, 0)).moves[0]
    assert (stays.leader_moves, stays.preferred_changes, stays.leader_after) == (False, True, 0)
    moves = of(world(), foo_0=(1, 2)).moves[0]
    assert (moves.leader, moves.leader_after, moves.leader_moves) == (0, 1, True)
    dead = of(world(live=frozenset({1, 2})), foo_0=(0, 2)).moves[0]
    assert dead.leader_after == 2
    assert dead.blocked == "broker 0 of the target is not alive, so it cannot come into the ISR"


def test_a_reorder_copies_nothing_and_is_done_at_once() -> None:
    result = of(world(), foo_0=(1, 0))
    assert (result.links, result.dirs) == ({}, ())
    assert steps(result.moves[0]) == ["write replicas [1,0] to /brokers/topics/foo; nothing is copied: done at once"]


def test_the_steps_of_the_controller() -> None:
    assert steps(of(world(), foo_0=(1, 2)).moves[0]) == [
        "write replicas [1,2,0] adding [2] removing [0] to /brokers/topics/foo",
        "LeaderAndIsr with the next leader epoch to 1,2,0; 2 begin",
        "wait until all of 1,2 are in the ISR",
        "leader 0 is not in the target or not alive: elect 1",
        "StopReplica to 0: out of the ISR, then deleted",
        "write replicas [1,2]; UpdateMetadata to all brokers",
    ]
    shrink = steps(of(world(), foo_0=(0,)).moves[0])
    assert not any("wait" in step for step in shrink) and "leader 0 stays; LeaderAndIsr" in shrink[1]


def test_a_move_between_directories_of_a_broker_needs_room_in_both() -> None:
    now = world(partitions={TopicPartition("x", 0): state(0, (2,))})
    moved = effect({TopicPartition("x", 0): ids(2)}, {PartitionReplica(TopicPartition("x", 0), BrokerId(2)): "/b"}, now)
    assert [(d.path, d.before, d.peak, d.after) for d in moved.dirs] == [("/a", 7, 7, 0), ("/b", 0, 7, 7)]
    assert list(moved.dir_moves.values()) == [7], "bytes between directories are told, too"


def test_a_running_reassignment_is_replaced() -> None:
    running = ReplicaAssignment(replicas=ids(2, 0, 1), adding_replicas=ids(2), removing_replicas=ids(1))
    now = world(moving={FOO_0: running}, partitions={FOO_0: state(0, (2, 0, 1), leader=0, isr=(0, 1))})
    move = of(now, foo_0=(1, 0)).moves[0]
    assert (move.meanwhile.replicas, move.meanwhile.adding_replicas) == (ids(1, 0), ())


RATES = [
    ("nothing is written", {}, 0),
    ("one copy in", {FOO_0: 10.0}, 11),
    ("both are copied in by one broker", {FOO_0: 10.5, FOO_1: 4.0}, 15),
]


@pytest.mark.parametrize(("produced", "least"), [r[1:] for r in RATES], ids=[r[0] for r in RATES])
def test_the_smallest_useful_rate(produced: dict[TopicPartition, float], least: int) -> None:
    assert smallest_useful_rate(of(world(), foo_0=(0, 2), foo_1=(1, 2)), produced) == least


def test_a_leader_that_feeds_two_needs_twice_the_rate() -> None:
    now = world(live=frozenset(range(4)), dirs={})
    assert smallest_useful_rate(of(now, foo_0=(2, 3)), {FOO_0: 10.0}) == 21


# -- through the tool --------------------------------------------------------------------------------------------------


@pytest.fixture
def foo(cluster: Any) -> Any:
    cluster.topic("foo", (0, 1))
    cluster.sizes = {PartitionReplica(FOO_0, BrokerId(b)): 5000 for b in (0, 1)}
    return cluster


@pytest.fixture
def plan(tmp_path: Path) -> list[str]:
    (tmp_path / "plan.json").write_text('{"partitions":[{"topic":"foo","partition":0,"replicas":[1,2]}]}')
    return ["--reassignment-json-file", str(tmp_path / "plan.json")]


def test_a_dry_run_tells_all_and_changes_nothing(foo: Any, tool: Any, plan: list[str]) -> None:
    outcome = tool(reassign, foo, ["--execute", "--dry-run", "--throttle", "1000", *plan])
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(
        "Dry run: nothing is changed. 1 partition, 1 replica to copy, 5.0 kB between brokers. At 1000 B/s that takes "
        "at least 0:05 min.\n"
    )
    for line in ("0 -> 2  5.0 kB", "foo-0      0           1", "foo-0  3. wait until all of 1,2 are in the ISR"):
        assert line in outcome.out
    changing = {ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_REPLICA_LOG_DIRS}
    assert not changing & {key for _, key, _ in foo.seen}
    told = json.loads(tool(reassign, foo, ["--execute", "--dry-run", "--json", *plan]).out)["dry_run"]
    assert told["links"] == [{"from": 0, "to": 2, "bytes": 5000}]
    assert told["log_dirs"][1] == {"broker": 2, "log_dir": "/data", "before": 0, "peak": 5000, "after": 5000}


def grow(foo: Any, bytes_per_look: int) -> None:
    def look(broker: int, body: Any) -> None:
        if broker == 0:
            foo.sizes[PartitionReplica(FOO_0, BrokerId(0))] += bytes_per_look

    foo.answers[ApiKey.DESCRIBE_LOG_DIRS] = look


def test_a_throttle_below_the_produce_rate_is_warned_of(foo: Any, tool: Any, plan: list[str]) -> None:
    grow(foo, 2500)
    outcome = tool(reassign, foo, ["--execute", "--throttle", "1000", *plan])
    assert outcome.code == 0
    assert outcome.err.startswith("WARNING: a throttle of 1000 B/s is below the rate at which these partitions are")
    rate = int(outcome.err.partition("smallest useful rate now is ")[2].split()[0])
    assert 2300 < rate <= 2501
    assert "Successfully started" in outcome.out


def test_of_what_runs_already_a_throttle_is_warned_of_as_in_a_dry_run(foo: Any, tool: Any, plan: list[str]) -> None:
    """foo-0 is on its way to 1 and 2: asked for once more, nothing is added, and yet all is still to be copied."""
    zero, one, two = map(BrokerId, range(3))
    foo.topics["foo"][0].replicas, foo.topics["foo"][0].isr = (1, 2, 0), (0,)
    foo.running[FOO_0] = ReplicaAssignment(
        replicas=(one, two, zero), adding_replicas=(one, two), removing_replicas=(zero,)
    )
    grow(foo, 2500)
    words = ["--execute", "--additional", "--throttle", "1000", *plan]
    dry, done = tool(reassign, foo, [*words, "--dry-run"]), tool(reassign, foo, words)
    assert done.err == dry.err and done.err.startswith("WARNING: a throttle of 1000 B/s is below the rate")


def test_a_throttle_above_it_is_not(foo: Any, tool: Any, plan: list[str]) -> None:
    grow(foo, 500)
    assert tool(reassign, foo, ["--execute", "--throttle", "1000", *plan]).err == ""


def test_a_throttle_of_nothing_is_always_warned_of(foo: Any, tool: Any, plan: list[str]) -> None:
    outcome = tool(reassign, foo, ["--execute", "--throttle", "0", *plan])
    assert "smallest useful rate now is 1 B/s" in outcome.err


def test_a_broker_that_does_not_tell_its_sizes_stops_nothing(foo: Any, tool: Any, plan: list[str]) -> None:
    foo.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: {"results": []}
    outcome = tool(reassign, foo, ["--execute", "--throttle", "5", *plan])
    assert (outcome.code, outcome.err) == (0, "")
