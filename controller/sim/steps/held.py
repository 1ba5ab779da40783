"""Operations in which something is held back until what it belongs to is over: the replication of the groups' topic
while groups and topics go, ZooKeeper's answer to a leader until its term is another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from broker_sim.broker import Broker
from controller.rules.hashing import group_partition
from controller.sim.load.consumer import join_body
from controller.sim.shape import SIDE_TOPICS, TOPIC
from controller.sim.steps.combined import lose
from controller.sim.steps.log_troubles import fill, made
from controller.sim.steps.moments import CALM_S
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey, ProtocolError
from controller.wire.types import GROUP_METADATA_TOPIC
from controller.wire.zk_operations import SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

#: How long the followers of the groups' topic are held back: less than it takes to leave an ISR, more, and more than a
#: commit waits (`offsets.commit.timeout.ms`).
HELD_S: Final = (0.5, 3.0, 7.0, 7.0)
#: Between two looks at what is waited for.
LOOKS_S: Final = 0.05
#: How often a new member whose group goes before it is in joins anew.
JOINS: Final = 3
#: Of a session timeout, the part that an answer may be late without an end of the link.
LATE: Final = 0.6


def _running(turn: Turn, numbers: Sequence[int]) -> list[int]:
    return [number for number in numbers if number in turn.cluster.brokers and number not in turn.cluster.paused]


def kept_nothing(turn: Turn, topic: str, count: int) -> list[int]:
    """So many brokers that have kept nothing of a former topic of that name: a replica that nobody has deleted takes
    no smaller epoch, and its log has those of before, as in Kafka without topic ids. Raises NothingThere."""
    cluster = turn.cluster
    kept = {path.parent.name for path in cluster.folder.glob(f"broker-*/{topic}-*") if "." not in path.name}
    clean = [number for number in cluster.broker_ids if not kept & {turn.name(number), f"{turn.name(number)}-2"}]
    if len(clean) < count:
        raise NothingThere
    return turn.chance.sample(clean, count)


async def until(turn: Turn, is_so: Callable[[], bool], within_s: float) -> bool:
    """Whether it is so in time."""
    loop = turn.cluster.world.loop
    deadline_s = loop.time() + within_s
    while not is_so():
        if loop.time() > deadline_s:
            return False
        await turn.cluster.world.sleep(LOOKS_S)
    return True


# -- groups --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Coordinator:
    """Who leads a partition of the groups' topic (`life`: as which broker), and groups that live there and that nobody
    else has."""

    turn: Turn
    leader: int
    life: Broker
    partition: int
    followers: Sequence[int]
    names: Any = field(default_factory=lambda: count(1))

    def group(self) -> str:
        """The next one."""
        tag, total = self.turn.chance.randrange(10**9), len(self.turn.cluster.topic_partitions(GROUP_METADATA_TOPIC))
        while True:
            name = f"held-{tag}-{next(self.names)}"
            if group_partition(name, total) == self.partition:
                return name

    async def ask(self, api_key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        """Raises NothingThere: no answer."""
        try:
            return await self.turn.cluster.call(self.leader, api_key, version, body)
        except (OSError, ProtocolError):
            raise NothingThere from None

    async def commit(self, group: str, partitions: Sequence[tuple[str, int]]) -> str:
        """As nobody's member; how that went, in a word."""
        topics = {topic: [number for name, number in partitions if name == topic] for topic, _ in partitions}
        row = {"committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
        body = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [
                {"name": topic, "partitions": [{"partition_index": number, **row} for number in numbers]}
                for topic, numbers in topics.items()
            ],
        }
        return await self.turn.cluster.ask_one(self.leader, ApiKey.OFFSET_COMMIT, 7, body)

    async def join(self, body: dict[str, Any]) -> Any:
        """The answer to a new member that is let in: first it is told its id, then it joins with it. In between its
        group may go, which nothing but members and offsets keeps; who is unknown then joins anew, as clients do. Raises
        NothingThere: it is not let in. `GroupMetadataManager.cleanupGroupMetadata`; clients.md §7.3."""
        for _ in range(JOINS):
            given = await self.ask(ApiKey.JOIN_GROUP, 5, body)
            joined = await self.ask(ApiKey.JOIN_GROUP, 5, body | {"member_id": given.member_id})
            error = ErrorCode.of(int(joined.error_code))
            if error is ErrorCode.NONE:
                return joined
            if error is not ErrorCode.UNKNOWN_MEMBER_ID:
                break
        raise NothingThere

    async def left(self) -> str:
        """A group whose only member has left: it has a generation, and nobody. Raises NothingThere."""
        group = self.group()
        joined = await self.join(join_body(group, "", None, session_ms=3_000, rebalance_ms=2_000))
        who = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
        rows = [{"member_id": joined.member_id, "assignment": b""}]
        await self.ask(ApiKey.SYNC_GROUP, 3, {**who, "group_instance_id": None, "assignments": rows})
        member = {"member_id": joined.member_id, "group_instance_id": None}
        await self.ask(ApiKey.LEAVE_GROUP, 3, {"group_id": group, "members": [member]})
        return group

    async def delete(self, groups: Sequence[str]) -> str:
        """How that went, in a word."""
        body = {"groups_names": list(groups)}
        return await self.turn.cluster.ask_one(self.leader, ApiKey.DELETE_GROUPS, 1, body)

    def is_same(self) -> bool:
        """Whether it has run on, and leads."""
        state = self.turn.cluster.state(GROUP_METADATA_TOPIC, self.partition) or {"leader": -1}
        return self.turn.cluster.brokers.get(self.leader) is self.life and state["leader"] == self.leader

    def has_loaded(self) -> bool:
        """Whether it serves its groups."""
        return self.life._context is not None and self.life.context.groups.error_for(self.group()) is None

    def hold(self) -> None:
        """No request of a follower reaches the leader from now on."""
        for follower in self.followers:
            self.turn.cluster.world.network.cut(self.turn.name(follower), self.turn.name(self.leader))

    def let_go(self) -> None:
        """What waited arrives."""
        for follower in self.followers:
            self.turn.cluster.world.network.heal(self.turn.name(follower), self.turn.name(self.leader))


async def coordinator_of(turn: Turn, partition: int | None = None) -> Coordinator:
    """One with followers, of this partition or of any; the groups' topic is made if it is not there. Raises
    NothingThere."""
    cluster = turn.cluster
    await until(turn, cluster.healthy, CALM_S)
    asked = turn.one_of(_running(turn, cluster.broker_ids))
    for _ in range(10):
        if cluster.topic_partitions(GROUP_METADATA_TOPIC):
            break
        await cluster.ask_one(asked, ApiKey.FIND_COORDINATOR, 2, {"key": "held", "key_type": 0})
        await cluster.world.sleep(0.5)
    there = cluster.topic_partitions(GROUP_METADATA_TOPIC)
    partition = turn.one_of(there if partition is None else [each for each in there if each == partition])
    state = cluster.state(GROUP_METADATA_TOPIC, partition) or {"leader": -1, "isr": []}
    followers = [number for number in _running(turn, state["isr"]) if number != state["leader"]]
    if not followers or state["leader"] not in _running(turn, cluster.broker_ids):
        raise NothingThere
    leader = state["leader"]
    return Coordinator(turn, leader, cluster.brokers[leader], partition, followers)


async def commit_while_it_goes(turn: Turn) -> str:
    """What groups commit is not replicated for a while, in which a topic that they commit for is deleted, and groups
    are. What is deleted is gone, whatever becomes of the commits under way. clients.md §8; KIP-496."""
    cluster, coordinator = turn.cluster, await coordinator_of(turn)
    topic = turn.chance.choice(SIDE_TOPICS)
    await _make(turn, topic, 2)
    here = [(topic, number) for number in cluster.topic_partitions(topic)]
    stays, under_way, doomed = coordinator.group(), coordinator.group(), coordinator.group()
    left = [await coordinator.left(), await coordinator.left()]
    went = [await coordinator.commit(stays, [*here[:1], (TOPIC, 0)])]
    coordinator.hold()
    commits = [asyncio.ensure_future(coordinator.commit(under_way, [*here, (TOPIC, 0)]))]
    commits.append(asyncio.ensure_future(coordinator.commit(doomed, [(TOPIC, 0)])))
    await cluster.world.sleep(turn.chance.choice((0.1, 0.3)))
    body = {"topic_names": [topic], "timeout": 100}
    deleted = [await cluster.ask_once(ApiKey.DELETE_TOPICS, 3, body), await coordinator.delete([left[0], doomed])]
    await cluster.world.sleep(0.3)
    commits.append(asyncio.ensure_future(coordinator.commit(under_way, [(TOPIC, 0)])))
    held_s = turn.chance.choice(HELD_S)
    await cluster.world.sleep(held_s)
    deleted.append(await coordinator.delete(left[1:]))
    coordinator.let_go()
    went += await asyncio.gather(*commits)
    where = f"{GROUP_METADATA_TOPIC}-{coordinator.partition} of broker {coordinator.leader}"
    return f"{where} held for {held_s} s: {went}; {topic} and groups deleted: {deleted}"


async def _make(turn: Turn, topic: str, partitions: int) -> None:
    """The topic, unless it is there, until everybody knows it."""
    cluster = turn.cluster
    if cluster.topic_partitions(topic):
        return
    rows = [{"partition_index": number, "broker_ids": kept_nothing(turn, topic, 2)} for number in range(partitions)]
    row = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": rows, "configs": []}
    await cluster.ask_once(ApiKey.CREATE_TOPICS, 4, {"topics": [row], "timeout": 1_000, "validate_only": False})
    await cluster.world.sleep(0.5)


# -- terms ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Led:
    """A partition, its leader, a follower that will lag, the others in its ISR, and who has no replica of it.
    `written` counts the ISRs that its leader has written since it is watched."""

    turn: Turn
    topic: str
    partition: int
    leader: int
    laggard: int
    others: Sequence[int]
    free: Sequence[int]
    written: int = 0

    def epoch(self) -> int:
        """Of its leader, by ZooKeeper."""
        return int((self.turn.cluster.state(self.topic, self.partition) or {"leader_epoch": -1})["leader_epoch"])

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """From the first ISR on that its leader writes, that hears nothing of ZooKeeper."""
        path = f"/brokers/topics/{self.topic}/partitions/{self.partition}/state"
        if isinstance(op, SetData) and op.path == path and result.ok and session.machine == self.turn.name(self.leader):
            self.written += 1
            self.turn.cluster.world.zookeeper.hold_answers(session.machine)

    async def move(self, replicas: Sequence[int]) -> str:
        """To these replicas; how that went, in a word."""
        row = {"partition_index": self.partition, "replicas": list(replicas)}
        body = {"timeout": 5_000, "topics": [{"name": self.topic, "partitions": [row]}]}
        return await self.turn.cluster.ask_once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, body)


async def _led(turn: Turn) -> _Led:
    """A partition of a side topic with a leader and followers. Raises NothingThere."""
    cluster = turn.cluster
    await until(turn, cluster.healthy, CALM_S)
    topic = await _side_topic(turn)
    await until(turn, lambda: set(_isr(turn, topic)) == set(cluster.assignment(topic, 0)), 2.0)
    state = cluster.state(topic, 0) or {"leader": -1}
    running = _running(turn, _isr(turn, topic))
    laggard = turn.one_of([number for number in running if number != state["leader"]])
    others = [number for number in running if number not in (laggard, state["leader"])]
    free = [number for number in _running(turn, cluster.broker_ids) if number not in cluster.assignment(topic, 0)]
    if state["leader"] not in running:
        raise NothingThere
    return _Led(turn, topic, 0, state["leader"], laggard, others, free)


async def _side_topic(turn: Turn) -> str:
    """One that is there, or is made now. Raises NothingThere: nobody leads, or there is nobody to have it."""
    topic = turn.chance.choice(SIDE_TOPICS)
    count = min(3, len(turn.cluster.broker_ids))
    return await made(turn, topic, [] if turn.cluster.topic_partitions(topic) else kept_nothing(turn, topic, count), {})


def _isr(turn: Turn, topic: str) -> list[int]:
    return (turn.cluster.state(topic, 0) or {"isr": []})["isr"]  # type: ignore[no-any-return]  # brokers


async def _lose_another(led: _Led) -> str:
    """A member of the ISR dies: its leader goes on in another epoch."""
    lost = led.turn.one_of(led.others)
    lose(led.turn, lost)
    led.turn.cluster.later(2.0, lambda: led.turn.cluster.start_one(lost))
    return f"without {lost}"


async def _add_another(led: _Led) -> str:
    """A move adds a replica: its leader goes on in another epoch."""
    added = led.turn.one_of(led.free)
    assigned = led.turn.cluster.assignment(led.topic, led.partition)
    return f"with {added}: {await led.move([*assigned, added])}"


async def _drop_the_leader(led: _Led) -> str:
    """A move takes the replica of its leader away."""
    return f"to {list(led.others)}: {await led.move(led.others)}"


def _ways(led: _Led) -> list[Callable[[_Led], Awaitable[str]]]:
    """To another term, as far as there is somebody for it."""
    return [
        *([_lose_another, _drop_the_leader, _drop_the_leader] if led.others else []),
        *[_add_another][: len(led.free)],
    ]


async def answer_a_former_term(turn: Turn) -> str:
    """A leader hears that its ISR was written when it leads in another term, perhaps with another change under way, or
    leads no more: the answer says nothing of what it decides now, and the controller hears of that ISR all the same.
    broker.md §9.1, §9.2."""
    cluster, led = turn.cluster, await _led(turn)
    zookeeper, leader, laggard = cluster.world.zookeeper, turn.name(led.leader), turn.name(led.laggard)
    shape = cluster.shape
    lag_s = (shape.lag_time_max_ms if shape else 3000) / 1000
    late_s = LATE * (shape.session_timeout_ms if shape else 6000) / 1000

    def let_go() -> None:
        if led.operation in zookeeper.on_operation:
            zookeeper.on_operation.remove(led.operation)
        zookeeper.let_answers_go(leader)

    zookeeper.on_operation.append(led.operation)
    cluster.armed.append(let_go)
    cluster.world.network.cut(laggard, leader)
    filled = await fill(turn, led.topic, led.partition, 2)
    epoch, went = led.epoch(), f"{filled}, no ISR was written"
    try:
        if await until(turn, lambda: led.written > 0, 2 * lag_s + 1.0):
            cluster.later(late_s, let_go)
            went = await turn.one_of(_ways(led))(led)
            await until(turn, lambda: led.epoch() > epoch, late_s)
            if turn.chance.random() < 0.6:
                await cluster.world.sleep(LOOKS_S)
                cluster.world.network.heal(laggard, leader)
                await until(turn, lambda: led.written > 1, late_s)
    finally:
        let_go()
        cluster.world.network.heal(laggard, leader)
    return f"{led.topic}-{led.partition} of {leader}, {laggard} lags: {went}, epoch {epoch} is {led.epoch()}"


HELD: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each for each in (commit_while_it_goes, answer_a_former_term)
}
