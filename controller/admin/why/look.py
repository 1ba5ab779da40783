"""Gathers the facts: asks brokers, ZooKeeper, or both, and takes what a local cluster's folder adds.

Brokers that do not answer in time are facts, too. Nothing here changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused, ToolFailure
from controller.admin.cluster.log_dirs import LogDir, describe_log_dirs
from controller.admin.cluster.queries import (
    ConfigResourceType,
    PartitionInfo,
    TopicInfo,
    describe_configs,
    describe_topics,
    list_reassignments,
)
from controller.admin.reassignment.throttles import (
    FOLLOWER_REPLICAS,
    FOLLOWER_THROTTLE,
    LEADER_REPLICAS,
    LEADER_THROTTLE,
)
from controller.admin.why.facts import BrokerFacts, Deletion, LogOn, PartitionFacts, TopicFacts
from controller.admin.why.from_zookeeper import ZkCluster, ZkTopic
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition

#: Between the two looks at log sizes, and how long a broker may take for one.
SAMPLE_S: Final = 1.0
_BROKER_TIMEOUT_S: Final = 5.0
_DELETE: Final = "delete.topic.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Locally:
    """What the data folder of a `kwob up` cluster adds. `running` is whether a broker's process runs."""

    running: Mapping[BrokerId, bool] = field(default_factory=dict)
    faults: Mapping[BrokerId, tuple[str, ...]] = field(default_factory=dict)
    log_lines: Mapping[TopicPartition, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """What brokers said of a topic. `dirs` lacks brokers that did not answer; `earlier` is the look before."""

    topic: TopicInfo
    live: frozenset[BrokerId]
    controller: BrokerId | None
    moving: Mapping[TopicPartition, ReplicaAssignment]
    configs: Mapping[str, str]
    broker_configs: Mapping[BrokerId, Mapping[str, str]]
    dirs: Mapping[BrokerId, list[LogDir]]
    earlier: Mapping[BrokerId, list[LogDir]]
    sampled_s: float


async def ask_brokers(admin: AdminClient, topic: str, *, sample_s: float = SAMPLE_S) -> BrokerView | None:
    """What brokers say of a topic; None when they know of none. Raises ClusterUnreachable, Refused."""
    topic_now = (await describe_topics(admin, [topic]))[topic]
    if not isinstance(topic_now, TopicInfo):
        return None
    live = frozenset(await admin.brokers())
    asked = {TopicPartition(topic, p.partition) for p in topic_now.partitions}
    holders = {b for p in topic_now.partitions for b in p.replicas} & live
    try:
        moving = await list_reassignments(admin, asked)
    except (Refused, ClusterUnreachable):
        moving = {}
    loop = asyncio.get_running_loop()
    earlier, began = await _dirs(admin, holders, asked), loop.time()
    if any(set(p.replicas) - set(p.isr) for p in topic_now.partitions):
        await asyncio.sleep(sample_s)
    later, ended = await _dirs(admin, holders, asked), loop.time()
    configs = await describe_configs(admin, ConfigResourceType.TOPIC, [topic])
    return BrokerView(
        topic=topic_now,
        live=live,
        controller=await _controller(admin),
        moving=moving,
        configs={e.name: e.value or "" for e in configs.get(topic, [])},
        broker_configs=await _broker_configs(admin, holders),
        dirs=later,
        earlier=earlier,
        sampled_s=ended - began,
    )


async def _controller(admin: AdminClient) -> BrokerId | None:
    answer = await admin.call_any(ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
    return BrokerId(answer.controller_id) if answer.controller_id >= 0 else None


async def _dirs(
    admin: AdminClient, brokers: Collection[BrokerId], partitions: Collection[TopicPartition]
) -> dict[BrokerId, list[LogDir]]:
    async def one(broker: BrokerId) -> list[LogDir] | None:
        answers: list[LogDir] | None = await _within(describe_log_dirs(admin, [broker], partitions), broker)
        return answers

    ordered = sorted(brokers)
    answers = await asyncio.gather(*map(one, ordered))
    return {broker: dirs for broker, dirs in zip(ordered, answers, strict=True) if dirs is not None}


async def _broker_configs(admin: AdminClient, brokers: Collection[BrokerId]) -> dict[BrokerId, dict[str, str]]:
    async def one(broker: BrokerId) -> dict[str, str]:
        entries = await _within(describe_configs(admin, ConfigResourceType.BROKER, [str(broker)]), str(broker))
        return {e.name: e.value for e in entries or [] if e.value is not None}

    ordered = sorted(brokers)
    return dict(zip(ordered, await asyncio.gather(*map(one, ordered)), strict=True))


async def _within(asking: Any, key: Any) -> Any:
    """The answer for this key; None when it does not come in time."""
    try:
        async with asyncio.timeout(_BROKER_TIMEOUT_S):
            return (await asking).get(key)
    except (TimeoutError, Refused, ClusterUnreachable):
        return None


# -- from what was said to facts ---------------------------------------------------------------------------------------


def facts(
    name: str, brokers: BrokerView | None, cluster: ZkCluster | None, topic: ZkTopic | None, locally: Locally
) -> TopicFacts:
    """One set of facts out of both; ZooKeeper's word counts where both have one, for brokers only repeat it.

    Raises ToolFailure when neither knows of the topic.
    """
    if brokers is None and topic is None:
        raise ToolFailure(f"There is no topic {name}. (kwob topics --list shows those that there are.)")
    configs = dict(brokers.configs if brokers else {}) | dict(topic.configs if topic else {})
    by_metadata = {p.partition for p in brokers.topic.partitions} if brokers else set()
    numbers = sorted(by_metadata | set(topic.assignment if topic else ()))
    partitions = tuple(_partition(name, n, brokers, topic, configs, locally) for n in numbers)
    concerned = {b for p in partitions for b in (*p.replicas, *p.isr)}
    return TopicFacts(
        topic=name,
        partitions=partitions,
        brokers={b: _broker(b, brokers, cluster, locally) for b in sorted(concerned)},
        controller=cluster.controller if cluster else brokers.controller if brokers else None,
        min_insync_replicas=_number(configs.get("min.insync.replicas")) or 1,
        unclean_elections=configs.get("unclean.leader.election.enable") == "true",
        deletion=Deletion.MARKED if topic is not None and topic.is_deleting else Deletion.NOT_ASKED,
        delete_enabled=_delete_enabled(brokers),
        asked_zookeeper=cluster is not None,
        asked_brokers=brokers is not None,
        sampled_s=brokers.sampled_s if brokers else 0.0,
    )


def _delete_enabled(brokers: BrokerView | None) -> bool | None:
    """`delete.topic.enable`, as far as brokers tell it; False when one says so."""
    values = {c[_DELETE] for c in (brokers.broker_configs.values() if brokers else ()) if _DELETE in c}
    return None if not values else "false" not in values


def _partition(
    name: str,
    number: int,
    brokers: BrokerView | None,
    topic: ZkTopic | None,
    configs: Mapping[str, str],
    locally: Locally,
) -> PartitionFacts:
    partition = TopicPartition(name, number)
    by_metadata = next((p for p in brokers.topic.partitions if p.partition == number), None) if brokers else None
    assignment = _assignment(partition, by_metadata, brokers, topic)
    state = topic.states.get(number) if topic else None
    facts = PartitionFacts(
        partition=partition,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding_replicas,
        removing_replicas=assignment.removing_replicas,
        leader=by_metadata.leader if by_metadata else None,
        isr=by_metadata.isr if by_metadata else (),
        state_known=by_metadata is not None and (by_metadata.leader is not None or bool(by_metadata.isr)),
        logs=_logs(partition, brokers) if brokers else {},
        leader_throttled=_listed(configs.get(LEADER_REPLICAS, ""), number, assignment.replicas),
        follower_throttled=_listed(configs.get(FOLLOWER_REPLICAS, ""), number, assignment.replicas),
        asked_target=topic.asked_targets.get(partition) if topic else None,
        log_lines=locally.log_lines.get(partition, ()),
    )
    if topic is None:
        return facts
    if state is None:
        return replace(facts, leader=None, isr=(), state_known=False)
    return replace(facts, leader=state.leader, isr=state.isr, state_known=True)


def _assignment(
    partition: TopicPartition, by_metadata: PartitionInfo | None, brokers: BrokerView | None, topic: ZkTopic | None
) -> ReplicaAssignment:
    if topic is not None and partition.partition in topic.assignment:
        return topic.assignment[partition.partition]
    if brokers is not None and partition in brokers.moving:
        return brokers.moving[partition]
    return ReplicaAssignment(replicas=by_metadata.replicas if by_metadata else ())


def _broker(broker: BrokerId, brokers: BrokerView | None, cluster: ZkCluster | None, locally: Locally) -> BrokerFacts:
    alive = broker in (cluster.registered if cluster else brokers.live if brokers else ())
    dirs = brokers.dirs.get(broker) if brokers else None
    rates = dict(cluster.broker_configs.get(broker, {}) if cluster else {})
    rates |= dict(brokers.broker_configs.get(broker, {}) if brokers else {})
    return BrokerFacts(
        broker_id=broker,
        is_alive=alive,
        answers=None if brokers is None or not alive else dirs is not None,
        failed_dirs=tuple(d.path for d in dirs or () if d.error is not None),
        leader_rate=_number(rates.get(LEADER_THROTTLE)),
        follower_rate=_number(rates.get(FOLLOWER_THROTTLE)),
        local=locally.running.get(broker),
        faults=locally.faults.get(broker, ()),
    )


def _logs(partition: TopicPartition, brokers: BrokerView) -> dict[BrokerId, LogOn]:
    before = {b: log.size_bytes for b, _, log in _all_logs(brokers.earlier, partition)}
    return {
        broker: LogOn(path=path, size_bytes=log.size_bytes, offset_lag=log.offset_lag, size_before=before.get(broker))
        for broker, path, log in _all_logs(brokers.dirs, partition)
    }


def _all_logs(dirs: Mapping[BrokerId, list[LogDir]], partition: TopicPartition) -> Iterable[Any]:
    for broker, listed in dirs.items():
        for log_dir in listed:
            for log in log_dir.replicas:
                if log.partition == partition and not log.is_future:
                    yield broker, log_dir.path, log


def _listed(text: str, partition: int, replicas: Iterable[BrokerId]) -> frozenset[BrokerId]:
    """The brokers that a `*.replication.throttled.replicas` lists for a partition; all its replicas for `*`."""
    if text.strip() == "*":
        return frozenset(replicas)
    pairs = (element.strip().split(":") for element in text.split(","))
    return frozenset(
        BrokerId(int(pair[1]))
        for pair in pairs
        if len(pair) == 2 and pair[0].isdigit() and pair[1].isdigit() and int(pair[0]) == partition
    )


def _number(text: str | None) -> int | None:
    """A rate or count; None for none, and for a rate that limits nothing."""
    if text is None or not text.isdigit() or int(text) >= 2**63 - 1:
        return None
    return int(text)
