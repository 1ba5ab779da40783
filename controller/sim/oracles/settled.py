"""What must hold of brokers when all is healed and at rest: they have done what they were told, to the last of it.

Elsewhere it is seen that nobody does what was never said; here, that what was said has come to its end.
Source: Kafka 3.9 `ReplicaManager.makeLeaders`, `makeFollowers`, `stopReplicas`, `LogManager.deleteLogs`; spec
broker.md §6, §8, §12.4, §13; controller.md §8.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from broker_sim.log.log_dir import DELETE_SUFFIX
from broker_sim.log.segment import CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX
from broker_sim.replicas.partition import Partition
from controller.sim.cluster import Cluster
from controller.sim.history import TOPIC_PATH, History, parsed
from controller.sim.oracles.brokers import replicas
from controller.sim.oracles.disks import log_dirs
from controller.wire.types import GROUP_METADATA_TOPIC, BrokerId, TopicPartition
from controller.wire.zk_operations import Create, Multi, SetData, ZkOp, ZkResult
from controller.wire.znodes import BrokerIdZNode, TopicPartitionStateZNode
from controller.world.simulated.zk_session import SimulatedSession

#: What files are called that are to be removed soon, or are being made.
PASSING: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


def _assigned(cluster: Cluster) -> Iterator[tuple[int, TopicPartition, Partition, dict[str, Any]]]:
    """(broker, partition, its replica there, the partition's state) of the replicas that are assigned."""
    there = set(cluster.partitions())
    for broker_id, tp, replica in replicas(cluster):
        state = cluster.state(*tp) if tuple(tp) in there else None
        if state is not None and broker_id in cluster.assignment(*tp):
            yield broker_id, tp, replica, state


def partitions_are_led_as_written(cluster: Cluster, _: History) -> Iterator[str]:
    """Who is named leads, in that epoch and with that ISR; the others follow that one, in that epoch. §6.2, §6.3"""
    for broker_id, tp, replica, state in _assigned(cluster):
        name, led = f"broker {broker_id} {tp}", replica.led
        mine, written = (replica.leader, replica.leader_epoch), (state["leader"], state["leader_epoch"])
        if mine != written:
            yield f"{name}: leader and epoch are {mine}, ZooKeeper says {written}"
        elif (led is not None) is not (state["leader"] == broker_id):
            yield f"{name}: {'leads' if led is not None else 'does not lead'}, the leader is {state['leader']}"
        elif led is not None:
            znode = cluster.world.zookeeper.tree.get(TopicPartitionStateZNode.path(tp))
            version = znode.version if znode is not None else -1
            if (led.partition_epoch, list(led.isr)) != (version, state["isr"]):
                yield f"{name}: leads with {led.isr} of version {led.partition_epoch}, {version} is {state['isr']}"


def watermarks_reach_the_end(cluster: Cluster, _: History) -> Iterator[str]:
    """Where nobody writes and all are in sync, all is committed, and everybody has heard so, unless fewer are in sync
    than `min.insync.replicas` says. §12.4"""
    hosted = {(broker_id, tp): replica for broker_id, tp, replica, _ in _assigned(cluster)}
    for (broker_id, tp), leader in hosted.items():
        if leader.led is None or leader.log is None or leader.led.is_under_min_isr:
            continue
        end = leader.log.leo
        if leader.hw != end:
            yield f"{tp} ends at {end} on its leader {broker_id}, whose watermark stays at {leader.hw}"
        for member in leader.led.isr:
            follower = hosted.get((member, tp))
            if follower is None or follower.log is None or member == broker_id:
                continue
            if (follower.log.leo, follower.hw) != (end, leader.hw):
                yield (
                    f"{tp} ends at {end} on its leader {broker_id}, its watermark is {leader.hw}; on {member}, in "
                    f"sync, they are {follower.log.leo} and {follower.hw}"
                )


def fetchers_follow_the_leaders(cluster: Cluster, _: History) -> Iterator[str]:
    """What a broker follows, one of its fetchers asks the leader for, and nobody else for anything. §13"""
    hosted: dict[int, dict[TopicPartition, BrokerId | None]] = {}
    for broker_id, tp, replica in replicas(cluster):
        of_broker = hosted.setdefault(broker_id, {})
        if replica.led is None and replica.log is not None:
            of_broker[tp] = replica.leader
    for broker_id, followed in hosted.items():
        hosting = cluster.brokers[broker_id].replicas
        assert hosting is not None
        asked: dict[TopicPartition, list[BrokerId]] = {}
        for (leader, _number), fetcher in hosting.fetchers.fetchers.items():
            for tp in fetcher._states:
                asked.setdefault(tp, []).append(leader)
        for tp in sorted(followed.keys() | asked.keys()):
            leader_id = followed.get(tp)
            if asked.get(tp, []) != ([leader_id] if leader_id is not None else []):
                yield f"broker {broker_id} follows {leader_id} in {tp}, and asks {asked.get(tp, [])}"


def nothing_is_left_to_be_removed(cluster: Cluster, _: History) -> Iterator[str]:
    """What was renamed to be removed is removed, also by who was killed meanwhile. `LogManager.deleteLogs`; §10.4"""
    for broker_id, log_dir in log_dirs(cluster):
        for folder in sorted(path for path in log_dir.path.iterdir() if path.is_dir()):
            if folder.name.endswith(DELETE_SUFFIX):
                yield f"broker {broker_id} has {folder.name} in {log_dir.path.name}, which was deleted"
        for log in log_dir.all_logs():
            if left := sorted(name for name in _names(log.folder) if name.endswith(PASSING)):
                yield f"broker {broker_id} has {left} in {log.folder.name}"


def what_was_begun_is_over(cluster: Cluster, _: History) -> Iterator[str]:
    """Moves between log dirs that nothing holds back have ended, and nobody waits for records to be deleted, nor, since
    clients have stopped, for a high watermark. §11.2, §12.6; `DelayedDeleteRecords`."""
    for broker_id, tp, replica in replicas(cluster):
        hosting = cluster.brokers[broker_id].replicas
        is_held = hosting is not None and hosting.table.alter_log_dirs_quota.bound is not None
        if replica.future_log is not None and not is_held:
            yield f"broker {broker_id} still moves {tp} to {replica.future_log.log_dir.name}"
        if waiting := len(replica.higher_watermark):
            yield f"broker {broker_id} {tp}: {waiting} requests wait for a higher watermark"
        if waiting := len(replica.log_starts_changed):
            yield f"broker {broker_id} {tp}: {waiting} requests wait for records to be deleted"


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def brokers_know_the_cluster(cluster: Cluster, _: History) -> Iterator[str]:
    """Each broker knows who is in office, each live broker's address and rack, and each state in its version. §8"""
    tree, active = cluster.world.zookeeper.tree, cluster.active_controller()
    there = {}
    for number in sorted(cluster.registered()):
        if (znode := tree.get(BrokerIdZNode.path(number))) is not None:
            there[number] = BrokerIdZNode.decode(BrokerId(number), znode.payload)
    for broker_id, broker in sorted(cluster.brokers.items()):
        metadata = broker.context.metadata
        if metadata.controller_id != active:
            yield f"broker {broker_id} takes {metadata.controller_id} for the controller, which is {active}"
        for number, registered in there.items():
            mine = metadata.brokers.get(BrokerId(number))
            if mine is None or (mine.endpoints, mine.rack) != (registered.endpoints, registered.rack):
                yield f"broker {broker_id} takes {mine} for broker {number}, which is {registered}"
        for tp in map(TopicPartition._make, cluster.partitions()):
            state, entry = tree.get(TopicPartitionStateZNode.path(tp)), metadata.partition(tp)
            if state is not None and entry is not None and entry.state.partition_epoch != state.version:
                version = entry.state.partition_epoch
                yield f"broker {broker_id} knows version {version} of the state of {tp}, it is {state.version}"


def coordinators_are_who_leads(cluster: Cluster, _: History) -> Iterator[str]:
    """Who leads a partition of the groups' topic has its groups, all of them loaded, and nobody else has. Source:
    `GroupMetadataManager.loadGroupsForPartition`; clients.md §7.2."""
    led: dict[int, set[int]] = {}
    for broker_id, tp, replica in replicas(cluster):
        of_broker = led.setdefault(broker_id, set())
        if tp.topic == GROUP_METADATA_TOPIC and replica.led is not None:
            of_broker.add(tp.partition)
    for broker_id, partitions in led.items():
        registry = cluster.brokers[broker_id].context.groups.registry
        if registry._owned != partitions or registry.loading:
            owned, loading = sorted(registry._owned), sorted(registry.loading)
            yield f"broker {broker_id} leads {sorted(partitions)}, coordinates {owned}, loads {loading}"


#: All that remember nothing.
SETTLED: Final = (
    *(partitions_are_led_as_written, watermarks_reach_the_end, fetchers_follow_the_leaders),
    *(nothing_is_left_to_be_removed, what_was_begun_is_over, brokers_know_the_cluster, coordinators_are_who_leads),
)


class LeftOver:
    """Replicas that a move has taken away are gone, where neither the office nor the broker's life has changed since.
    Hang `operation` on `on_operation`, and ask `problems` at rest.

    Else a replica stays where it is, as in Kafka, until its broker starts again: nobody tells it. So it may where a log
    dir has failed. Source: `KafkaController.onPartitionReassignment`, B8; controller.md §8.5.
    """

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        #: topic -> (czxid of its znode, its replicas) as written last
        self._topics: dict[str, tuple[int, Mapping[str, list[int]]]] = {}
        #: (broker, partition) of replicas that were taken away -> (the topic's czxid, the office, the broker's life)
        self._taken: dict[tuple[int, TopicPartition], tuple[int, object]] = {}
        #: replicas that were looked for
        self.looked = 0

    def operation(self, _session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        if not result.ok or not isinstance(op, Multi | SetData | Create):
            return
        for part in op.ops if isinstance(op, Multi) else (op,):
            if isinstance(part, SetData | Create) and (match := TOPIC_PATH.fullmatch(part.path)):
                self._written(match[1], part)

    def _written(self, topic: str, op: SetData | Create) -> None:
        content, znode = parsed(op.data), self._cluster.world.zookeeper.tree.get(op.path)
        if content is None or znode is None:
            return
        before, now = self._topics.get(topic), content["partitions"]
        self._topics[topic] = znode.czxid, now
        if before is None or before[0] != znode.czxid:
            return
        for number, ids in before[1].items():
            for broker in set(ids) - set(now.get(number, ids)):
                self._taken[broker, TopicPartition(topic, int(number))] = znode.czxid, self._circumstances(broker)

    def _circumstances(self, broker: int) -> object:
        """What must be the same still, for somebody to have told this broker."""
        registered = self._cluster.world.zookeeper.tree.get(BrokerIdZNode.path(broker))
        life = self._cluster.brokers.get(broker), registered.czxid if registered is not None else -1
        return self._history.controller_epoch, life

    def problems(self, cluster: Cluster, _: History) -> Iterator[str]:
        """Who still has what was taken away."""
        there = set(cluster.partitions())
        hosted = {(broker_id, tp) for broker_id, tp, _ in replicas(cluster)}
        for (broker, tp), (czxid, since) in sorted(self._taken.items(), key=lambda each: each[0]):
            topic = self._topics.get(tp.topic)
            is_same = topic is not None and topic[0] == czxid and since == self._circumstances(broker)
            if not is_same or cluster.has_had_a_failed_dir(broker) or tuple(tp) not in there:
                continue
            if broker not in cluster.assignment(*tp):
                self.looked += 1
                if (broker, tp) in hosted:
                    yield f"broker {broker} still has {tp}, of which it is no replica any more"
