"""What brokers act by is what their settings in ZooKeeper say, once they were given notice of it.

Source: Kafka 3.9 `ZkConfigManager`; spec broker.md §17, controller.md §1.5.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from controller.sim.cluster import Cluster
from controller.sim.history import parsed
from controller.sim.oracles.brokers import replicas
from controller.sim.oracles.throttles import DIR_RATE, LISTS, RATES
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

CHANGES: Final = "/config/changes"
_TOPICS: Final = "/brokers/topics/"
_ENTITIES: Final = ("/config/topics/", "/config/brokers/")
#: Settings of topics that operations set, and what counts without them: a broker's setting, or a number.
TOPIC_SETTINGS: Final[Mapping[str, str | int]] = {
    "segment.bytes": "log.segment.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "flush.messages": "log.flush.interval.messages",
    "retention.ms": 604_800_000,
    "retention.bytes": -1,
}
_NEVER: Final = (1 << 63) - 1


class Configs:
    """Remembers which settings brokers were given notice of. Hang `operation` on `on_operation`; ask `problems` at
    rest."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: Entities, such as `topics/t`, whose last change there was a notice of that nobody took away.
        self._noticed: set[str] = set()
        self.looked = 0
        self.broken: list[str] = []

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        if not result.ok or not isinstance(op, Multi | SetData | Create | Delete):
            return
        for part in op.ops if isinstance(op, Multi) else (op,):
            if isinstance(part, Create) and part.path.startswith(_TOPICS) and part.path.count("/") == 3:
                self._made(session.machine, part.path.removeprefix(_TOPICS))
            if part.path.startswith(_ENTITIES):
                self._noticed.discard(part.path.removeprefix("/config/"))
            elif isinstance(part, Delete) and part.path == CHANGES:
                self._noticed.clear()
            elif isinstance(part, Create) and part.path.startswith(f"{CHANGES}/"):
                self._noticed.add(str((parsed(part.data) or {}).get("entity_path")))

    def _made(self, machine: str, topic: str) -> None:
        """A topic that a program makes has its settings from its first moment on: brokers host it by what they find
        then. Source: `AdminZkClient.createTopicWithAssignment`."""
        is_ours = machine.startswith(("broker-", "controller-"))
        if is_ours and self._cluster.world.zookeeper.tree.get(f"/config/topics/{topic}") is None:
            self.broken.append(f"{machine} makes topic {topic} before its configs")

    def problems(self) -> Iterator[str]:
        """Brokers that act by other settings."""
        cluster = self._cluster
        yield from self._of_logs()
        for broker_id, tp, replica in replicas(cluster):
            if replica.log is None or f"topics/{tp.topic}" not in self._noticed:
                continue
            self.looked += 1
            config = self._of(f"topics/{tp.topic}")
            for name, default in TOPIC_SETTINGS.items():
                base = default if isinstance(default, int) else int(cluster.settings.get(default, _NEVER))
                expected, mine = int(config.get(name, base)), getattr(replica.log.config, name.replace(".", "_"))
                if mine != expected:
                    yield f"broker {broker_id} has {name}={mine} for {tp}, ZooKeeper says {expected}"
            yield from self._throttled(broker_id, tp, config)
        for broker_id, broker in sorted(cluster.brokers.items()):
            if broker.replicas is None or f"brokers/{broker_id}" not in self._noticed:
                continue
            self.looked += 1
            table, config = broker.replicas.table, self._of(f"brokers/{broker_id}")
            quotas = table.leader_quota, table.follower_quota, table.alter_log_dirs_quota
            for name, quota in zip((*RATES, DIR_RATE), quotas, strict=True):
                rate = int(config[name]) if name in config else None
                if quota.bound != rate:
                    yield f"broker {broker_id} has {name}={quota.bound}, ZooKeeper says {rate}"

    def _throttled(self, broker_id: int, tp: TopicPartition, config: Mapping[str, str]) -> Iterator[str]:
        """Who is throttled is who is listed. Source: `TopicConfigHandler.updateThrottledList`; KIP-73."""
        hosting = self._cluster.brokers[broker_id].replicas
        assert hosting is not None
        for name, quota in zip(LISTS, (hosting.table.leader_quota, hosting.table.follower_quota), strict=True):
            listed = config.get(name, "").split(",")
            is_listed = bool({"*", f"{tp.partition}:{broker_id}"} & set(listed))
            if quota.is_throttled(tp) is not is_listed:
                does = "does not throttle" if is_listed else "throttles"
                yield f"broker {broker_id} {does} {tp}: {name}={listed}"

    def _of_logs(self) -> Iterator[str]:
        """What is set for a broker counts for the logs that it has. Source: `DynamicLogConfig.reconfigure`."""
        for broker_id, tp, replica in replicas(self._cluster):
            hosting = self._cluster.brokers[broker_id].replicas
            if replica.log is not None and hosting is not None:
                expected, mine = hosting.table.config_of(tp.topic), replica.log.config
                if mine != expected:
                    yield f"broker {broker_id} treats its log of {tp} by {mine}, not by {expected}"
                least = {replica.min_insync_replicas, *([replica.led.min_insync_replicas] if replica.led else [])}
                if least != {expected.min_insync_replicas}:
                    yield f"broker {broker_id} needs {least} in sync of {tp}, not {expected.min_insync_replicas}"

    def _of(self, entity: str) -> dict[str, str]:
        znode = self._cluster.world.zookeeper.tree.get(f"/config/{entity}")
        found: dict[str, str] = json.loads(znode.payload or b"{}").get("config", {}) if znode is not None else {}
        return found
