"""A whole cluster one of whose znodes is damaged while clients write, and mended later as an operator would do it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from controller.wire import log_events as ev
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.records import build_values
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkOp
from controller.world.simulated.world import World
from tests.sim.cluster import Cluster
from tests.worlds.damage import Damage

#: The topic whose znodes are damaged, and one whose are not: each broker leads one of the partitions.
TOPIC, SOUND = "t", "sound"
PARTITIONS: Final = {(TOPIC, 0): (1, 2, 3), (TOPIC, 1): (2, 3, 1), (TOPIC, 2): (3, 1, 2), (SOUND, 0): (3, 2, 1)}
STATE: Final = f"/brokers/topics/{TOPIC}/partitions/0/state"
#: What a broker or a controller reads and nobody wrote yet, with a content that is right.
ABSENT: Final[Mapping[str, bytes | None]] = {
    "/config/topics/t": b'{"version":1,"config":{"unclean.leader.election.enable":"false"}}',
    "/config/brokers/1": b'{"version":1,"config":{}}',
    "/config/brokers/<default>": b'{"version":1,"config":{}}',
    "/config/changes/config_change_0000000099": b'{"version":2,"entity_path":"topics/t"}',
    "/admin/reassign_partitions": b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[3,2]}]}',
    "/admin/preferred_replica_election": b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "/isr_change_notification/isr_change_0000000099": b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "/log_dir_event_notification/log_dir_event_0000000099": b'{"version":1,"broker":2,"event":1}',
}
#: Znodes of the running cluster.
PRESENT: Final = (
    *("/controller", "/controller_epoch", "/feature", "/cluster/id", "/latest_producer_id_block"),
    *("/brokers/ids", "/brokers/ids/1", "/brokers/topics", "/brokers/topics/t", "/brokers/topics/t/partitions"),
    *("/brokers/topics/t/partitions/0", STATE, "/brokers/topics/t/partitions/1/state"),
    *("/admin/delete_topics", "/isr_change_notification", "/log_dir_event_notification", "/config/changes"),
)
PRODUCE_S: Final = 0.4
#: Within so many virtual seconds what is sound is served again, and everything after a repair.
SOUND_S, WELL_S = 45, 120
HARM: Final = (ev.TASK_FAILED, ev.REQUEST_FAILED, ev.BROKER_HALTED, ev.CONTROLLER_FAULTED)


class DamagedCluster(Cluster):
    """Three brokers, two controllers, producers with acks=all that ask brokers as clients do."""

    def __init__(self, world: World, folder: Any) -> None:
        super().__init__(world, folder, brokers=3, controllers=2)
        world.zookeeper.on_commit.remove(self.invariants.check)  # what stands there now is no program's doing
        self.before: bytes | None = None
        self.was_there = False
        self.restarted: set[int] = set()  # who may be waiting for the repair before it can start

    async def begin(self) -> None:
        """Everything stands and is written to."""
        await self.start()
        for topic in (TOPIC, SOUND):
            await self.create_topic(topic, [ids for (name, _), ids in PARTITIONS.items() if name == topic])
        await self.call(1, ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout": 60_000})
        await self.world.until(self.is_whole, within_s=30, what="all in sync")
        for tp in PARTITIONS:
            self.world.machine(f"producer-{tp[0]}-{tp[1]}").start(self._keep_sending(tp))
        await self.world.sleep(2)

    # -- clients ---------------------------------------------------------------------------------------------------

    async def _keep_sending(self, tp: tuple[str, int]) -> None:
        """One record after the other; who is not the leader says so, then another is asked."""
        number, leader = 0, PARTITIONS[tp][0]
        while True:
            if not await self.send(leader, tp, b"%s-%d/%d" % (tp[0].encode(), tp[1], number)):
                leader = leader % len(self.broker_ids) + 1
            number += 1
            await asyncio.sleep(PRODUCE_S)

    async def send(self, broker: int, tp: tuple[str, int], value: bytes) -> bool:
        """One record to one broker, which may or may not lead; whether it was acknowledged."""
        batch = build_values([(None, value)], timestamp=self.world.clock.now_ms())
        partition = {"name": tp[0], "partition_data": [{"index": tp[1], "records": batch}]}
        try:
            answer = await self.call(
                broker, ApiKey.PRODUCE, 8, {"acks": -1, "timeout": 5_000, "topic_data": [partition]}
            )
        except (OSError, ProtocolError):
            return False
        if answer.responses[0].partition_responses[0].error_code != 0:
            return False
        self.acked.setdefault(tp, []).append(value)
        return True

    # -- the damage ------------------------------------------------------------------------------------------------

    def content(self, path: str) -> bytes | None:
        """What is right there."""
        znode = self.world.zookeeper.tree.get(path)
        return znode.payload if znode is not None else ABSENT.get(path)

    async def inflict(self, damage: Damage) -> None:
        """From now on."""
        path, tree = damage.path, self.world.zookeeper.tree
        znode = tree.get(path)
        self.before, self.was_there = (znode.payload, True) if znode is not None else (None, False)
        if damage.how == "refused":
            if path in ABSENT:
                await self.put(path, ABSENT[path])
            tree.refusal = lambda op: (
                damage.code if not isinstance(op, Multi) and isinstance(op, damage.kinds) and op.path == path else None
            )
        elif damage.how == "gone":
            await self.write_znode(Delete(path))
        elif damage.how == "touched":
            await self.put(path, self.content(path))
        else:
            await self.put(path, damage.data)

    async def put(self, path: str, data: bytes | None) -> None:
        """Writes it, new or over what is there."""
        op: ZkOp = SetData(path, data) if self.world.zookeeper.tree.get(path) is not None else Create(path, data)
        await self.write_znode(op)

    async def repair(self, damage: Damage) -> None:
        """What is refused is allowed; what still stands as the damage left it becomes what it was. The rest stays."""
        path, tree = damage.path, self.world.zookeeper.tree
        tree.refusal = lambda _: None
        znode = tree.get(path)
        as_damaged = (
            damage.how not in ("refused", "touched") and (znode.payload if znode is not None else None) == damage.data
        )
        if path == "/controller":
            if znode is not None and as_damaged:
                await self.write_znode(Delete(path))
        elif path == "/controller_epoch":
            if as_damaged:
                await self.put(path, str(self.highest_epoch() + 1).encode())
        elif path.startswith("/brokers/ids/"):
            await self.restart(int(path.rpartition("/")[2]), as_damaged=as_damaged)
        elif as_damaged and self.was_there:
            await self.put(path, self.before)
        elif as_damaged and znode is not None:
            await self.write_znode(Delete(path))

    async def restart(self, broker: int, *, as_damaged: bool) -> None:
        """The broker whose registration it is, once the session of its former life is gone."""
        if as_damaged:
            self.kill(broker)
            await self.write_znode(Delete(f"/brokers/ids/{broker}"))
            await self.world.sleep(8)
        self.start_one(broker)

    def highest_epoch(self) -> int:
        """Of the controllers that run, and those that brokers have heard of."""
        heard = [b.context.controller_epoch for b in self.brokers.values() if b.replicas is not None]
        return max([c.state.epoch for c in self.controllers.values()] + heard, default=0)

    # -- what must hold --------------------------------------------------------------------------------------------

    def is_whole(self) -> bool:
        """All are registered, and each partition has all its replicas in sync and a leader among them."""
        return self.registered() == set(self.broker_ids) and all(
            isinstance(state := self.state(*tp), dict)
            and set(state["isr"]) == set(self.listed_replicas(*tp)) != set()
            and state["leader"] in state["isr"]
            for tp in PARTITIONS
        )

    def listed_replicas(self, topic: str, partition: int) -> list[int]:
        """Its replicas; none where the topic's znode does not say."""
        found = self.znode(f"/brokers/topics/{topic}")
        known = found.get("partitions") if isinstance(found, dict) else None
        replicas = known.get(str(partition), []) if isinstance(known, dict) else []
        return replicas if isinstance(replicas, list) else []

    async def grows(self, tp: tuple[str, int], *, within_s: float) -> None:
        """New records of it are acknowledged. Raises AssertionError."""
        before = len(self.acked.get(tp, []))
        await self.world.until(
            lambda: len(self.acked.get(tp, [])) > before + 2,
            within_s=within_s,
            what=f"new records of {tp} ({self.all()})",
        )

    async def everybody_answers(self, but: Collection[int] = ()) -> None:
        """Each program serves. Raises AssertionError, OSError."""
        assert set(self.brokers) == set(self.broker_ids) and set(self.controllers) == set(self.controller_ids)
        for number in set(self.numbers()) - set(but):
            answer = await self.call(number, ApiKey.API_VERSIONS, 0, {})
            assert answer.error_code == 0

    async def ends_well(self) -> None:
        """Under the controller that saw the damage and under the next. Raises AssertionError."""
        await self.world.until(self.is_whole, within_s=WELL_S, what=f"a whole cluster ({self.all()})")
        for tp in PARTITIONS:
            await self.grows(tp, within_s=SOUND_S)
        await self.everybody_answers()

    async def everything_is_there(self) -> None:
        """Nobody writes any more, and each acknowledged record can be read. Raises AssertionError."""
        for tp in PARTITIONS:
            self.world.machine(f"producer-{tp[0]}-{tp[1]}").kill()
        await self.check_nothing_acknowledged_is_lost()

    def all(self) -> str:
        """States and leaders, for a message."""
        states = {f"{t}-{n}": self.state(t, n) for t, n in PARTITIONS}
        return f"registered {sorted(self.registered())}, controller {self.znode('/controller')}, {states}"

    def harm(self) -> list[str]:
        """Tasks that failed, requests that raised, brokers that gave up, controllers that faulted."""
        return [
            self.line(at_s, method, event)
            for at_s, method, event in self.events
            if event["event"] in HARM and (event["event"] != ev.REQUEST_FAILED or "exc_info" in event)
        ]


Stir = Callable[[DamagedCluster], Awaitable[None]]


async def nothing(cluster: DamagedCluster) -> None:
    """Only clients."""


async def bounce(cluster: DamagedCluster) -> None:
    """Broker 1, which leads t-0, is killed and started again."""
    cluster.kill(1)
    cluster.restarted.add(1)
    await cluster.world.sleep(9)
    cluster.start_one(1)


async def expire(cluster: DamagedCluster) -> None:
    """ZooKeeper ends the session of broker 2."""
    server = cluster.world.zookeeper
    server.expire_sessions_of("broker-2")


async def fail_over(cluster: DamagedCluster) -> None:
    """The active controller is killed, and started again later."""
    active = next((n for n, c in sorted(cluster.controllers.items()) if c.state.serving), None)
    if active is not None:
        cluster.kill(active)
        cluster.restarted.add(active)
        await cluster.world.sleep(9)
        cluster.start_one(active)


async def ask(cluster: DamagedCluster) -> None:
    """Requests of clients that make a broker or the controller read: a topic, its configs, a producer id."""
    rows = [{"partition_index": 0, "broker_ids": [2, 3]}]
    made = {"name": "made", "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": []}
    change = {"name": "segment.bytes", "config_operation": 0, "value": "1048576"}
    altered = {"resource_type": 2, "resource_name": TOPIC, "configs": [change]}
    asked = (
        (ApiKey.CREATE_TOPICS, 4, {"topics": [made], "timeout": 5_000, "validate_only": False}),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [altered]}),
        (ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": None, "transaction_timeout": 60_000}),
        (ApiKey.DELETE_TOPICS, 3, {"topic_names": ["made"], "timeout": 5_000}),
    )
    for api_key, version, body in asked:
        await cluster.ask_one(2, api_key, version, body)


async def move(cluster: DamagedCluster) -> None:
    """t-0 gets other replicas, and its old ones again."""
    for replicas in ([2, 3], list(PARTITIONS[TOPIC, 0])):
        rows = [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
        await cluster.ask_one(2, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 5_000, "topics": rows})
        await cluster.world.sleep(4)


STIRS: Final[Mapping[str, Stir]] = {s.__name__: s for s in (nothing, bounce, expire, fail_over, ask, move)}


def is_believable(damage: Damage) -> bool:
    """Whether it is a partition's state that nobody can tell from a true one."""
    try:
        found = json.loads(damage.data or b"")
    except ValueError:
        return False
    return damage.path.endswith("/state") and isinstance(found, dict)
