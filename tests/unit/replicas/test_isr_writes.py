"""What a leader writes of its ISR: the state znode under its version, and notices to the controller, some at a time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from broker_sim.isr import IsrChange, IsrChangeKind
from broker_sim.replicas.isr_updates import IsrUpdates
from broker_sim.replicas.isr_writer import ZkIsrWriter, notify_log_dir_failure
from broker_sim.replicas.types import IsrWriteOutcome
from broker_sim.zk_client import ZkClient
from controller.wire import log_events as ev
from controller.wire.types import BrokerId, LeaderAndIsr, TopicPartition
from controller.wire.zk_operations import Create, GetChildren, GetData, SetData, ZkCode
from controller.wire.znodes import TopicPartitionStateZNode
from controller.world.simulated.world import World, run_world
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
PATH = TopicPartitionStateZNode.path(TP)
OLD = LeaderAndIsr(leader=1, isr=(1, 2), leader_epoch=3, controller_epoch=5)
NEW = LeaderAndIsr(leader=1, isr=(1,), leader_epoch=3, controller_epoch=5)
OTHER = LeaderAndIsr(leader=2, isr=(2,), leader_epoch=4, controller_epoch=5)
#: each differs from the own write in one thing alone
ALIKE = {
    "of another leader": LeaderAndIsr(leader=2, isr=(1,), leader_epoch=3, controller_epoch=5),
    "of a newer epoch": LeaderAndIsr(leader=1, isr=(1,), leader_epoch=4, controller_epoch=5),
    "of another ISR": LeaderAndIsr(leader=1, isr=(1, 3), leader_epoch=3, controller_epoch=5),
}
WRITTEN, REFUSED, NO_NODE = IsrWriteOutcome.WRITTEN, IsrWriteOutcome.REFUSED, IsrWriteOutcome.NO_NODE

#: what, states that were written one after another (none: no znode), version expected, outcome, version and state then
WRITES = [
    ("the version is the one expected", [OLD], 0, WRITTEN, 1, NEW),
    ("another hand has written", [OLD, OTHER], 0, REFUSED, 1, OTHER),
    ("our own write whose answer was lost", [OLD, NEW], 0, WRITTEN, 1, NEW),
    *((f"a write {what}, no lost one of ours", [OLD, other], 0, REFUSED, 1, other) for what, other in ALIKE.items()),
    ("the topic is gone", [], 0, NO_NODE, None, None),
    ("an expected version above the znode's", [OLD], 7, REFUSED, 0, OLD),
]


@pytest.mark.parametrize(("_", "states", "expected", "outcome", "version", "left"), WRITES, ids=[w[0] for w in WRITES])
def test_a_state_is_written_under_its_version(
    _: Any, states: Any, expected: Any, outcome: Any, version: Any, left: Any
) -> None:
    async def scenario(world: World) -> None:
        zk = ZkClient(world.machine("broker").connector(), log=structlog.get_logger())
        await zk.open()
        await zk.perform([Create(path) for path in parents(PATH)])
        for number, state in enumerate(states):
            data = TopicPartitionStateZNode.encode(state)
            assert (await zk.perform_one(SetData(PATH, data) if number else Create(PATH, data))).ok
        result = await ZkIsrWriter(zk, log=structlog.get_logger()).write_isr(TP, NEW, expected)
        assert result.outcome is outcome
        if outcome is WRITTEN:
            assert result.partition_epoch == version
        found = await zk.perform_one(GetData(PATH))
        if left is None:
            assert found.stat is None
        else:
            state = TopicPartitionStateZNode.decode(found.data, found.stat.version)
            assert (state.isr, state.leader, found.stat.version) == (left.isr, left.leader, version)
        await zk.close()

    run_world(1, scenario)


@pytest.mark.parametrize("data", [b"", b"x", b"{}", b'{"leader": 1, "leader_epoch": 3, "isr": [1]}'])
def test_what_is_no_state_is_no_lost_write_of_ours(data: bytes) -> None:
    async def scenario(world: World) -> None:
        zk = ZkClient(world.machine("broker").connector(), log=structlog.get_logger())
        await zk.open()
        await zk.perform([Create(path) for path in parents(PATH)])
        await zk.perform([Create(PATH, b""), SetData(PATH, data)])
        result = await ZkIsrWriter(zk, log=structlog.get_logger()).write_isr(TP, NEW, 0)
        assert result.outcome is REFUSED
        found = await zk.perform_one(GetData(PATH))
        assert found.stat is not None and (found.data, found.stat.version) == (data, 1)
        await zk.close()

    run_world(1, scenario)


@pytest.mark.parametrize("code", [code for code in ZkCode if code is not ZkCode.OK])
def test_a_write_that_zookeeper_refuses_is_not_written(code: ZkCode) -> None:
    async def scenario(world: World) -> None:
        zk = ZkClient(world.machine("broker").connector(), log=structlog.get_logger())
        await zk.open()
        await zk.perform([Create(path) for path in parents(PATH)])
        await zk.perform([Create(PATH, TopicPartitionStateZNode.encode(OLD))])
        world.zookeeper.tree.refusal = lambda op: code if isinstance(op, SetData) else None
        result = await ZkIsrWriter(zk, log=structlog.get_logger()).write_isr(TP, NEW, 0)
        assert result.outcome is (NO_NODE if code is ZkCode.NO_NODE else REFUSED)
        world.zookeeper.tree.refusal = lambda op: None
        again = await ZkIsrWriter(zk, log=structlog.get_logger()).write_isr(TP, NEW, 0)
        assert (again.outcome, again.partition_epoch) == (WRITTEN, 1)
        await zk.close()

    run_world(1, scenario)


def parents(path: str) -> list[str]:
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]


def test_what_was_decided_in_one_epoch_is_not_written_in_the_next(cluster_of: type[Cluster], tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        cluster = cluster_of(world, tmp_path)
        await cluster.start(1, 2)
        cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
        node = cluster.nodes[1]
        shrink = IsrChange(
            kind=IsrChangeKind.SHRINK, isr_old=(1, 2), isr=(1,), replicas=(2,), last_caught_up_time_ms=(0,)
        )
        node.manager.isr_updates.write(node.partition(TP), shrink, decided_ms=world.clock.now_ms())
        cluster.appoint(TP, 1, (1, 2), (1, 2))  # before the write has begun
        await world.sleep(1)
        state, version = cluster.zk.states[TP]
        assert (state.leader_epoch, state.isr, version) == (1, (1, 2), 1)
        assert node.manager.isr_updates.refused == 1
        await cluster.stop()

    run_world(1, scenario)


def test_a_notice_lists_the_partitions() -> None:
    async def scenario(world: World) -> None:
        zk = ZkClient(world.machine("broker").connector(), log=structlog.get_logger())
        await zk.open()
        await zk.perform([Create("/isr_change_notification")])
        assert await ZkIsrWriter(zk, log=structlog.get_logger()).propagate([TopicPartition("u", 1), TP])
        (name,) = (await zk.perform_one(GetChildren("/isr_change_notification"))).children
        assert name == "isr_change_0000000000"
        found = await zk.perform_one(GetData(f"/isr_change_notification/{name}"))
        assert json.loads(found.data) == {
            "version": 1,
            "partitions": [{"topic": "t", "partition": 0}, {"topic": "u", "partition": 1}],
        }
        await zk.close()

    run_world(1, scenario)


@pytest.mark.parametrize("code", [code for code in ZkCode if code is not ZkCode.OK])
def test_a_notice_that_zookeeper_refuses_is_said_to_be_refused(code: ZkCode) -> None:
    async def scenario(world: World) -> None:
        zk = ZkClient(world.machine("broker").connector(), log=structlog.get_logger())
        await zk.open()
        writer, tree = ZkIsrWriter(zk, log=structlog.get_logger()), world.zookeeper.tree
        assert not await writer.propagate([TP]), "its folder is not there"
        await zk.perform([Create("/isr_change_notification")])
        tree.refusal = lambda op: code
        assert not await writer.propagate([TP])
        tree.refusal = lambda op: None
        assert (await zk.perform_one(GetChildren("/isr_change_notification"))).children == ()
        assert await writer.propagate([TP])
        assert len((await zk.perform_one(GetChildren("/isr_change_notification"))).children) == 1
        await zk.close()

    run_world(1, scenario)


@pytest.mark.parametrize("code", [code for code in ZkCode if code is not ZkCode.OK])
def test_the_notice_of_a_failed_log_dir_is_written_until_it_is_there(code: ZkCode) -> None:
    """The controller hears of the dir by nothing else: its partitions would keep a leader that cannot lead."""

    async def scenario(world: World) -> None:
        zk, tree = ZkClient(world.machine("broker").connector(), log=structlog.get_logger()), world.zookeeper.tree
        await zk.open()
        await zk.perform([Create("/log_dir_event_notification")])
        tree.refusal = lambda op: code if isinstance(op, Create) else None
        with capture_logs() as lines:
            notice = asyncio.ensure_future(notify_log_dir_failure(zk, BrokerId(7), structlog.get_logger()))
            await world.sleep(30)
            tree.refusal = lambda op: None
            await world.sleep(30)
        assert notice.done()
        (name,) = (await zk.perform_one(GetChildren("/log_dir_event_notification"))).children
        found = await zk.perform_one(GetData(f"/log_dir_event_notification/{name}"))
        assert json.loads(found.data) == {"version": 1, "broker": 7, "event": 1}
        assert {line["reason"] for line in lines if line["event"] == ev.ZK_WRITES_REFUSED} == {code.name}
        await zk.close()

    run_world(1, scenario)


# -- when the notices go out ------------------------------------------------------------------------------------------


def shrunk(number: int) -> TopicPartition:
    return TopicPartition("t", number)


#: what, seconds after the start at which a change is written, (from, until) in which each notice goes, its partitions
NOTICES = [
    ("the first after a quiet minute goes at the next look", [70], [((70, 72.5), [0])]),
    ("one soon after the start waits for five quiet seconds", [1], [((6, 8.5), [0])]),
    ("changes that follow each other go together", [1, 4, 8], [((13, 15.5), [0, 1, 2])]),
    ("the next one after a notice waits again", [70, 73], [((70, 72.5), [0]), ((78, 80.5), [1])]),
    (
        "never later than a minute after the last notice",
        [71, *range(74, 141, 3)],
        [((71, 72.5), [0]), ((132.5, 135), list(range(1, 22))), ((145, 147.5), [22, 23])],
    ),
]


@pytest.mark.parametrize(("_", "changes", "expected"), NOTICES, ids=[n[0] for n in NOTICES])
def test_notices_are_batched(cluster_of: type[Cluster], tmp_path: Path, _: Any, changes: Any, expected: Any) -> None:
    async def scenario(world: World) -> None:
        cluster = cluster_of(world, tmp_path)
        await cluster.start(1, 2)
        for number in range(len(changes)):
            cluster.appoint(shrunk(number), 1, (1, 2), (1, 2), is_new=True)
        updates: IsrUpdates = cluster.nodes[1].manager.isr_updates
        start = world.loop.time()
        for number, at in enumerate(changes):
            await world.sleep(start + at - world.loop.time())
            partition = cluster.nodes[1].partition(shrunk(number))
            change = IsrChange(
                kind=IsrChangeKind.SHRINK, isr_old=(1, 2), isr=(1,), replicas=(2,), last_caught_up_time_ms=(0,)
            )
            updates.write(partition, change, decided_ms=world.clock.now_ms() - 4_000)  # what counts is the write
        await world.sleep(20)
        told = [(at - start, [tp.partition for tp in partitions]) for at, partitions in cluster.zk.propagated]
        assert [partitions for _, partitions in told] == [partitions for _, partitions in expected]
        for (at, _), ((first, last), _) in zip(told, expected, strict=True):
            assert first <= at <= last + 0.1
        await cluster.stop()

    run_world(3, scenario)
