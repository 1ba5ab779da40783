"""Every kind of row that a broker emits, against the table of isr-replay.md §7: what it tells, and when it comes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from broker_sim.trace import TraceWriter
from controller.wire.errors import ErrorCode
from controller.wire.trace import COLUMNS, TraceEvent
from controller.wire.types import EPOCH_DURING_DELETE, TopicPartition
from controller.world.simulated.world import run_world

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = (1, 2, 3)
_OF_PARTITION = {"topic", "partition"}
_CHANGE = _OF_PARTITION | {"epoch", "isr_old", "isr", "replica", "err", "cu", "done"}
#: kind -> columns that it must have beyond seq, ts, broker (§7); the controller's kinds are not here.
REQUIRED: dict[TraceEvent, set[str]] = {
    TraceEvent.START: {"value"},
    TraceEvent.DOWN: set(),
    TraceEvent.CONFIG: {"key"},
    TraceEvent.LEADER: _OF_PARTITION
    | {"epoch", "offset", "hw", "isr", "replicas", "adding", "removing", "zk_version", "leo", "log_start"},
    TraceEvent.FOLLOWER: _OF_PARTITION | {"epoch", "replica", "offset", "hw"},
    TraceEvent.STOP: _OF_PARTITION | {"epoch", "value"},
    TraceEvent.APPEND: _OF_PARTITION | {"leo", "bytes", "offset", "hw", "epoch"},
    TraceEvent.FETCH: _OF_PARTITION
    | {"epoch", "replica", "offset", "leo", "req_epoch", "err", "bytes", "throttled", "hw", "log_start"},
    TraceEvent.TICK: set(),
    TraceEvent.ISR_SHRINK: _CHANGE,
    TraceEvent.ISR_EXPAND: _CHANGE,
    TraceEvent.BROKER_UP: {"replica"},
    TraceEvent.BROKER_DOWN: {"replica"},
}
#: `hw` is optional and left out (it follows from the others); the rest are a controller's rows.
NOT_OF_A_BROKER = {TraceEvent.HW, TraceEvent.ASSIGN, TraceEvent.ELECT, TraceEvent.DELETE, TraceEvent.CONTROLLER}
_ALWAYS = {"seq", "ts", "broker", "ev"}


def test_the_table_names_every_kind() -> None:
    assert REQUIRED.keys() | NOT_OF_A_BROKER == set(TraceEvent)


@pytest.fixture(scope="module")
def rows(cluster_of_module: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rows of broker 1, which leads one partition and follows in another, while all that can happen does."""

    async def scenario(world: Any) -> list[dict[str, Any]]:
        cluster = cluster_of_module(world, tmp_path_factory.mktemp("rows"), replica_fetch_wait_max_ms=500)
        await cluster.start(*ALL)
        cluster.appoint(TP, 1, ALL, ALL, is_new=True)
        cluster.appoint(OTHER, 2, ALL, ALL, is_new=True)
        configs = cluster.nodes[1].manager.configs
        configs.set_topic_config("t", {"min.insync.replicas": "2"})
        configs.set_throttle_rates(leader=1000, follower=None)
        configs.set_throttle_rates()
        configs.set_topic_config("t", {})
        await cluster.produce(TP, 1, [b"x"] * 3, acks=-1)
        cluster.nodes[3].paused.add(TP)
        await cluster.produce(TP, 1, [b"y"])
        await world.until(lambda: 3 not in cluster.isr(TP), within_s=60, what="3 left the ISR")
        cluster.nodes[3].paused.clear()
        await world.until(lambda: 3 in cluster.isr(TP), within_s=60, what="3 came back")
        cluster.set_alive({1, 2})
        cluster.set_alive({1, 2, 3})
        assert cluster.stop_replica(TP, 1, delete=False) is ErrorCode.NONE
        assert cluster.stop_replica(TP, 1, delete=True) is ErrorCode.NONE
        assert cluster.stop_replica(OTHER, 1, delete=False) is ErrorCode.NONE
        assert cluster.stop_replica(OTHER, 1, delete=True, epoch=EPOCH_DURING_DELETE) is ErrorCode.NONE
        await cluster.stop()
        found: list[dict[str, Any]] = cluster.rows(1)
        return found

    return run_world(3, scenario)


@pytest.fixture(scope="module")
def cluster_of_module() -> Any:
    from tests.worlds.replicas import Cluster

    return Cluster


@pytest.mark.parametrize("kind", REQUIRED, ids=lambda kind: kind.value)
def test_each_kind_comes_with_its_columns(rows: list[dict[str, Any]], kind: TraceEvent) -> None:
    found = [row for row in rows if row["ev"] == kind.value]
    assert found, "the run did not make such a row"
    for row in found:
        assert REQUIRED[kind] | _ALWAYS <= row.keys(), row
        assert row.keys() <= COLUMNS.keys(), row


def test_rows_are_numbered_and_in_order_of_time(rows: list[dict[str, Any]]) -> None:
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert (rows[0]["ev"], rows[-1]["ev"]) == ("start", "down")
    assert rows[0]["value"] == str(rows[0]["ts"])


def test_config_rows_say_on_which_level(rows: list[dict[str, Any]]) -> None:
    found = [
        (row.get("topic"), row.get("replica"), row["key"], row.get("value"))
        for row in rows
        if row["ev"] == "config" and row["key"] != "trace.version"
    ]
    assert found == [
        (None, None, "replica.lag.time.max.ms", "30000"),
        (None, None, "min.insync.replicas", "1"),
        ("t", None, "min.insync.replicas", "2"),
        (None, 1, "leader.replication.throttled.rate", "1000"),
        (None, 1, "leader.replication.throttled.rate", None),
        ("t", None, "*", None),
    ]


def test_a_leader_that_moves_away_is_stopped_first_and_deleted_then(rows: list[dict[str, Any]]) -> None:
    found = [(row["partition"], row["value"], row["epoch"]) for row in rows if row["ev"] == "stop"]
    assert found[:3] == [(0, "keep", 0), (0, "delete", 0), (1, "keep", 0)]


def test_a_replica_that_goes_with_its_topic_says_so(rows: list[dict[str, Any]]) -> None:
    found = [(row["partition"], row["value"]) for row in rows if row["ev"] == "stop"]
    assert found[3:] == [(1, "delete_topic")]


def test_the_bytes_of_fetches_are_those_of_the_log_whether_an_answer_waited_or_not(
    rows: list[dict[str, Any]],
) -> None:
    """A fetch that waits is recorded when it comes; what it brings in the end stands in the follower's next row."""
    appended = sum(row["bytes"] for row in rows if row["ev"] == "append")
    of_follower = {r: sum(row["bytes"] for row in rows if row["ev"] == "fetch" and row["replica"] == r) for r in (2, 3)}
    assert of_follower == {2: appended, 3: appended}


def test_a_shrink_tells_when_the_replica_was_last_caught_up(rows: list[dict[str, Any]]) -> None:
    (shrink,) = [row for row in rows if row["ev"] == "isr_shrink"]
    (expand,) = [row for row in rows if row["ev"] == "isr_expand"]
    assert (shrink["isr_old"], shrink["isr"], shrink["replica"], shrink["err"]) == ([1, 2, 3], [1, 2], 3, 0)
    assert shrink["ts"] - shrink["cu"] > 30_000
    assert (expand["isr_old"], expand["isr"], expand["zk_version"]) == ([1, 2], [1, 2, 3], shrink["zk_version"] + 1)
    before = [row for row in rows if row["seq"] < shrink["seq"] and row["ev"] in ("tick", "fetch")]
    assert any(row["ev"] == "tick" and row["ts"] == shrink["ts"] for row in before), "after the tick that caused it"


# -- the cheap emission of appends ------------------------------------------------------------------------------------


def written(trace: TraceWriter) -> list[tuple[Any, ...]]:
    assert trace.path is not None
    rows = [json.loads(line) for line in trace.path.read_text().splitlines()]
    return [(r["ev"], r["ts"], r.get("offset"), r.get("leo"), r.get("bytes"), r.get("n")) for r in rows]


def append(trace: TraceWriter, ts: int, offset: int, *, moves_hw: bool = False, tp: TopicPartition = TP) -> None:
    trace.append_row(ts, tp, offset=offset, leo=offset + 1, hw=0, epoch=0, size_bytes=10, moves_hw=moves_hw)


def fetch(trace: TraceWriter, ts: int, leo: int) -> None:
    trace.fetch_row(ts, TP, replica=2, offset=leo, leo=leo, epoch=0, changes_nothing=True, err=0, bytes=0)


def test_a_run_of_appends_is_told_by_its_first_and_all_after_it(tmp_path: Path) -> None:
    trace = TraceWriter(1, tmp_path, start_ms=5)
    for n in range(5):
        append(trace, 100 + n, n)
    fetch(trace, 110, 5)
    append(trace, 120, 5)
    trace.row(TraceEvent.TICK, 130)
    append(trace, 140, 6)
    append(trace, 141, 7)
    trace.close()
    assert written(trace) == [
        ("append", 100, 0, 1, 10, None),
        ("append", 104, 1, 5, 40, 4),
        ("fetch", 110, 5, 5, 0, None),
        ("append", 120, 5, 6, 10, None),
        ("tick", 130, None, None, None, None),
        ("append", 140, 6, 7, 10, None),
        ("append", 141, 7, 8, 10, 1),
    ]


def test_appends_that_move_the_high_watermark_are_all_told(tmp_path: Path) -> None:
    trace = TraceWriter(1, tmp_path, start_ms=5)
    append(trace, 100, 0)
    append(trace, 101, 1)
    append(trace, 102, 2, moves_hw=True)
    append(trace, 103, 3, moves_hw=True)
    trace.close()
    assert [row[1:4] for row in written(trace)] == [(100, 0, 1), (101, 1, 2), (102, 2, 3), (103, 3, 4)]


def test_another_partition_does_not_end_a_run(tmp_path: Path) -> None:
    trace = TraceWriter(1, tmp_path, start_ms=5)
    for n in range(3):
        append(trace, 100 + n, n)
        append(trace, 100 + n, n, tp=OTHER)
    trace.close()
    assert [row[5] for row in written(trace)] == [None, None, 2, 2]


Events = list[dict[str, Any]]


def collapsed(events: Events) -> Events:
    """The rows of one partition, and those of the broker, as the rules in words have them; a run is its first event,
    which has a row of its own, and those after it, which share one."""
    rows: Events = []
    runs: dict[int | None, Events] = {}  # of the appends, and of each follower's fetches

    def end(*whose: int | None) -> None:
        ended = [runs.pop(who)[1:] for who in list(runs) if who in whose]
        for rest in sorted(filter(None, ended), key=lambda rest: int(rest[-1]["ts"])):
            row = {**rest[-1], "n": len(rest)}
            if row["ev"] == "append":
                row |= {"offset": rest[0]["offset"], "bytes": sum(event["bytes"] for event in rest)}
            rows.append(row)

    for event in events:
        who, is_run = event.get("replica"), event["is_run"]
        if event["ev"] == "fetch":
            end(None)
            same = is_run and who in runs and all(runs[who][0][key] == event[key] for key in ("offset", "leo", "epoch"))
            others = [each for each in runs if not is_run or each == who or runs[each][0]["hw"] != event["hw"]]
        else:
            same, others = is_run and event["ev"] == "append" and None in runs, list(runs)
        if same:
            runs[who].append(event)
            continue
        end(*others)
        rows.append(event)
        if is_run:
            runs[who] = [event]
    end(*runs)
    return [{key: value for key, value in row.items() if key != "is_run"} for row in rows]


@pytest.mark.parametrize("seed", range(8))
def test_each_partition_has_its_rows_collapsed_by_the_rules_whatever_comes_between(tmp_path: Path, seed: int) -> None:
    chance, trace, events = random.Random(seed), TraceWriter(1, tmp_path, start_ms=5), Events()
    for ts in range(300):
        tp, is_run, epoch = chance.choice([TP, OTHER]), chance.random() < 0.9, int(ts > 200)
        at = {"topic": tp.topic, "partition": tp.partition, "ts": ts, "is_run": is_run, "epoch": epoch}
        numbers = {"offset": 7, "leo": 7 + (chance.random() < 0.1), "hw": int(chance.random() < 0.1)}
        kind = chance.choices(["append", "fetch", "stop", "tick"], [8, 12, 1, 0.5])[0]
        if kind == "append":
            numbers["offset"] = ts
            events.append({"ev": kind, **at, **numbers, "bytes": ts})
            trace.append_row(ts, tp, **numbers, epoch=epoch, size_bytes=ts, moves_hw=not is_run)
        elif kind == "fetch":
            replica = chance.choice([2, 3, 4])
            events.append({"ev": kind, **at, **numbers, "replica": replica, "err": 0})
            trace.fetch_row(ts, tp, replica=replica, epoch=epoch, changes_nothing=is_run, err=0, **numbers)
        elif kind == "stop":
            events.append({"ev": kind, **at, "is_run": False})
            trace.row(TraceEvent.STOP, ts, tp, epoch=epoch)
        else:
            events.append({"ev": kind, "ts": ts, "is_run": False})
            trace.row(TraceEvent.TICK, ts)
    trace.close()
    assert trace.path is not None
    rows = [json.loads(line) for line in trace.path.read_text().splitlines()]
    assert [(row.pop("seq"), row.pop("broker")) for row in rows] == [(n, 1) for n in range(len(rows))]
    for tp in (TP, OTHER):
        ours = [event for event in events if event.get("partition", tp.partition) == tp.partition]
        assert [row for row in rows if row.get("partition", tp.partition) == tp.partition] == collapsed(ours)


@pytest.mark.parametrize(("leaders", "expected"), [([], 500), ([1], 500), ([2, 1], 0)])
def test_what_a_waiting_fetch_brought_is_told_with_the_next_one_of_the_same_leadership(
    cluster_of: Any, tmp_path: Path, leaders: list[int], expected: int
) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        await cluster.world.sleep(1)
        cluster.nodes[2].paused.add(TP)
        await cluster.world.sleep(1)
        await cluster.produce(TP, 1)
        cluster.nodes[1].partition(TP).answered_late(2, 500)
        for leader in leaders:
            cluster.appoint(TP, leader, (1, 2), (1, 2))
        before = len(cluster.rows(1))
        cluster.nodes[2].paused.clear()
        await cluster.world.sleep(10)
        await cluster.stop(1)
        fetches = [row for row in cluster.rows(1)[before:] if row["ev"] == "fetch"]
        assert fetches and sum(row["bytes"] for row in fetches) == len(cluster.batch([b"v"])) + expected

    cluster_of.run(tmp_path, scenario, brokers=(1, 2))
