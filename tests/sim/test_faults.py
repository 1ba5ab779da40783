"""Faults in a whole system on virtual time: what they do to in-sync replicas, and that a seed gives the same run."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.sim.steps.faults import kill_at_write
from controller.sim.steps.turn import Turn
from controller.sim.steps.twists import die_when_cancelled, move
from controller.wire import fault_scenario as scenario
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Delete, SetData, ZkCode
from controller.world.simulated.world import World, run_world

from .cluster import Cluster

pytestmark = pytest.mark.sim
TOPIC = "t"

#: what, the scenario's fault (20 s long), which brokers must leave the ISR of a partition of 1, 2, 3 led by 1
SHRINKING = [
    ("a paused follower", "{fault: pause_replication, broker: 3}", {3}),
    ("a cut link to the leader", "{fault: cut_link, broker: 1, peer: 2}", {2}),
    ("fetches that are dropped", "{fault: api, broker: 1, api: Fetch, action: drop, sender: 3}", {3}),
    ("fetches with an error", "{fault: api, broker: 1, api: Fetch, action: error, error_code: 6, sender: 2}", {2}),
    ("a disk that stands nearly still", "{fault: slow_disk, broker: 3, bytes_per_second: 1}", {3}),
]
HARMLESS = [
    ("a somewhat slow link", "{fault: slow_link, broker: 2, peer: 1, delay_ms: 30, jitter_ms: 20}"),
    ("a somewhat slow disk", "{fault: slow_disk, delay_ms: 20}"),
    ("now and then a dropped fetch", "{fault: api, api: Fetch, action: drop, chance: 0.05}"),
    ("an expired session", "{fault: expire_session, broker: 2}"),
]


async def play(world: World, folder: Path, row: str, check: Callable[[Cluster, set[int]], None]) -> Cluster:
    """A cluster under load with the fault in force for 20 s; `check` is told who was out of the ISR meanwhile."""
    cluster = Cluster(world, folder)
    with cluster.logging():
        await start_whole(cluster, [[1, 2, 3]])
        world.machine("client").start(cluster.keep_producing(TOPIC, 1))
        await cluster.sleep(5)
        rows = scenario.parse(f"faults: [{row[:-1]}, for: 20s}}]").rows(world.clock.now_ms() + 1000)
        for broker in cluster.brokers.values():
            broker.set_faults(rows)
        out: set[int] = set()
        for _ in range(40):
            await cluster.sleep(0.5)
            out |= {1, 2, 3} - set(cluster.state(TOPIC, 0)["isr"])
        check(cluster, out)
        await cluster.heal()
        await cluster.check_nothing_acknowledged_is_lost()
    return cluster


@pytest.mark.parametrize(("_", "row", "expected"), SHRINKING, ids=[case[0] for case in SHRINKING])
def test_who_leaves_the_isr_and_comes_back(_: str, row: str, expected: set[int], tmp_path: Path) -> None:
    def check(cluster: Cluster, out: set[int]) -> None:
        assert out == expected
        told = [line for line in cluster.lines if '"fault.' in line]
        assert any('"fault.started"' in line for line in told)
        assert any('"fault.acted"' in line for line in told)

    cluster = run_world(5, lambda world: play(world, tmp_path, row, check))
    assert any('"fault.ended"' in line for line in cluster.lines)


@pytest.mark.parametrize(("_", "row"), HARMLESS, ids=[case[0] for case in HARMLESS])
def test_what_replication_stands(_: str, row: str, tmp_path: Path) -> None:
    def check(cluster: Cluster, out: set[int]) -> None:
        assert out == set()
        assert any('"fault.acted"' in line for line in cluster.lines)

    run_world(5, lambda world: play(world, tmp_path, row, check))


def test_a_seed_gives_the_same_run_with_faults_too(tmp_path: Path) -> None:
    def lines(name: str) -> list[str]:
        def check(cluster: Cluster, out: Any) -> None:
            pass

        row = "{fault: slow_link, delay_ms: 20, jitter_ms: 200}"
        return run_world(9, lambda world: play(world, tmp_path / name, row, check)).lines

    assert lines("a") == lines("b")


async def start_whole(cluster: Cluster, replicas: list[list[int]], configs: dict[str, str] | None = None) -> None:
    """A cluster with a topic, all of whose replicas are in sync, and whose leaders have heard of it."""

    def leads(partition: int) -> bool:
        leader = cluster.state(TOPIC, partition)["leader"]
        return cluster.led_by(leader, TopicPartition(TOPIC, partition)) is not None

    await cluster.start()
    await cluster.create_topic(TOPIC, replicas, configs)
    await cluster.until(cluster.healthy, within_s=60, what="a whole cluster")
    await cluster.until(lambda: all(map(leads, range(len(replicas)))), within_s=5, what="leaders to lead")


def test_brokers_restore_a_cluster_id_that_was_removed(tmp_path: Path) -> None:
    """The controller serves without it, and all nodes start again. Without that no broker would ever start."""

    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        with cluster.logging():
            await start_whole(cluster, [[1, 2, 3]])
            before = cluster.znode("/cluster/id")
            for number in cluster.numbers():
                cluster.kill(number)
            await cluster.write_znode(Delete("/cluster/id"))
            for controller in cluster.controller_ids:
                cluster.start_one(controller)
            await cluster.until(lambda: cluster.active_controller() is not None, within_s=60, what="a controller")
            assert before and cluster.znode("/cluster/id") is None
            for broker in cluster.broker_ids:
                cluster.start_one(broker)
            await cluster.until(lambda: cluster.znode("/cluster/id") == before, within_s=60, what="the id of before")
            await cluster.until(cluster.healthy, within_s=60, what="a whole cluster again")

    run_world(1, scenario)


def test_a_kill_that_waits_for_a_write_is_taken_back_when_all_is_mended(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path, brokers=1)
        with cluster.logging():
            await cluster.start()
            await cluster.create_topic(TOPIC, [[1]])
            for seed, is_mended in ((1, True), (1, False)):
                kill_at_write(Turn(cluster, random.Random(seed)))
                if is_mended:
                    cluster.mend()
                before = (*cluster.brokers.values(), *cluster.controllers.values())
                for number in range(10):
                    await cluster.create_topic(f"{TOPIC}-{is_mended}-{number}", [[1]])
                await cluster.sleep(5)
                assert (before == (*cluster.brokers.values(), *cluster.controllers.values())) is is_mended

    run_world(1, scenario)


@pytest.mark.parametrize("kept", ["the epoch", "the log"])
def test_who_has_kept_a_former_topic_starts_anew(kept: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It refuses the epochs of the next topic of that name while they are lower, or cannot append to the former log."""

    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        with cluster.logging():
            await start_whole(cluster, [[1, 2, 3]])
            await cluster.sleep(2)  # all have heard
            assert cluster.start_refused_anew() == []
            state = cluster.state(TOPIC, 0) | {"isr": [1, 2]}
            with monkeypatch.context() as patch:
                patch.setattr(cluster, "state", lambda *_: state)
                assert cluster.start_refused_anew() == []
                replica = cluster.brokers[3].replicas.table.partitions[TopicPartition(TOPIC, 0)]
                if kept == "the epoch":
                    replica.leader_epoch += 1
                else:
                    replica.log.assign_epoch(replica.leader_epoch + 1, replica.log.leo)
                folder = replica.log.folder
                assert cluster.start_refused_anew() == [3]
                assert not folder.exists(), "it starts without that log"
            await cluster.until(cluster.healthy, within_s=60, what="a whole cluster")

    run_world(1, scenario)


#: what, how many records the former topic has, whether there is a former one, who starts without a log
KEPT_LOGS = [
    ("a former log that ends within a batch", 2, True, [3]),
    ("a former log that goes on with a batch", 3, True, []),
    ("a log of this topic that ends within a batch", 2, False, []),
]


@pytest.mark.parametrize(("_", "kept", "is_former", "expected"), KEPT_LOGS, ids=[case[0] for case in KEPT_LOGS])
def test_whose_log_was_there_before_its_topic(
    _: str, kept: int, is_former: bool, expected: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A broker was away when a replica was moved away from it, and is a replica of the next topic of that name: in the
    same epoch nothing is cut, and no batch continues the log that it has kept, where its end is within one."""

    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        with cluster.logging():
            await start_whole(cluster, [[1, 2, 3]])
            if is_former:
                await write_batch(cluster, kept)
                await leave_a_log_on(cluster, 3)
                await cluster.create_topic(TOPIC, [[1, 2]])
                await cluster.until(cluster.healthy, within_s=60, what="the next topic of that name")
            await write_batch(cluster, 3)
            if is_former:
                await move(Turn(cluster, random.Random(1)), TOPIC, {"partition_index": 0, "replicas": [1, 2, 3]})
            await write_batch(cluster, 3)
            await cluster.world.sleep(10)
            assert cluster.healthy() is (expected == [])
            log = cluster.brokers[3].replicas.table.partitions[TopicPartition(TOPIC, 0)].log
            if not expected:
                log.truncate(kept)
                state = cluster.state(TOPIC, 0) | {"isr": [1, 2]}
                monkeypatch.setattr(cluster, "state", lambda *_: state)
            assert cluster.start_refused_anew() == expected
            assert log.folder.exists() is (expected == [])
            if expected:
                await cluster.until(cluster.healthy, within_s=60, what="a whole cluster")

    run_world(1, scenario)


def test_who_ends_within_a_batch_of_a_former_topic_that_its_leader_has_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Here it is the leader who had the log before its topic; its follower's cannot be continued either."""

    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        with cluster.logging():
            await start_whole(cluster, [[1, 2, 3]])
            await write_batch(cluster, 3)
            await leave_a_log_on(cluster, 3)
            await cluster.create_topic(TOPIC, [[3, 1]])
            await cluster.until(cluster.healthy, within_s=60, what="the next topic of that name")
            await write_batch(cluster, 3)
            log = cluster.brokers[1].replicas.table.partitions[TopicPartition(TOPIC, 0)].log
            log.truncate(2)
            state = cluster.state(TOPIC, 0) | {"isr": [3]}
            monkeypatch.setattr(cluster, "state", lambda *_: state)
            assert cluster.start_refused_anew() == [1]

    run_world(1, scenario)


async def write_batch(cluster: Cluster, count: int) -> None:
    """One batch of so many records, when its leader has heard that it leads; and the time to replicate it."""
    await cluster.world.sleep(1)
    batch = build_values([(None, b"value")] * count, timestamp=cluster.world.clock.now_ms())
    rows = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    body = {"acks": -1, "timeout": 5_000, "topic_data": rows}
    answer = await cluster.call(cluster.state(TOPIC, 0)["leader"], ApiKey.PRODUCE, 8, body)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
    await cluster.world.sleep(2)


async def leave_a_log_on(cluster: Cluster, number: int) -> None:
    """A replica is moved away from a broker that is dead; then its topic is deleted, and the broker comes back."""
    stay = [each for each in cluster.broker_ids if each != number]
    cluster.kill(number)
    await cluster.until(lambda: number not in cluster.state(TOPIC, 0)["isr"], within_s=60, what="a smaller ISR")
    await move(Turn(cluster, random.Random(1)), TOPIC, {"partition_index": 0, "replicas": stay})
    await cluster.until(lambda: cluster.assignment(TOPIC, 0) == stay, within_s=60, what="a move")
    await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, {"topic_names": [TOPIC], "timeout": 5_000})
    await cluster.until(lambda: cluster.partitions() == [], within_s=60, what="a deletion")
    cluster.start_one(number)
    await cluster.until(lambda: number in cluster.registered(), within_s=60, what="a broker")


@pytest.mark.parametrize(("code", "is_excused"), [(ZkCode.OTHER, True), (ZkCode.BAD_VERSION, False)])
def test_who_starts_anew_for_a_refused_isr_change(code: ZkCode, is_excused: bool, tmp_path: Path) -> None:
    """A leader waits for the next LeaderAndIsr for good. Only where ZooKeeper had a reason of its own, it is helped."""

    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path)
        path, tree = f"/brokers/topics/{TOPIC}/partitions/0/state", world.zookeeper.tree
        with cluster.logging():
            await start_whole(cluster, [[1, 2, 3]])
            cluster.kill(3)
            await cluster.until(lambda: 3 not in cluster.state(TOPIC, 0)["isr"], within_s=60, what="a smaller ISR")
            tree.refusal = lambda op: code if isinstance(op, SetData) and op.path == path else None
            cluster.start_one(3)
            await cluster.sleep(20)
            cluster.mend()
            await cluster.sleep(60)
            assert f"not whole {{'{TOPIC}-0'" in cluster.ill()
            assert cluster.start_refused_anew() == ([1] if is_excused else [])
            await cluster.sleep(60)
            assert cluster.healthy() is is_excused
            assert cluster.start_refused_anew() == []

    run_world(1, scenario)


@pytest.mark.parametrize("is_excused", [True, False])
def test_who_is_told_of_its_replicas_after_a_cancelled_move(is_excused: bool, tmp_path: Path) -> None:
    """A leader that has not heard that who was added is gone refuses acks=all for good, as Kafka's does. It is helped
    where whoever cancelled the move died before the state was written; not where the one in office has written it."""

    async def scenario(world: World) -> None:
        cluster = Cluster(world, tmp_path, controllers=2)
        with cluster.logging():
            await start_whole(cluster, [[1]], {"min.insync.replicas": "2"})
            assert await cluster.produce(TOPIC, 0, b"as long as there is one replica, one is enough")
            cluster.machine(2).suspend()  # who is added neither hears of it nor joins
            turn, office = Turn(cluster, random.Random(1)), cluster.active_controller()
            await move(turn, TOPIC, {"partition_index": 0, "replicas": [1, 2]})
            cluster.kill(2)
            die_when_cancelled(turn, office, TOPIC, 0)
            await move(turn, TOPIC, {"partition_index": 0, "replicas": None})
            cluster.start_one(2)
            await cluster.sleep(20)
            assert cluster.healthy() and cluster.active_controller() not in (None, office)
            if not is_excused:
                path, state = f"/brokers/topics/{TOPIC}/partitions/0/state", cluster.state(TOPIC, 0)
                state = state | {"controller_epoch": cluster.znode("/controller_epoch")}
                await cluster.write_znode(SetData(path, json.dumps(state).encode()))
            assert not await cluster.produce(TOPIC, 0, b"refused")
            assert await cluster.move_in_place() == ([(TOPIC, 0)] if is_excused else [])
            await world.sleep(5)
            assert await cluster.produce(TOPIC, 0, b"after that") is is_excused
            assert await cluster.move_in_place() == []

    run_world(1, scenario)
