"""Replicas that nobody assigned to a broker any more are put aside with all they hold, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_sim.strays import LOOK_S
from controller.wire.control import LeaderAndIsrEntry, UpdateMetadataEntry
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values, iterate
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.wire.zk_operations import Create, Delete, GetData, SetData, ZkCode
from controller.wire.znodes import TopicAssignment, TopicPartitionStateZNode, TopicZNode

TP = TopicPartition("t", 0)
LOOKS_S = 3 * LOOK_S


async def assign(cluster: Any, replicas: Sequence[int], *, isr: Sequence[int], leader: int) -> None:
    """Another hand's assignment and state in ZooKeeper, and the metadata that goes with them; no LeaderAndIsr."""
    placed = ReplicaAssignment(replicas=tuple(map(BrokerId, replicas)))
    state = LeaderAndIsr(leader=BrokerId(leader), isr=tuple(map(BrokerId, isr)), leader_epoch=1)
    znode = TopicZNode.encode(TopicAssignment(partitions={0: placed}))
    path = TopicPartitionStateZNode.path(TP)
    ops = [SetData(TopicZNode.path("t"), znode), SetData(path, TopicPartitionStateZNode.encode(state))]
    results = await cluster.in_broker(1, cluster.brokers[1].zk.perform(ops))
    assert all(result.ok for result in results)
    entry = UpdateMetadataEntry(topic_partition=TP, state=state, replicas=placed.replicas)
    for broker_id in cluster.brokers:
        await cluster.update_metadata(broker_id, [entry])


async def with_records(cluster: Any) -> None:
    for number in (1, 2):
        await cluster.start(number)
    await cluster.create_topic("t", [(1, 2)])
    await assign(cluster, (1, 2), isr=(1, 2), leader=1)
    records = build_values([(None, b"acknowledged")], timestamp=cluster.world.clock.now_ms())
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    answer = await cluster.call(1, ApiKey.PRODUCE, 8, {"acks": -1, "timeout": 5_000, "topic_data": topics})
    assert answer.responses[0].partition_responses[0].error_code == 0


def folders(cluster: Any, broker: int) -> list[Path]:
    return sorted(path for path in (cluster.folder / f"broker-{broker}-0").iterdir() if path.name.startswith("t-0"))


def assert_put_aside(cluster: Any, broker: int) -> None:
    (folder,) = folders(cluster, broker)
    assert folder.name.endswith("-stray")
    segment = folder / "00000000000000000000.log"
    assert [record.value for record in iterate(segment.read_bytes())] == [b"acknowledged"]
    assert TP not in cluster.brokers[broker].context.replicas.local_partitions()


def test_a_replica_that_was_moved_away_without_a_word_is_put_aside(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        await assign(cluster, (1,), isr=(1,), leader=1)
        await cluster.world.sleep(LOOKS_S)
        assert_put_aside(cluster, 2)
        assert [path.name for path in folders(cluster, 1)] == ["t-0"], "the other is where it belongs"

    in_memory(scenario)


def test_a_replica_of_a_partition_that_its_topic_has_no_more_is_put_aside(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        await assign(cluster, (1,), isr=(1,), leader=1)
        other = TopicZNode.encode(TopicAssignment(partitions={1: ReplicaAssignment(replicas=(BrokerId(2),))}))
        await cluster.in_broker(1, cluster.brokers[1].zk.perform([SetData(TopicZNode.path("t"), other)]))
        await cluster.world.sleep(LOOKS_S)
        assert_put_aside(cluster, 2)

    in_memory(scenario)


def test_a_replica_that_the_metadata_places_here_by_the_second_look_stays_whatever_zookeeper_says(
    in_memory: Any,
) -> None:
    """It may be about to say so: the controller's word counts."""

    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        await assign(cluster, (1,), isr=(1,), leader=1)
        await cluster.world.sleep(LOOK_S)
        state = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=1)
        both = UpdateMetadataEntry(topic_partition=TP, state=state, replicas=(BrokerId(1), BrokerId(2)))
        await cluster.update_metadata(2, [both])
        await cluster.world.sleep(LOOKS_S)
        assert [path.name for path in folders(cluster, 2)] == ["t-0"]
        assert not cluster.brokers[2].context.supervisor.failures

    in_memory(scenario)


def test_a_replica_that_was_foreign_for_one_look_alone_stays(in_memory: Any) -> None:
    """Whatever ZooKeeper said just then: an assignment that is written over and back is a move that is cancelled."""

    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        await assign(cluster, (1,), isr=(1,), leader=1)
        await cluster.world.sleep(LOOK_S)
        assert [path.name for path in folders(cluster, 2)] == ["t-0"]
        await assign(cluster, (1, 2), isr=(1,), leader=1)
        await cluster.world.sleep(LOOKS_S)
        assert [path.name for path in folders(cluster, 2)] == ["t-0"]

    in_memory(scenario)


def test_two_looks_count_in_a_row_alone(in_memory: Any) -> None:
    """Between two looks at which it was foreign it was placed here again."""

    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        for replicas in ((1,), (1, 2), (1,)):
            await assign(cluster, replicas, isr=(1,), leader=1)
            await cluster.world.sleep(LOOK_S)
            assert [path.name for path in folders(cluster, 2)] == ["t-0"]
        await cluster.world.sleep(LOOK_S)
        assert_put_aside(cluster, 2)

    in_memory(scenario)


def test_two_looks_at_a_former_replica_are_none_at_its_successor(in_memory: Any) -> None:
    """What was put aside is hosted anew, and the metadata has not said so by the next look."""

    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        await assign(cluster, (1,), isr=(1,), leader=1)
        await cluster.world.until(
            lambda: folders(cluster, 2)[0].name != "t-0", within_s=LOOKS_S, what="it is put aside"
        )
        assert_put_aside(cluster, 2)
        await cluster.leader_and_isr(2, [told(2)])
        await cluster.world.sleep(LOOK_S)
        assert folders(cluster, 2)[0].name == "t-0"
        await cluster.world.sleep(LOOK_S)
        assert [path.name.endswith("-stray") for path in folders(cluster, 2)] == [True, True]

    in_memory(scenario)


def test_a_replica_of_a_topic_that_was_deleted_while_its_broker_was_away_is_put_aside(in_memory: Any) -> None:
    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        away = cluster.brokers.pop(2)
        await cluster.in_broker(2, away.stop(controlled=False))
        paths = [TopicPartitionStateZNode.path(TP)]
        while paths[-1] != "/brokers/topics":
            paths.append(paths[-1].rpartition("/")[0])
        await cluster.in_broker(1, cluster.brokers[1].zk.perform([Delete(path) for path in paths[:-1]]))
        await cluster.start(2)
        await cluster.world.sleep(LOOKS_S)
        assert [path.name for path in folders(cluster, 2)] == ["t-0"], "no controller has said anything yet"
        await cluster.update_metadata(2, [])
        await cluster.world.sleep(LOOKS_S)
        assert_put_aside(cluster, 2)
        again = cluster.brokers.pop(2)
        await cluster.in_broker(2, again.stop(controlled=False))
        await cluster.start(2)
        assert folders(cluster, 2)[0].name.endswith("-stray"), "no start touches it"

    in_memory(scenario)


KEPT = [
    ("it is in the ISR", {"replicas": (1,), "isr": (1, 2), "leader": 1}),
    ("it is the leader", {"replicas": (1,), "isr": (1,), "leader": 2}),
    ("the assignment names it", {"replicas": (2, 1), "isr": (1,), "leader": 1}),
]


@pytest.mark.parametrize("where", [row[1] for row in KEPT], ids=[row[0] for row in KEPT])
def test_a_replica_stays_while(in_memory: Any, where: dict[str, Any]) -> None:
    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        await assign(cluster, **where)
        gone = LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=2)
        entry = UpdateMetadataEntry(topic_partition=TP, state=gone, replicas=(BrokerId(1),))
        await cluster.update_metadata(2, [entry])
        await cluster.world.sleep(LOOKS_S)
        assert [path.name for path in folders(cluster, 2)] == ["t-0"]

    in_memory(scenario)


def told(epoch: int) -> LeaderAndIsrEntry:
    """What a broker is told when it is to follow broker 1 again."""
    return LeaderAndIsrEntry(
        topic_partition=TP,
        state=LeaderAndIsr(leader=BrokerId(1), isr=(BrokerId(1),), leader_epoch=epoch),
        assignment=ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2))),
    )


def hold_answers_once_asked(cluster: Any) -> list[Any]:
    """Broker 2 gets no answer from ZooKeeper from its next question about the partition on, which is put in a list."""
    zookeeper, asked = cluster.world.zookeeper, list[Any]()

    def hold(session: Any, op: Any, result: Any) -> None:
        if session.machine == "broker-2" and op == GetData(TopicPartitionStateZNode.path(TP)) and not asked:
            asked.append(op)
            zookeeper.hold_answers("broker-2")

    zookeeper.on_operation.append(hold)
    return asked


#: which words of the controller come while ZooKeeper's answer is under way -> whether the replica stays
MEANWHILE = [
    ("nothing", (), False),
    ("the metadata of an assignment", ("metadata",), True),
    ("a LeaderAndIsr, and its metadata later", ("leader",), True),
    ("a LeaderAndIsr and its metadata", ("leader", "metadata"), True),
    ("a LeaderAndIsr that is stale", ("stale",), False),
    ("metadata about other things", ("other metadata",), False),
]


@pytest.mark.parametrize(("words", "stays"), [row[1:] for row in MEANWHILE], ids=[row[0] for row in MEANWHILE])
def test_a_replica_that_is_assigned_while_zookeeper_is_asked_stays(
    in_memory: Any, words: Sequence[str], stays: bool
) -> None:
    """ZooKeeper's answer is older than what the controller says before it arrives."""

    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        await assign(cluster, (1,), isr=(1,), leader=1)
        asked = hold_answers_once_asked(cluster)
        await cluster.world.until(lambda: bool(asked), within_s=LOOKS_S, what="the second look has asked")
        for word in words:
            match word:
                case "metadata":
                    await assign(cluster, (1, 2), isr=(1,), leader=1)
                case "other metadata":
                    await cluster.update_metadata(2, [])
                case _:
                    await cluster.leader_and_isr(2, [told(0 if word == "stale" else 2)])
        assert [path.name for path in folders(cluster, 2)] == ["t-0"]
        cluster.world.zookeeper.let_answers_go("broker-2")
        await cluster.world.sleep(1)
        if not stays:
            assert_put_aside(cluster, 2)
            return
        if "metadata" not in words:
            await assign(cluster, (1, 2), isr=(1,), leader=1)
        await cluster.world.sleep(LOOKS_S)
        assert [path.name for path in folders(cluster, 2)] == ["t-0"]
        assert TP in cluster.brokers[2].context.replicas.table.partitions

    in_memory(scenario)


def test_a_replica_whose_assignment_is_just_being_taken_stays(in_memory: Any) -> None:
    """The broker came back and hosts nothing yet: its LeaderAndIsr waits for ZooKeeper itself, for the configs."""

    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        again = cluster.brokers.pop(2)
        await cluster.in_broker(2, again.stop(controlled=False))
        await assign(cluster, (1,), isr=(1,), leader=1)
        await cluster.start(2)
        await cluster.update_metadata(2, [])
        asked = hold_answers_once_asked(cluster)
        await cluster.world.until(lambda: bool(asked), within_s=LOOKS_S, what="the second look has asked")
        telling = asyncio.ensure_future(cluster.leader_and_isr(2, [told(2)]))
        await cluster.world.sleep(1)
        assert not telling.done()
        cluster.world.zookeeper.let_answers_go("broker-2")
        assert (await telling).partition_errors[0].error_code == 0
        await assign(cluster, (1, 2), isr=(1,), leader=1)
        await cluster.world.sleep(LOOKS_S)
        assert [path.name for path in folders(cluster, 2)] == ["t-0"]

    in_memory(scenario)


UNREADABLE = [
    ("the topic may not be read", TopicZNode.path("t"), None),
    ("the state may not be read", TopicPartitionStateZNode.path(TP), None),
    ("the topic does not parse", TopicZNode.path("t"), b'{"partitions":'),
    ("the state does not parse", TopicPartitionStateZNode.path(TP), b"[]"),
]


@pytest.mark.parametrize(("path", "data"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE])
def test_what_cannot_be_read_condemns_nothing(in_memory: Any, path: str, data: bytes | None) -> None:
    async def scenario(cluster: Any) -> None:
        await with_records(cluster)
        await assign(cluster, (1,), isr=(1,), leader=1)
        if data is not None:
            await cluster.in_broker(1, cluster.brokers[1].zk.perform([Create(path, data), SetData(path, data)]))
        else:
            cluster.world.zookeeper.tree.refusal = lambda op: (
                ZkCode.NO_AUTH if isinstance(op, GetData) and op.path == path else None
            )
        await cluster.world.sleep(LOOKS_S)
        assert [path.name for path in folders(cluster, 2)] == ["t-0"]
        assert not cluster.brokers[2].context.supervisor.failures, "it looks at others all the same"

    in_memory(scenario)
