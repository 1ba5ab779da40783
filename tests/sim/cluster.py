"""A simulated cluster as scripts of tests use it: one client that writes and reads, and what must hold for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from controller.sim import cluster as simulated
from controller.sim.programs import BROKER_PORT
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.records import build_values, iterate
from controller.world.simulated.world import World, run_world

__all__ = ["BROKER_PORT", "Cluster", "play"]
COMMIT_S = 10


class Cluster(simulated.Cluster):
    """With records that were acknowledged, by partition."""

    def __init__(self, world: World, folder: Path, *, brokers: int = 3, controllers: int = 1) -> None:
        super().__init__(world, folder, brokers=brokers, controllers=controllers)
        self.acked: dict[tuple[str, int], list[bytes]] = {}

    async def produce(self, topic: str, partition: int, value: bytes) -> bool:
        """One record with acks=all to the leader that ZooKeeper names; whether it was acknowledged."""
        state = self.state(topic, partition)
        if state is None or state["leader"] not in self.broker_ids:
            return False
        batch = build_values([(None, value)], timestamp=self.world.clock.now_ms())
        body = {
            "acks": -1,
            "timeout": 5_000,
            "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}],
        }
        try:
            answer = await self.call(state["leader"], ApiKey.PRODUCE, 8, body)
        except (OSError, ProtocolError):
            return False
        if answer.responses[0].partition_responses[0].error_code != 0:
            return False
        self.acked.setdefault((topic, partition), []).append(value)
        return True

    async def keep_producing(self, topic: str, partitions: int, *, every_s: float = 0.3) -> None:
        """A program for the client machine."""
        number = 0
        while True:
            await self.produce(topic, number % partitions, b"%06d" % number)
            number += 1
            await asyncio.sleep(every_s)

    async def read(self, topic: str, partition: int) -> list[bytes]:
        """All committed values of a partition, from its leader."""
        values: list[bytes] = []
        offset = 0
        while True:
            rows = [{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
            body = {
                "replica_id": -1,
                "max_wait": 0,
                "min_bytes": 0,
                "max_bytes": 1 << 20,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": rows}],
            }
            answer = await self.call(self.state(topic, partition)["leader"], ApiKey.FETCH, 11, body)
            found = answer.responses[0].partitions[0]
            assert found.error_code == 0, f"fetch of {topic}-{partition}: error {found.error_code}"
            records = [record for record in iterate(bytes(found.records or b"")) if record.offset >= offset]
            if not records:
                return values
            values += [record.value or b"" for record in records]
            offset = records[-1].offset + 1

    # -- checks ----------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Lets time pass, then checks everything that must hold at any time."""
        await self.world.sleep(seconds)
        assert not self.invariants.broken, "\n".join(self.invariants.broken)
        self.check_brokers()

    def check_brokers(self) -> None:
        """No broker was told more than ZooKeeper says: a request goes out only after the write that it announces."""
        for broker_id, broker in self.brokers.items():
            for tp, replica in broker.replicas.table.partitions.items() if broker.replicas else ():
                state = self.state(tp.topic, tp.partition)
                if state is None or tp.topic in self.deletable:
                    continue
                told = f"broker {broker_id} has {tp} leader {replica.leader} epoch {replica.leader_epoch}; {state}"
                assert replica.leader_epoch <= state["leader_epoch"], told
                same = replica.leader_epoch == state["leader_epoch"]
                assert not (same and replica.led is not None and state["leader"] != broker_id), told

    async def until(self, condition: Callable[[], bool], *, within_s: float, what: str) -> None:
        """As `World.until`; what must hold at any time must hold then. Raises AssertionError, ProgramFailed."""
        await self.world.until(condition, within_s=within_s, what=what)
        assert not self.invariants.broken, "\n".join(self.invariants.broken)

    async def heal(self) -> None:
        """Ends all faults, starts what is down, and waits until the cluster is whole again."""
        self.world.heal()
        for number in (*self.controller_ids, *self.broker_ids):
            self.start_one(number)
        await self.sleep(2 * int(self.settings["zookeeper.session.timeout.ms"]) / 1000)  # sessions of the dead are gone
        for _ in range(60):
            if self.healthy() and not self.children("/admin/delete_topics"):
                return
            await self.sleep(5)
        raise AssertionError(f"the cluster does not come right: {self.ill()}")

    async def check_nothing_acknowledged_is_lost(self) -> None:
        """Each acknowledged record can be read; a leader of this moment may need a while to know what is committed."""
        for tp, values in sorted(self.acked.items()):
            lost: list[bytes] = values
            for _ in range(COMMIT_S):
                there = set(await self.read(*tp))
                lost = [value for value in values if value not in there]
                if not lost:
                    break
                await self.sleep(1)
            assert not lost, f"{tp}: {len(lost)} of {len(values)} acknowledged records lost: {lost[:5]}; {self.ill()}"


def play(
    seed: int,
    folder: Path,
    scenario: Callable[[Cluster], Coroutine[Any, Any, None]],
    *,
    brokers: int = 3,
    controllers: int = 1,
) -> Cluster:
    """Plays a scenario on a cluster of that shape to its end, and kills what still runs."""

    async def run(world: World) -> Cluster:
        cluster = Cluster(world, folder, brokers=brokers, controllers=controllers)
        with cluster.logging():
            try:
                await scenario(cluster)
            finally:
                for number in (*cluster.brokers, *cluster.controllers):
                    cluster.kill(number)
        return cluster

    return run_world(seed, run)
