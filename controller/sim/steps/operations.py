"""What administrators ask of a cluster, in a world: by request to a controller, by znode, and by broker.

An operation runs in the background, so that faults meet it half-way; it need not succeed. Only `t` keeps its records.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from controller.sim.shape import SIDE_TOPICS, TOPIC
from controller.sim.steps.faults import kill_at_write
from controller.sim.steps.turn import NothingThere, Turn
from controller.wire.protocol import ApiKey
from controller.wire.zk_operations import Create, Delete, SetData, ZkOp

#: Settings that such a topic is created with: nobody promises that its records stay.
SIDE_CONFIGS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"segment.bytes": "600", "retention.bytes": "1200"},
    {"segment.bytes": "600", "retention.ms": "2000"},
    {"segment.bytes": "600", "retention.bytes": "600", "min.insync.replicas": "2"},
)
#: Entries of `/admin/reassign_partitions` that a controller must refuse, each for itself.
WRONG_ENTRIES: Final[tuple[dict[str, Any], ...]] = (
    {"topic": TOPIC, "partition": 99, "replicas": [1, 2]},
    {"topic": "there-is-no-such-topic", "partition": 0, "replicas": [1, 2]},
)


async def create_topic(turn: Turn) -> str:
    """Another topic, or the same again; by assignment or by count."""
    topic = turn.chance.choice(SIDE_TOPICS)
    count, factor = turn.chance.choice((1, 2, 5)), turn.chance.choice((1, 2, 3))
    configs = [{"name": name, "value": value} for name, value in turn.chance.choice(SIDE_CONFIGS).items()]
    topic_row: dict[str, Any] = {"name": topic, "num_partitions": -1, "replication_factor": -1, "configs": configs}
    if turn.chance.random() < 0.5:
        rows = [{"partition_index": n, "broker_ids": turn.replicas(factor)} for n in range(count)]
        topic_row |= {"assignments": rows}
    else:
        topic_row |= {"assignments": [], "num_partitions": count, "replication_factor": factor}
    body = {"topics": [topic_row], "timeout": 1_000, "validate_only": False}
    return f"{topic} {count} x {factor}: {await _ask(turn, ApiKey.CREATE_TOPICS, 4, body)}"


async def delete_topic(turn: Turn) -> str:
    """The end of such a topic."""
    topic = turn.chance.choice(SIDE_TOPICS)
    body = {"topic_names": [topic], "timeout": 1_000}
    return f"{topic}: {await _ask(turn, ApiKey.DELETE_TOPICS, 3, body)}"


async def recreate_topic(turn: Turn) -> str:
    """Deleted, and created again as soon as it is let."""
    return f"{await delete_topic(turn)}, {await create_topic(turn)}"


async def grow_topic(turn: Turn) -> str:
    """More partitions."""
    topic = turn.chance.choice(SIDE_TOPICS)
    now = len(turn.cluster.topic_partitions(topic))
    count = now + turn.chance.choice((1, 2))
    body = {
        "topics": [{"name": topic, "count": count, "assignments": None}],
        "timeout": 1_000,
        "validate_only": False,
    }
    return f"{topic} to {count}: {await _ask(turn, ApiKey.CREATE_PARTITIONS, 1, body)}"


async def reassign(turn: Turn) -> str:
    """A move of one partition, on top of what moves already."""
    topic, partition = turn.one_of(turn.cluster.movable())
    replicas = turn.replicas(turn.chance.choice((1, 2, 3, 3, 4)))
    return f"{topic}-{partition} to {replicas}: {await _reassign(turn, {(topic, partition): replicas})}"


async def reassign_many(turn: Turn) -> str:
    """A move of several partitions."""
    moves = {tp: turn.replicas(turn.chance.choice((2, 3))) for tp in turn.cluster.movable()[:4]}
    return f"{_moves(moves)}: {await _reassign(turn, moves)}"


async def cancel_reassignment(turn: Turn) -> str:
    """The end of the moves of a topic."""
    moves: dict[tuple[str, int], list[int] | None] = {tp: None for tp in turn.cluster.partitions() if tp[0] == TOPIC}
    return await _reassign(turn, moves)


async def reassign_by_znode(turn: Turn) -> str:
    """As tools before 2.4 did. Some entries are wrong: a broker that there is not, a partition that there is not."""
    entries = [
        {"topic": topic, "partition": number, "replicas": turn.replicas(turn.chance.choice((2, 3)))}
        for topic, number in turn.cluster.movable()[:2]
    ]
    wrong = turn.chance.random() < 0.3
    if wrong:
        entries.append(turn.chance.choice(WRONG_ENTRIES))
    content = json.dumps({"version": 1, "partitions": entries}).encode()
    return f"{entries}: {await _write(turn, Create('/admin/reassign_partitions', content))}"


async def elect(turn: Turn) -> str:
    """The preferred leaders of all partitions; unclean ones where the world has them anyway."""
    unclean = bool(turn.cluster.shape and turn.cluster.shape.unclean_leader_election) and turn.chance.random() < 0.5
    if unclean:
        turn.cluster.on_unclean_asked()
    body = {"election_type": 1 if unclean else 0, "topic_partitions": None, "timeout": 2_000}
    return f"{'unclean' if unclean else 'preferred'}: {await _ask(turn, ApiKey.ELECT_LEADERS, 2, body)}"


async def elect_by_znode(turn: Turn) -> str:
    """As tools before 2.4 did."""
    rows = [{"topic": topic, "partition": number} for topic, number in turn.cluster.partitions()]
    content = json.dumps({"version": 1, "partitions": rows}).encode()
    return await _write(turn, Create("/admin/preferred_replica_election", content))


async def alter_topic_config(turn: Turn) -> str:
    """A setting of a topic, or its end."""
    name, value = turn.chance.choice(
        (
            ("segment.bytes", "700"),
            ("min.insync.replicas", "1"),
            ("flush.messages", "2"),
            ("retention.ms", "100000000"),
            ("unclean.leader.election.enable", "false"),
            ("unclean.leader.election.enable", "true"),
            ("leader.replication.throttled.replicas", "*"),
            ("follower.replication.throttled.replicas", "*"),
        )
    )
    operation = turn.chance.choice((0, 0, 1))
    return f"{name}={value}: {await alter_configs(turn, 2, TOPIC, {name: value}, operation)}"


async def alter_broker_config(turn: Turn) -> str:
    """A throttle of a broker, or its end."""
    number = turn.one_of(sorted(set(turn.cluster.brokers) - turn.cluster.paused))
    name = turn.chance.choice(("leader.replication.throttled.rate", "follower.replication.throttled.rate"))
    operation, rate = turn.chance.choice((0, 1)), turn.chance.choice(("2000", "100000"))
    return f"{number} {name}={rate}: {await alter_configs(turn, 4, str(number), {name: rate}, operation, to=number)}"


async def move_log_dir(turn: Turn) -> str:
    """A replica to the other log dir of its broker."""
    cluster, shape = turn.cluster, turn.cluster.shape
    number = turn.one_of(sorted(set(cluster.brokers) - cluster.paused) if shape and shape.log_dirs > 1 else [])
    name = turn.chance.choice((turn.name(number), f"{turn.name(number)}-2"))
    partitions = [partition for topic, partition in cluster.partitions() if topic == TOPIC]
    rows = [{"path": str(cluster.folder / name), "topics": [{"name": TOPIC, "partitions": partitions[:2]}]}]
    went = await cluster.ask_one(number, ApiKey.ALTER_REPLICA_LOG_DIRS, 1, {"dirs": rows})
    return f"{name}: {went}"


async def delete_records(turn: Turn) -> str:
    """The oldest records of a side topic, as far as they are committed."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.partitions() if tp[0] in SIDE_TOPICS])
    state = cluster.state(topic, partition)
    leader = state["leader"] if state else -1
    if leader not in cluster.brokers:
        return "no leader"
    rows = [{"name": topic, "partitions": [{"partition_index": partition, "offset": -1}]}]
    return await cluster.ask_one(leader, ApiKey.DELETE_RECORDS, 1, {"topics": rows, "timeout": 2_000})


async def shut_down(turn: Turn) -> str:
    """Controlled shutdown of a broker, or the clean end of a controller."""
    number = turn.one_of(turn.cluster.running())
    await turn.cluster.shut_down(number)
    return turn.name(number)


async def roll(turn: Turn) -> str:
    """Each broker in turn: controlled shutdown, and started again."""
    rolled = []
    for number in sorted(turn.cluster.brokers):
        if number in turn.cluster.brokers and number not in turn.cluster.paused:
            await turn.cluster.shut_down(number)
            turn.cluster.start_one(number)
            rolled.append(number)
            await turn.cluster.world.sleep(turn.chance.choice((0.5, 3.0)))
    return f"brokers {rolled}"


async def duel(turn: Turn) -> str:
    """Two replicas of a partition lead in turns, each while the other is down, so that neither follows the other."""
    cluster = turn.cluster
    topic, partition = turn.one_of([tp for tp in cluster.partitions() if tp[0] == TOPIC])
    replicas = cluster.assignment(topic, partition)
    if len(replicas) < 2:
        raise NothingThere
    one, other = replicas[:2]
    shape = cluster.shape
    expires_s = (shape.session_timeout_ms if shape else 6000) / 1000 + 0.7
    for third in replicas[2:]:
        cluster.kill(third)
    for _ in range(turn.chance.choice((2, 3, 4))):
        cluster.kill(one)
        cluster.start_one(other)
        await cluster.world.sleep(expires_s + turn.chance.choice((0.5, 1.5)))
        one, other = other, one
    for number in replicas:
        cluster.start_one(number)
    return f"{topic}-{partition}: brokers {one} and {other}"


async def act_and_fail_over(turn: Turn) -> str:
    """Something is asked for, and whoever is in office dies at one of the writes that it does for it."""
    asked = turn.chance.choice((create_topic, delete_topic, grow_topic, reassign, reassign_many, elect, shut_down))
    nth = kill_at_write(turn)
    return f"{asked.__name__} {await asked(turn)}; {nth}"


async def act_and_stall(turn: Turn) -> str:
    """Something is asked for, and whoever is in office stands still until another has been elected, and goes on."""
    cluster = turn.cluster
    active = cluster.active_controller()
    if active is None or active not in cluster.controllers or active in cluster.paused:
        raise NothingThere
    asked = turn.chance.choice((create_topic, delete_topic, reassign, reassign_many))
    expires_s = (cluster.shape.session_timeout_ms if cluster.shape else 6000) / 1000 + 1.0

    def stall() -> None:
        if active in cluster.controllers and active not in cluster.paused:
            cluster.pause(active)
            cluster.later(expires_s, lambda: cluster.resume(active))

    cluster.later(turn.chance.choice((0.0, 0.003, 0.006, 0.012)), stall)
    return f"{asked.__name__} {await asked(turn)}; {turn.name(active)} stalls"


async def move_and_lose_the_target(turn: Turn) -> str:
    """A move begins, one of its new replicas dies, and comes back while the move waits for it."""
    cluster = turn.cluster
    topic, partition = turn.one_of(cluster.movable())
    replicas = turn.replicas(turn.chance.choice((2, 3)))
    target = turn.one_of(
        [r for r in replicas if r in cluster.brokers and r not in cluster.assignment(topic, partition)]
    )
    if turn.chance.random() < 0.5:
        cluster.kill(target)
    went = await _reassign(turn, {(topic, partition): replicas})
    cluster.kill(target)
    await cluster.world.sleep(turn.chance.choice((0.5, 5.0, 9.0)))
    cluster.start_one(target)
    return f"{topic}-{partition} to {replicas}: {went}; broker {target} was away"


async def bounce_unseen(turn: Turn) -> str:
    """A broker comes back within the time in which the controller, which is paused, hears nothing of it."""
    cluster = turn.cluster
    active = cluster.active_controller()
    number = turn.one_of(sorted(set(cluster.brokers) - cluster.paused))
    if active is None or active not in cluster.controllers or active in cluster.paused:
        raise NothingThere
    before = cluster.world.zookeeper.tree.get(f"/brokers/ids/{number}")
    cluster.world.zookeeper.expire_sessions_of(turn.name(number))
    cluster.machine(active).suspend()
    cluster.kill(number)
    cluster.start_one(number)
    for _ in range(20):
        await cluster.world.sleep(0.1)
        now = cluster.world.zookeeper.tree.get(f"/brokers/ids/{number}")
        if now is not None and (before is None or now.czxid != before.czxid):
            break
    if active in cluster.controllers and active not in cluster.paused:
        cluster.machine(active).go_on()
    return f"{turn.name(number)} while {turn.name(active)} is busy"


async def foreign_znode(turn: Turn) -> str:
    """Somebody else writes to ZooKeeper: right things, and things that do not parse."""
    ops: list[ZkOp] = [
        Create("/isr_change_notification/isr_change_", b"not json", sequence=True),
        Create("/log_dir_event_notification/log_dir_event_", b'{"version":1,"broker":99,"event":1}', sequence=True),
        Create("/admin/delete_topics/there-is-no-such-topic", None),
        Create("/admin/preferred_replica_election", b"{"),
        Create("/admin/reassign_partitions", json.dumps({"version": 1, "partitions": WRONG_ENTRIES}).encode()),
        SetData("/brokers/topics", None),
        Create("/config/changes/config_change_", b"{}", sequence=True),
        Delete("/controller"),
    ]
    written = []
    for op in turn.chance.sample(ops, turn.chance.choice((2, 3, 5))):
        written.append(f"{type(op).__name__} {getattr(op, 'path', '')}: {await _write(turn, op)}")
    return ", ".join(written)


async def _reassign(turn: Turn, moves: Mapping[tuple[str, int], list[int] | None]) -> str:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), replicas in moves.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "replicas": replicas})
    rows = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return await _ask(turn, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 5_000, "topics": rows})


def _moves(moves: Mapping[tuple[str, int], list[int]]) -> str:
    return ", ".join(f"{topic}-{partition} to {replicas}" for (topic, partition), replicas in moves.items())


async def alter_configs(
    turn: Turn, kind: int, entity: str, values: Mapping[str, str], operation: int, *, to: int | None = None
) -> str:
    """Settings of a topic or broker (`kind` 2, 4), set (`operation` 0) or deleted (1); `to`: not to the controller."""
    configs = [{"name": name, "config_operation": operation, "value": value} for name, value in values.items()]
    rows = [{"resource_type": kind, "resource_name": entity, "configs": configs}]
    body = {"resources": rows, "validate_only": False}
    turn.cluster.rates_of_others += kind == 4
    if to is not None:
        return await turn.cluster.ask_one(to, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)
    return await _ask(turn, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)


async def _ask(turn: Turn, api_key: ApiKey, version: int, body: Mapping[str, Any]) -> str:
    return await turn.cluster.ask_once(api_key, version, body)


async def _write(turn: Turn, op: ZkOp) -> str:
    return await turn.cluster.write_znode(op)


OPERATIONS: Final[dict[str, Callable[[Turn], Awaitable[str]]]] = {
    each.__name__: each
    for each in (
        *(create_topic, delete_topic, recreate_topic, grow_topic, reassign, reassign_many, cancel_reassignment),
        *(reassign_by_znode, elect, elect_by_znode, alter_topic_config, alter_broker_config, move_log_dir),
        *(delete_records, shut_down, roll, duel, bounce_unseen, act_and_fail_over),
        *(act_and_stall, move_and_lose_the_target, foreign_znode),
    )
}
