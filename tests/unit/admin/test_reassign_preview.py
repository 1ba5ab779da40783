"""`--execute --dry-run`, and the warning of a throttle that is too low: the pure effect, then through the tool."""

from __future__ import annotations

import json
from dataclasses import replace
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


#: what is asked of foo-0, which is on 0 and 1 -> whether it waits for anybody
WAITS = [((0, 2), True), ((0,), True), ((2,), True), ((1, 0), False), ((0, 1), False)]


@pytest.mark.parametrize(("target", "waits"), WAITS)
def test_what_adds_or_removes_replicas_needs_a_leader_and_the_whole_target(
    target: tuple[int, ...], waits: bool
) -> None:
    assert of(world(), foo_0=target).moves[0].blocked is None
    leaderless = replace(state(0, (0, 1)), leader=None)
    now = world(partitions={**world().partitions, FOO_0: leaderless})
    assert of(now, foo_0=target).moves[0].blocked == ("it has no leader to copy from" if waits else None)
    dead = of(world(live=frozenset({0, 1, 2} - {target[-1]})), foo_0=target).moves[0].blocked
    assert (dead or "").startswith(f"broker {target[-1]} of the target is not alive") is waits


def test_what_a_broker_gets_and_what_it_sends_take_their_time_side_by_side() -> None:
    dirs = {0: [log_dir("/d", (FOO_0, 1000))], 1: [log_dir("/d")], 2: [log_dir("/d", (FOO_1, 300))]}
    now = world(partitions={FOO_0: state(0, (0, 1)), FOO_1: state(1, (2, 1))}, dirs=dirs)
    result = of(now, foo_0=(1, 2), foo_1=(1, 0))
    assert result.links == {(0, 2): 1000, (2, 0): 300}
    assert (result.least_seconds(100), result.least_seconds(1000), result.least_seconds(0)) == (10, 1, None)


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
    """From the smallest useful rate on, which the warning names."""
    grow(foo, 500)
    words = ["--execute", "--dry-run", "--json", *plan, "--throttle"]
    useful = json.loads(tool(reassign, foo, [*words, "1"]).out)["dry_run"]["smallest_useful_rate"]
    assert 450 < useful <= 501
    assert f"{useful} B/s" in tool(reassign, foo, [*words, str(useful - 1)]).err
    assert [tool(reassign, foo, [*words, rate]).err for rate in (str(useful), "1000")] == ["", ""]
    assert tool(reassign, foo, ["--execute", "--throttle", "1000", *plan]).err == ""


def test_a_throttle_of_nothing_is_always_warned_of(foo: Any, tool: Any, plan: list[str]) -> None:
    outcome = tool(reassign, foo, ["--execute", "--throttle", "0", *plan])
    assert "smallest useful rate now is 1 B/s" in outcome.err


def test_a_broker_that_does_not_tell_its_sizes_stops_nothing(foo: Any, tool: Any, plan: list[str]) -> None:
    foo.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: {"results": []}
    outcome = tool(reassign, foo, ["--execute", "--throttle", "5", *plan])
    assert (outcome.code, outcome.err) == (0, "")


# -- all that is told --------------------------------------------------------------------------------------------------

#: of four partitions one moves, one is in another order, one goes to another directory and one has no leader
FOUR = {
    "partitions": [
        {"topic": "foo", "partition": 0, "replicas": [1, 2]},
        {"topic": "foo", "partition": 1, "replicas": [0, 1]},
        {"topic": "foo", "partition": 2, "replicas": [0, 1], "log_dirs": ["/other", "any"]},
        {"topic": "foo", "partition": 3, "replicas": [0, 2]},
    ]
}
WHOLE = """\
Dry run: nothing is changed. 4 partitions, 2 replicas to copy, 36.0 MB between brokers. 1 replica to move between log \
dirs of their brokers, 700 bytes. At 10000 B/s that takes at least 1 h 00 min.

broker  bytes in  bytes out
0        0 bytes    36.0 MB
2        36.0 MB    0 bytes

link      bytes
0 -> 2  36.0 MB

partition  leader now  leader after  note
foo-0      0           1
foo-1      1           1             a later preferred election moves it to 0
foo-3      none        0             would not get done: it has no leader to copy from

broker  log dir      now       peak      after
0       /data    36.0 MB    36.0 MB     2.0 kB
0       /other   0 bytes  700 bytes  700 bytes
1       /data    36.0 MB    36.0 MB    36.0 MB
2       /data    0 bytes    36.0 MB    36.0 MB

steps of the controller, in order:
"""


@pytest.fixture
def four(cluster: Any) -> Any:
    cluster.topic("foo", (0, 1), (1, 0), (0, 1), (0, 1))
    cluster.topics["foo"][3].leader, cluster.topics["foo"][3].isr = -1, ()
    cluster.sizes = {
        PartitionReplica(TopicPartition("foo", n), BrokerId(b)): size
        for n, size in enumerate((36_040_000, 2000, 700))
        for b in (0, 1)
    }
    return cluster


@pytest.mark.parametrize("throttle", [None, 10_000])
def test_all_that_a_dry_run_tells(four: Any, tool: Any, plan: list[str], tmp_path: Path, throttle: int | None) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(FOUR))
    words = ["--execute", "--dry-run", *(() if throttle is None else ("--throttle", str(throttle))), *plan]
    outcome = tool(reassign, four, words)
    expected = WHOLE if throttle is not None else WHOLE.replace(" At 10000 B/s that takes at least 1 h 00 min.", "")
    assert [line.rstrip() for line in outcome.out.splitlines()][:21] == expected.splitlines()
    row = json.loads(tool(reassign, four, [*words, "--json"]).out)["dry_run"]
    assert (row["bytes_total"], row["bytes_between_log_dirs"], row["smallest_useful_rate"]) == (36_040_000, 700, None)
    assert row["least_seconds"] == (None if throttle is None else 3604)
    assert row["brokers"] == [
        {"broker": 0, "bytes_in": 0, "bytes_out": 36_040_000},
        {"broker": 2, "bytes_in": 36_040_000, "bytes_out": 0},
    ]
    columns = [column for column in row["partitions"][0] if column != "steps"]
    assert columns == [
        "partition", "replicas_meanwhile", "adding_replicas", "removing_replicas", "target", "leader", "leader_after",
        "blocked",
    ]  # fmt: skip
    assert [tuple(one[column] for column in columns) for one in row["partitions"]] == [
        ("foo-0", [1, 2, 0], [2], [0], [1, 2], 0, 1, None),
        ("foo-1", [0, 1], [], [], [0, 1], 1, 1, None),
        ("foo-2", [0, 1], [], [], [0, 1], 0, 0, None),
        ("foo-3", [0, 2, 1], [2], [1], [0, 2], None, 0, "it has no leader to copy from"),
    ]
    listed = [f"{one['partition']}  {n}. {text}" for one in row["partitions"] for n, text in enumerate(one["steps"], 1)]
    assert outcome.out.splitlines()[21:] == listed


@pytest.mark.parametrize("count", [20, 21, 23])
def test_steps_are_listed_of_twenty(cluster: Any, tool: Any, plan: list[str], tmp_path: Path, count: int) -> None:
    cluster.topic("foo", *[(0, 1)] * count)
    rows = [{"topic": "foo", "partition": n, "replicas": [0, 1]} for n in range(count)]
    (tmp_path / "plan.json").write_text(json.dumps({"partitions": rows}))
    out = tool(reassign, cluster, ["--execute", "--dry-run", *plan]).out
    assert out.count("done at once") == 20
    assert ("... and the same" in out, f"same for {count - 20} more partitions\n" in out) == (count > 20, count > 20)
    assert "leaders moved: none" in out and "link" not in out and "log dir " not in out


def test_on_kraft_the_steps_are_krafts(foo: Any, tool: Any, plan: list[str]) -> None:
    foo.answers[ApiKey.DESCRIBE_QUORUM] = lambda broker, body: None
    out = tool(reassign, foo, ["--execute", "--dry-run", *plan]).out
    assert "foo-0  1. metadata log: PartitionChange" in out and "/brokers/topics" not in out


def test_a_dry_run_names_the_smallest_useful_rate(foo: Any, tool: Any, plan: list[str]) -> None:
    """That of what leaders' logs get: a copy under way to another directory of a leader is none of it."""
    grow(foo, 2500)
    foo.futures = {PartitionReplica(FOO_0, BrokerId(0)): "/other"}
    outcome = tool(reassign, foo, ["--execute", "--dry-run", "--json", "--throttle", "1000", *plan])
    assert 2300 < json.loads(outcome.out)["dry_run"]["smallest_useful_rate"] <= 2501
    assert outcome.err.startswith("WARNING: a throttle of 1000 B/s is below the rate")


def test_where_nothing_is_copied_no_throttle_is_too_low(foo: Any, tool: Any, plan: list[str], tmp_path: Path) -> None:
    grow(foo, 2500)
    (tmp_path / "plan.json").write_text('{"partitions":[{"topic":"foo","partition":0,"replicas":[1,0]}]}')
    outcome = tool(reassign, foo, ["--execute", "--dry-run", "--throttle", "0", *plan])
    assert (outcome.code, outcome.err) == (0, "")


@pytest.mark.parametrize("who", [{0}, {0, 1, 2}])
def test_brokers_that_say_nothing_of_their_logs_stop_no_dry_run(foo: Any, tool: Any, plan: list[str], who: Any) -> None:
    foo.answers[ApiKey.DESCRIBE_LOG_DIRS] = lambda broker, body: {"results": []} if broker in who else None
    out = tool(reassign, foo, ["--execute", "--dry-run", *plan]).out
    assert ("1 replica to copy, 5.0 kB between brokers" in out) is (who == {0}), "the follower's log is as good"
    assert "0 -> 2" in out


@pytest.mark.parametrize(("rate", "time"), [(5001, "0:01"), (1000, "0:05"), (999, "0:06"), (50, "1:40"), (1, "1 h 23")])
def test_the_least_time_is_rounded_up(foo: Any, tool: Any, plan: list[str], rate: int, time: str) -> None:
    out = tool(reassign, foo, ["--execute", "--dry-run", "--throttle", str(rate), *plan]).out
    assert f"At {rate} B/s that takes at least {time} min.\n" in out
