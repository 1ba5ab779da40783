"""Gathers the facts: asks brokers, ZooKeeper, or both, and takes what a local cluster's folder adds.

All brokers that hold replicas are asked at once, each for a short while: one that does not answer is a fact, too, and
what it said before counts for nothing. Nothing here changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from controller.admin.cluster.client import AdminClient
from controller.admin.cluster.failures import ClusterUnreachable, Refused, ToolFailure
from controller.admin.cluster.kraft import EligibleLeaders, describe_quorum, eligible_leaders
from controller.admin.cluster.log_dirs import LogDir, log_dirs_of, read_log_dirs
from controller.admin.cluster.queries import (
    ConfigResourceType,
    PartitionInfo,
    TopicInfo,
    config_entries,
    describe_configs,
    describe_topics,
    list_reassignments,
    metadata_of,
    read_topics,
)
from controller.admin.reassignment.throttles import (
    FOLLOWER_REPLICAS,
    FOLLOWER_THROTTLE,
    LEADER_REPLICAS,
    LEADER_THROTTLE,
)
from controller.admin.why.facts import BrokerFacts, Deletion, LogOn, PartitionFacts, TopicFacts
from controller.admin.why.from_zookeeper import ZkCluster, ZkTopic
from controller.admin.why.quorum import Quorum, read_quorum
from controller.wire.protocol import ApiKey
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition
from controller.wire.whole import whole

#: Between the two looks at log sizes, and how long a broker may take for its answers.
SAMPLE_S: Final = 0.7
BROKER_LIMIT_S: Final = 0.9
#: For a second look there must be so much left of the time that all questions have together.
_LOOK_S: Final = 0.2
_DELETE: Final = "delete.topic.enable"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Locally:
    """What the data folder of a `kwob up` cluster adds. `running` is whether a broker's process runs.

    `fault_ids` are of faults in force that concern a broker, `faults` the same in words; `halted_by` has those that
    leave a broker no log directory; `last_sign` says when a broker's log was last written.
    """

    running: Mapping[BrokerId, bool] = field(default_factory=dict)
    faults: Mapping[BrokerId, tuple[str, ...]] = field(default_factory=dict)
    fault_ids: Mapping[BrokerId, tuple[str, ...]] = field(default_factory=dict)
    halted_by: Mapping[BrokerId, tuple[str, ...]] = field(default_factory=dict)
    last_sign: Mapping[BrokerId, str] = field(default_factory=dict)
    log_lines: Mapping[TopicPartition, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAnswer:
    """What one broker said: its own view of the topic, its directories, its configs; or why it said nothing."""

    topic: TopicInfo | None = None
    dirs: list[LogDir] | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    silence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """What brokers said of a topic. `answers` has all that hold replicas; `earlier` is the look before."""

    topic: TopicInfo
    live: frozenset[BrokerId]
    controller: BrokerId | None
    moving: Mapping[TopicPartition, ReplicaAssignment]
    configs: Mapping[str, str]
    answers: Mapping[BrokerId, BrokerAnswer]
    earlier: Mapping[BrokerId, list[LogDir]]
    sampled_s: float
    is_kraft: bool = False
    quorum: Quorum | None = None
    eligible: Mapping[TopicPartition, EligibleLeaders] = field(default_factory=dict)

    @property
    def dirs(self) -> dict[BrokerId, list[LogDir]]:
        """Of those that answered."""
        return {broker: answer.dirs for broker, answer in self.answers.items() if answer.dirs is not None}


async def ask_brokers(admin: AdminClient, topic: str, *, until: float, sample_s: float = SAMPLE_S) -> BrokerView | None:
    """What brokers say of a topic; None when they know of none. Back by `until`, of the running loop's time.

    Raises: ClusterUnreachable, Refused, TimeoutError.
    """
    topic_now = (await describe_topics(admin, [topic]))[topic]
    if not isinstance(topic_now, TopicInfo):
        return None
    live = frozenset(await admin.nodes())
    partitions = {TopicPartition(topic, p.partition) for p in topic_now.partitions}
    holders = sorted({b for p in topic_now.partitions for b in p.replicas} & live)
    is_kraft = await admin.is_kraft()
    loop = asyncio.get_running_loop()
    began = loop.time()
    limit_s = max(_LOOK_S, min(BROKER_LIMIT_S, until - began))
    (moving, configs, quorum, eligible), answers = await asyncio.gather(
        asyncio.gather(
            _or_none(list_reassignments(admin, partitions), limit_s),
            _or_none(describe_configs(admin, ConfigResourceType.TOPIC, [topic]), limit_s),
            _or_none(describe_quorum(admin), limit_s),
            _or_none(eligible_leaders(admin, [topic]), limit_s),
        ),
        asyncio.gather(*(_ask(admin, broker, topic, partitions, limit_s) for broker in holders)),
    )
    first: dict[BrokerId, BrokerAnswer] = dict(zip(holders, answers, strict=True))
    topic_now = _newest([topic_now, *(a.topic for a in first.values() if a.topic is not None)])
    second = first
    lag = any(set(p.replicas) - set(p.isr) for p in topic_now.partitions)
    at = min(max(loop.time(), began + sample_s), until - _LOOK_S)
    if lag and at >= loop.time():
        await asyncio.sleep(at - loop.time())
        again = [broker for broker, answer in first.items() if answer.silence is None]
        left_s = min(BROKER_LIMIT_S, until - at)
        asked = await asyncio.gather(*(_ask(admin, broker, topic, partitions, left_s) for broker in again))
        second = first | dict(zip(again, asked, strict=True))
        topic_now = _newest([topic_now, *(a.topic for a in asked if a.topic is not None)])
    return BrokerView(
        topic=topic_now,
        live=live,
        controller=None if moving is None else admin.controller,
        moving=moving or {},
        configs={e.name: e.value or "" for e in (configs or {}).get(topic, [])},
        answers=second,
        earlier={broker: answer.dirs for broker, answer in first.items() if answer.dirs is not None},
        sampled_s=loop.time() - began,
        is_kraft=is_kraft,
        quorum=read_quorum(quorum),
        eligible=eligible or {},
    )


async def _ask(
    admin: AdminClient, broker: BrokerId, topic: str, partitions: Collection[TopicPartition], limit_s: float
) -> BrokerAnswer:
    resource = {"resource_type": ConfigResourceType.BROKER, "resource_name": str(broker), "configuration_keys": None}
    try:
        async with asyncio.timeout(limit_s):
            metadata = await admin.ask_once(broker, ApiKey.METADATA, metadata_of([topic]))
            dirs = await admin.ask_once(broker, ApiKey.DESCRIBE_LOG_DIRS, log_dirs_of(partitions))
            configs = await admin.ask_once(
                broker, ApiKey.DESCRIBE_CONFIGS, {"resources": [resource], "include_synonyms": False}
            )
    except TimeoutError:
        return BrokerAnswer(silence=f"no answer within {limit_s:.1g} s")
    except ConnectionRefusedError:
        return BrokerAnswer(silence="connection refused")
    except OSError as error:
        return BrokerAnswer(silence=str(error) or type(error).__name__)
    except Refused:
        return BrokerAnswer(dirs=[])
    view = read_topics(metadata, [topic])[topic]
    return BrokerAnswer(
        topic=view if isinstance(view, TopicInfo) else None,
        dirs=_readable(dirs),
        configs=_shown_configs(configs, str(broker)),
    )


def _shown_configs(answer: Any, broker: str) -> dict[str, str]:
    """The configs of a broker; none where it does not let us see them."""
    try:
        return {e.name: e.value for e in config_entries(answer).get(broker, []) if e.value is not None}
    except Refused:
        return {}


def _readable(answer: Any) -> list[LogDir]:
    try:
        return read_log_dirs(answer)
    except Refused:
        return []


async def _or_none(asking: Awaitable[_T], limit_s: float) -> _T | None:
    """The answer; None when it does not come in time, or is a refusal."""
    try:
        async with asyncio.timeout(limit_s):
            return await asking
    except (TimeoutError, Refused, ClusterUnreachable):
        return None


def _newest(views: Collection[TopicInfo]) -> TopicInfo:
    """Of each partition what the highest leader epoch says; at the same epoch the last view, asked for last."""
    partitions: dict[int, PartitionInfo] = {}
    for view in views:
        for p in view.partitions:
            if p.partition not in partitions or p.leader_epoch >= partitions[p.partition].leader_epoch:
                partitions[p.partition] = p
    return replace(next(iter(views)), partitions=tuple(p for _, p in sorted(partitions.items())))


# -- from answers to facts -------------------------------------------------------------------------------------------


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
    numbers = sorted(by_metadata | set((*topic.assignment, *topic.damages) if topic else ()))
    partitions = tuple(_partition(name, n, brokers, topic, configs, locally) for n in numbers)
    concerned = {b for p in partitions for b in (*p.replicas, *p.isr)}
    return TopicFacts(
        topic=name,
        partitions=partitions,
        brokers={b: _broker(b, brokers, cluster, locally) for b in sorted(concerned)},
        controller=cluster.controller if cluster else _controller(brokers),
        min_insync_replicas=_number(configs.get("min.insync.replicas")) or 1,
        unclean_elections=configs.get("unclean.leader.election.enable") == "true",
        deletion=Deletion.MARKED if topic is not None and topic.is_deleting else Deletion.NOT_ASKED,
        delete_enabled=_delete_enabled(brokers),
        asked_zookeeper=cluster is not None,
        asked_brokers=brokers is not None,
        sampled_s=brokers.sampled_s if brokers else 0.0,
        is_kraft=brokers is not None and brokers.is_kraft,
        quorum=brokers.quorum if brokers else None,
        damage=topic.damage if topic else None,
    )


def _controller(brokers: BrokerView | None) -> BrokerId | None:
    """Brokers of KRaft name any broker as the controller; who it is, the quorum tells."""
    if brokers is None:
        return None
    if brokers.quorum is None:
        return brokers.controller
    return None if brokers.quorum.leader is None else BrokerId(brokers.quorum.leader)


def _delete_enabled(brokers: BrokerView | None) -> bool | None:
    """`delete.topic.enable`, as far as brokers tell it; False when one says so."""
    values = {a.configs[_DELETE] for a in (brokers.answers.values() if brokers else ()) if _DELETE in a.configs}
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
        elr=_elr(partition, brokers),
        logs=_logs(partition, brokers) if brokers else {},
        leader_throttled=_listed(configs.get(LEADER_REPLICAS, ""), number, assignment.replicas),
        follower_throttled=_listed(configs.get(FOLLOWER_REPLICAS, ""), number, assignment.replicas),
        asked_target=topic.asked_targets.get(partition) if topic else None,
        log_lines=locally.log_lines.get(partition, ()),
    )
    if topic is None:
        return facts
    if (damage := topic.damages.get(number)) is not None:
        return replace(facts, damage=damage)
    if state is None:
        return replace(facts, leader=None, isr=(), state_known=False)
    return replace(facts, leader=state.leader, isr=state.isr, state_known=True)


def _elr(partition: TopicPartition, brokers: BrokerView | None) -> tuple[BrokerId, ...]:
    eligible = brokers.eligible.get(partition) if brokers else None
    return (eligible.elr if eligible else None) or ()


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
    answer = (brokers.answers.get(broker) if brokers else None) or BrokerAnswer()
    rates = dict(cluster.broker_configs.get(broker, {}) if cluster else {}) | dict(answer.configs)
    return BrokerFacts(
        broker_id=broker,
        is_alive=alive,
        answers=None if brokers is None or broker not in brokers.answers else answer.silence is None,
        silence=answer.silence,
        failed_dirs=tuple(d.path for d in answer.dirs or () if d.error is not None),
        leader_rate=_number(rates.get(LEADER_THROTTLE)),
        follower_rate=_number(rates.get(FOLLOWER_THROTTLE)),
        local=locally.running.get(broker),
        faults=locally.faults.get(broker, ()),
        fault_ids=locally.fault_ids.get(broker, ()),
        halted_by=locally.halted_by.get(broker, ()),
        last_sign=locally.last_sign.get(broker),
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
        BrokerId(broker)
        for pair in pairs
        if len(pair) == 2 and whole(pair[0]) == partition and (broker := whole(pair[1])) is not None
    )


def _number(text: str | None) -> int | None:
    """A rate or count; None for none, and for a rate that limits nothing."""
    number = whole(text)
    return None if number is None or number >= 2**63 - 1 else number
