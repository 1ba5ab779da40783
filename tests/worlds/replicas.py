"""A small cluster of replica managers on virtual time: real followers, real Fetch over a network in memory, no APIs.

The test plays the controller (`appoint`) and the clients (`produce`); ZooKeeper is a table with versions and delays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from broker_sim.config import ReplicaSettings
from broker_sim.replicas.fetch_session import FetchSessionCache
from broker_sim.replicas.manager import ReplicaManager
from broker_sim.replicas.offsets import OffsetQuestion
from broker_sim.replicas.produce_and_fetch import FetchRequest
from broker_sim.replicas.types import FetchPartition, IsrWriteOutcome, IsrWriteResult, ReplicaHooks
from broker_sim.trace import TraceWriter
from controller.wire import protocol
from controller.wire.control import LeaderAndIsrEntry, StopReplicaEntry
from controller.wire.errors import ErrorCode
from controller.wire.framing import FrameBuffer
from controller.wire.protocol import ApiKey
from controller.wire.records import build_values
from controller.wire.types import BrokerId, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicPartition
from controller.world.simulated.world import World, run_world

PORT = 9092


class StateTable:
    """The state znodes: conditional writes that take a while."""

    def __init__(self, chance: random.Random) -> None:
        self.states: dict[TopicPartition, tuple[LeaderAndIsr, int]] = {}
        self.chance = chance
        self.delay_s = (0.001, 0.03)
        self.propagated: list[tuple[float, tuple[TopicPartition, ...]]] = []
        self.refused: list[TopicPartition] = []

    async def write_isr(self, tp: TopicPartition, new: LeaderAndIsr, expected: int) -> IsrWriteResult:
        await asyncio.sleep(self.chance.uniform(*self.delay_s))
        if tp not in self.states:
            return IsrWriteResult(outcome=IsrWriteOutcome.NO_NODE)
        if self.states[tp][1] != expected:
            self.refused.append(tp)
            return IsrWriteResult(outcome=IsrWriteOutcome.REFUSED)
        self.states[tp] = (new, expected + 1)
        return IsrWriteResult(outcome=IsrWriteOutcome.WRITTEN, partition_epoch=expected + 1)

    async def propagate(self, partitions: Collection[TopicPartition]) -> bool:
        self.propagated.append((asyncio.get_running_loop().time(), tuple(partitions)))
        return True


class Metadata:
    def __init__(self) -> None:
        self.alive: frozenset[BrokerId] = frozenset()
        self.known: set[TopicPartition] = set()

    def alive_brokers(self) -> Collection[BrokerId]:
        return self.alive

    def endpoint(self, broker_id: BrokerId) -> Endpoint | None:
        return Endpoint(host=f"broker-{broker_id}", port=PORT) if broker_id in self.alive else None

    def knows(self, tp: TopicPartition) -> bool:
        return tp in self.known


class Node:
    """One broker's data plane behind a socket that speaks what followers ask."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster, self.broker_id = cluster, BrokerId(broker_id)
        self.machine = cluster.world.machine(f"broker-{broker_id}")
        self.paused: set[TopicPartition] = set()
        self.failed_dirs: list[str] = []
        #: what the coordinator was told to take over, and to let go of
        self.newly_led: list[TopicPartition] = []
        self.no_longer_led: list[TopicPartition] = []
        #: connections of followers so far
        self.accepted = 0
        self.manager: ReplicaManager
        self.sessions: FetchSessionCache

    async def start(self) -> None:
        clock = self.machine.clock
        trace = TraceWriter(self.broker_id, self.cluster.trace_dir, start_ms=clock.now_ms())
        self.sessions = FetchSessionCache(random.Random(1))
        self.manager = ReplicaManager(
            broker_id=self.broker_id,
            settings=self.cluster.settings_of(self.broker_id),
            clock=clock,
            network=self.machine.network,
            rng=random.Random(self.broker_id),
            isr_writer=self.cluster.zk,
            metadata=self.cluster.metadata,
            trace=trace,
            hooks=ReplicaHooks(
                on_log_dir_failure=self.failed_dirs.append,
                on_leadership_change=self._leadership_changed,
                is_paused=self.paused.__contains__,
            ),
        )
        self.manager.load_logs(cluster_id="test")
        self.manager.startup()
        self.listener = await self.machine.network.listen(f"broker-{self.broker_id}", PORT, self._serve)

    def _leadership_changed(self, led: Collection[TopicPartition], followed: Collection[TopicPartition]) -> None:
        self.newly_led.extend(led)
        self.no_longer_led.extend(followed)

    async def stop(self, *, clean: bool = True) -> None:
        await self.listener.close()
        await self.manager.shutdown(clean=clean)
        self.cluster.world.network.kill(self.machine.name)

    async def _serve(self, connection: Any) -> None:
        self.accepted += 1
        with contextlib.suppress(ConnectionError):
            await self._serve_all(connection)

    async def _serve_all(self, connection: Any) -> None:
        frames = FrameBuffer()
        while data := await connection.recv():
            for frame in frames.feed(data):
                request = protocol.decode_request(bytes(frame))
                body = await self.answer(request)
                connection.send(
                    protocol.encode_response(request.api_key, request.api_version, request.correlation_id, body)
                )

    async def answer(self, request: Any) -> Any:
        match request.api_key:
            case ApiKey.FETCH:
                return await self.answer_fetch(request.body)
            case ApiKey.OFFSET_FOR_LEADER_EPOCH:
                return {"topics": [self._epochs(topic) for topic in request.body.topics]}
            case _:
                return {"topics": [self._offsets(topic, request.body.replica_id) for topic in request.body.topics]}

    async def answer_fetch(self, body: Any) -> Any:
        context = self.sessions.open(
            session_id=body.session_id,
            session_epoch=body.session_epoch,
            partitions={
                TopicPartition(t.topic, p.partition): FetchPartition(
                    fetch_offset=p.fetch_offset,
                    max_bytes=p.partition_max_bytes,
                    current_leader_epoch=p.current_leader_epoch,
                    log_start_offset=p.log_start_offset,
                )
                for t in body.topics
                for p in t.partitions
            },
            forgotten=[TopicPartition(t.topic, p) for t in body.forgotten_topics_data for p in t.partitions],
            is_from_follower=True,
            now_ms=self.machine.clock.now_ms(),
        )
        if context.error is not ErrorCode.NONE:
            return {"error_code": context.error}
        results = await self.manager.fetching.fetch(
            FetchRequest(
                partitions=context.partitions,
                replica_id=body.replica_id,
                max_wait_ms=body.max_wait,
                min_bytes=body.min_bytes,
                max_bytes=body.max_bytes,
            )
        )
        answer = context.answer(results)
        return {
            "session_id": answer.session_id,
            "responses": [
                {
                    "topic": tp.topic,
                    "partitions": [
                        {
                            "partition_index": tp.partition,
                            "error_code": r.error,
                            "high_watermark": r.high_watermark,
                            "log_start_offset": r.log_start_offset,
                            "records": r.records,
                        }
                    ],
                }
                for tp, r in answer.partitions.items()
            ],
        }

    def _epochs(self, topic: Any) -> Any:
        ends = [
            (
                p.partition,
                self.manager.offsets.epoch_end(
                    TopicPartition(topic.topic, p.partition),
                    leader_epoch=p.leader_epoch,
                    current_leader_epoch=p.current_leader_epoch,
                ),
            )
            for p in topic.partitions
        ]
        return {
            "topic": topic.topic,
            "partitions": [
                {
                    "partition": index,
                    "error_code": end.error,
                    "leader_epoch": end.leader_epoch,
                    "end_offset": end.end_offset,
                }
                for index, end in ends
            ],
        }

    def _offsets(self, topic: Any, replica_id: Any) -> Any:
        found = [
            (
                p.partition_index,
                self.manager.offsets.list_offset(
                    TopicPartition(topic.name, p.partition_index),
                    OffsetQuestion(
                        timestamp=p.timestamp, replica_id=replica_id, current_leader_epoch=p.current_leader_epoch
                    ),
                ),
            )
            for p in topic.partitions
        ]
        return {
            "name": topic.name,
            "partitions": [
                {"partition_index": i, "error_code": f.error, "timestamp": f.timestamp, "offset": f.offset}
                for i, f in found
            ],
        }

    # what tests look at

    def partition(self, tp: TopicPartition) -> Any:
        return self.manager.table.partitions[tp]

    def log_end(self, tp: TopicPartition) -> int:
        return self.partition(tp).log.leo


class Cluster:
    """Brokers 1..n. Every appointment is a controller's decision: next leader epoch, next version, sent to all."""

    def __init__(self, world: World, folder: Path, **settings: Any) -> None:
        self.world, self.folder = world, folder
        self.trace_dir = folder / "trace"
        self.zk = StateTable(world.stream("zk"))
        self.metadata = Metadata()
        self.nodes: dict[int, Node] = {}
        self._settings = settings

    @classmethod
    def run(cls, folder: Path, scenario: Any, *, brokers: Any, **settings: Any) -> Any:
        """The result of `scenario(cluster)` in a world of its own; these brokers are started before, stopped after."""

        async def main(world: World) -> Any:
            cluster = cls(world, folder, **settings)
            try:
                await cluster.start(*brokers)
                return await scenario(cluster)
            finally:
                await cluster.stop()

        return run_world(7, main)

    def settings_of(self, broker_id: int) -> ReplicaSettings:
        names = self._settings.get("dirs", ("a",))
        rest = {k: v for k, v in self._settings.items() if k != "dirs"}
        return ReplicaSettings(log_dirs=tuple(str(self.folder / f"{broker_id}-{name}") for name in names), **rest)

    async def start(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            node = self.nodes[broker_id] = Node(self, broker_id)
            await node.start()
            self.set_alive(self.metadata.alive | {BrokerId(broker_id)})

    async def stop(self, *broker_ids: int, clean: bool = True) -> None:
        for broker_id in broker_ids or tuple(self.nodes):
            await self.nodes.pop(broker_id).stop(clean=clean)
            self.set_alive(self.metadata.alive - {BrokerId(broker_id)})

    def set_alive(self, alive: Any) -> None:
        self.metadata.alive = frozenset(alive)
        for node in self.nodes.values():
            node.manager.alive_brokers_changed()

    def appoint(
        self, tp: TopicPartition, leader: int | None, isr: Any, replicas: Any, *, to: Any = None, is_new: Any = False
    ) -> Any:
        """A LeaderAndIsr to all replicas (or `to`), after its state znode; returns the answers."""
        old, version = self.zk.states.get(tp, (None, -1))
        epoch = 0 if old is None else old.leader_epoch + 1
        state = LeaderAndIsr(leader=leader, isr=tuple(isr), leader_epoch=epoch, partition_epoch=version + 1)
        self.zk.states[tp] = (state, version + 1)
        self.metadata.known.add(tp)
        entry = LeaderAndIsrEntry(
            topic_partition=tp, state=state, assignment=ReplicaAssignment(replicas=tuple(replicas)), is_new=is_new
        )
        asked = [self.nodes[b] for b in (to or replicas) if b in self.nodes]
        return {n.broker_id: n.manager.leader_and_isr([entry])[tp] for n in asked}

    def resend(self, tp: TopicPartition, replicas: Any, *, to: Any) -> None:
        """The LeaderAndIsr of the last appointment, to brokers that it did not reach."""
        entry = LeaderAndIsrEntry(
            topic_partition=tp,
            state=self.zk.states[tp][0],
            assignment=ReplicaAssignment(replicas=tuple(replicas)),
            is_new=True,
        )
        for broker in to:
            self.nodes[broker].manager.leader_and_isr([entry])

    def stop_replica(self, tp: TopicPartition, broker: int, *, delete: bool, epoch: int | None = None) -> Any:
        epoch = self.zk.states[tp][0].leader_epoch if epoch is None else epoch
        entry = StopReplicaEntry(topic_partition=tp, leader_epoch=epoch, delete_partition=delete)
        return self.nodes[broker].manager.stop_replica([entry])[tp]

    async def produce(
        self, tp: TopicPartition, broker: int, values: Any = (b"v",), *, acks: Any = 1, timeout_ms: Any = 30_000
    ) -> Any:
        produce = self.nodes[broker].manager.producing.produce
        return (await produce({tp: self.batch(values)}, acks=acks, timeout_ms=timeout_ms))[tp]

    def batch(self, values: Iterable[bytes]) -> bytes:
        """Of now, without keys."""
        return build_values([(None, value) for value in values], timestamp=self.world.clock.now_ms())

    def isr(self, tp: TopicPartition) -> tuple[int, ...]:
        return self.zk.states[tp][0].isr

    def rows(self, broker: int) -> list[dict[str, Any]]:
        files = sorted(self.trace_dir.glob(f"broker-{broker}-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]
