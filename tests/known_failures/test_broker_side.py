"""I4 to I7, P1: what only a broker can get wrong, on simulated brokers with virtual time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_sim.log.dirs import LogDirs
from controller.node.requests.table import APIS
from controller.wire.control import LeaderAndIsrEntry
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.world.simulated.world import run_world
from tests.worlds.brokers import BrokerCluster
from tests.worlds.replicas import Cluster

TP = TopicPartition("t", 0)
ALTER_PARTITION = 56


@pytest.mark.known_failure("I4")
def test_an_epoch_is_adopted_only_with_its_transition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something fails while 2 becomes a follower; the same request again makes it one. (A disk that fails is final.)"""

    async def scenario(world: Any) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.start(1, 2)
        create, failures = LogDirs.create, iter([True])

        def failing(self: LogDirs, *arguments: Any, **more: Any) -> Any:
            if next(failures, False):
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a read fails half-way through")
            return create(self, *arguments, **more)

        try:
            cluster.appoint(TP, 1, (1, 2), (1, 2), to=(1,), is_new=True)
            state, _ = cluster.zk.states[TP]
            entry = LeaderAndIsrEntry(
                topic_partition=TP,
                state=state,
                assignment=ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2))),
                is_new=True,
            )
            follower = cluster.nodes[2]
            monkeypatch.setattr(LogDirs, "create", failing)
            answers = [follower.manager.leader_and_isr([entry])[TP] for _ in range(3)]
            assert answers == [
                ErrorCode.UNKNOWN_SERVER_ERROR,
                ErrorCode.NONE,
                ErrorCode.STALE_CONTROLLER_EPOCH,
            ], "failed, applied, repeated"
            assert (await cluster.produce(TP, 1, acks=-1)).error is ErrorCode.NONE
            assert follower.log_end(TP) == 1, "it fetches"
        finally:
            await cluster.stop()

    run_world(7, scenario)


@pytest.mark.known_failure("I5", "I6", "I7")
def test_alter_partition_is_not_offered_by_the_controller() -> None:
    """Three failures of AlterPartition: not at inter.broker.protocol 2.6, where leaders write their ISRs themselves."""
    assert ALTER_PARTITION not in {int(key) for key in APIS}


@pytest.mark.known_failure("I5", "I6", "I7")
def test_alter_partition_is_not_offered_by_brokers(tmp_path: Path) -> None:
    async def scenario(world: Any) -> None:
        cluster = BrokerCluster(world, tmp_path)
        await cluster.start(1)
        answer = await cluster.call(1, ApiKey.API_VERSIONS, 2, {})
        assert ALTER_PARTITION not in {row.api_key for row in answer.api_keys}

    run_world(7, scenario)


@pytest.mark.known_failure("P1")
def test_a_broker_answers_metadata_without_zookeeper(tmp_path: Path) -> None:
    async def scenario(world: Any) -> None:
        cluster = BrokerCluster(world, tmp_path)
        broker = await cluster.start(1)
        await cluster.create_topic("t", [(1,), (1,)])
        session = broker.zk.session
        assert session is not None
        asked: list[Any] = []
        perform: Callable[..., Any] = session.perform

        async def counting(ops: Any) -> Any:
            asked.extend(ops)
            return await perform(ops)

        session.perform = counting
        for _ in range(20):
            answer = await cluster.call(1, ApiKey.METADATA, 8, {"topics": None})
            assert len(answer.topics[0].partitions) == 2
        assert asked == []

    run_world(7, scenario)


@pytest.mark.known_failure("D4", "C1")
def test_a_late_stop_and_a_late_appointment_change_nothing(tmp_path: Path) -> None:
    """A stop of before a replica was placed back is refused; an equal epoch is obeyed; no epoch falls."""

    async def scenario(world: Any) -> None:
        cluster = Cluster(world, tmp_path)
        await cluster.start(1, 2)
        try:
            cluster.appoint(TP, 1, (1, 2), (1, 2), is_new=True)
            cluster.appoint(TP, 1, (1, 2), (1, 2))
            assert cluster.stop_replica(TP, 2, delete=True, epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
            assert cluster.nodes[2].partition(TP).leader_epoch == 1
            late = LeaderAndIsrEntry(
                topic_partition=TP,
                state=LeaderAndIsr(leader=BrokerId(2), isr=(BrokerId(2),), leader_epoch=0),
                assignment=ReplicaAssignment(replicas=(BrokerId(1), BrokerId(2))),
            )
            answer = cluster.nodes[2].manager.leader_and_isr([late])[TP]
            assert answer is ErrorCode.STALE_CONTROLLER_EPOCH
            assert cluster.nodes[2].partition(TP).led is None
            assert cluster.stop_replica(TP, 2, delete=True, epoch=1) is ErrorCode.NONE
            assert not (tmp_path / "2-a" / "t-0").exists()
        finally:
            await cluster.stop()

    run_world(7, scenario)
