"""Throttles that a tool sets, as ZooKeeper has them: in time, on everybody concerned, gone when they are said to be.

A second, plain version of what is to be listed, taken from what the topic's znode says of a move. Source: KIP-73; spec
admin.md §3.6; Kafka 3.9 `ReassignPartitionsCommand.calculateLeaderThrottles` and its siblings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from controller.admin.reassignment.forgotten_throttles import forgotten
from controller.sim.cluster import Cluster
from controller.sim.history import parsed
from controller.sim.shape import TOOLED
from controller.wire.types import TopicPartition
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession

#: A second after a topic has changed, brokers tell what it has become.
SETTLED_MS: Final = 1_000
_PATHS: Final = {f"/brokers/topics/{topic}": topic for topic in TOOLED}
_CONFIGS: Final = frozenset(f"/config/topics/{topic}" for topic in TOOLED)
LISTS: Final[tuple[str, ...]] = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES: Final[tuple[str, ...]] = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
#: Of moves between log dirs. A tool removes it with the others, and nobody calls it forgotten.
DIR_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"


class Throttles:
    """Follows what is written while a tool runs. Hang `operation` on `on_operation`; what is wrong becomes one of the
    cluster's contradictions."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rate: str | None = None
        #: topic -> the version of its znode that the tool knows
        self._versions: dict[str, int] = {}
        self._moved_before = cluster.moves_of_others
        #: How many writes concerned the topic or rates, and the last of them.
        self.writes = 0
        self.last = ""
        self.judged = 0

    def expect(self, rate: str | None) -> None:
        """From now on the tool moves at this rate; None: without.

        It asks any broker what is there: only where nothing has changed for a while does it know.
        """
        self._rate, self._versions = rate, {}
        world = self._cluster.world
        for path, topic in _PATHS.items():
            znode = world.zookeeper.tree.get(path)
            if znode is not None and world.clock.now_ms() - znode.mtime >= SETTLED_MS and not world.is_disturbed:
                self._versions[topic] = znode.version

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """After each operation."""
        if not result.ok or not isinstance(op, Multi | SetData | Create | Delete):
            return
        for part in op.ops if isinstance(op, Multi) else (op,):
            if not isinstance(part, SetData | Create | Delete):
                continue
            content = b"" if isinstance(part, Delete) else part.data or b""
            is_a_rate = part.path.startswith("/config/brokers/") and b"throttled.rate" in content
            if part.path in _PATHS or part.path in _CONFIGS or is_a_rate:
                self.writes, self.last = self.writes + 1, f"{session.machine}: {part.path}"
            if isinstance(part, SetData) and part.path in _PATHS:
                self._moves(_PATHS[part.path], parsed(part.data) or {})

    def _moves(self, topic: str, content: dict[str, Any]) -> None:
        """Before replicas are added, the lists name every source and every target of what moves, no source as a target,
        and all of them have both rates."""
        cluster = self._cluster
        znode = cluster.world.zookeeper.tree.get(f"/brokers/topics/{topic}")
        is_first = znode is not None and znode.version == self._versions.get(topic, -2) + 1
        if self._rate is None or not is_first or cluster.moves_of_others != self._moved_before:
            return
        sources, targets = set[str](), set[str]()
        brokers = set[int]()
        for number, adding in (content.get("adding_replicas") or {}).items():
            replicas = content["partitions"][number]
            sources |= {f"{number}:{broker}" for broker in replicas if broker not in adding}
            targets |= {f"{number}:{broker}" for broker in adding}
            brokers |= set(replicas)
        if not targets:
            return
        self.judged += 1
        limits = topic_throttles(cluster).get(topic, {})
        leaders, followers = (set(filter(None, limits.get(name, "").split(","))) for name in LISTS)
        if not sources <= leaders or not targets <= followers or sources & followers:
            cluster.contradictions.append(
                f"{topic} moves from {sorted(sources)} to {sorted(targets)}, its throttles are {limits}"
            )
        if not cluster.rates_of_others:
            for broker in sorted(brokers):
                config = _config(cluster, f"/config/brokers/{broker}")
                if {config.get(name) for name in RATES} != {self._rate}:
                    cluster.contradictions.append(f"{topic} moves, and broker {broker} has not the rate {self._rate}")


def topic_throttles(cluster: Cluster) -> dict[str, dict[str, str]]:
    """The lists of those of the tool's topics that have some."""
    configs = {topic: _config(cluster, f"/config/topics/{topic}") for topic in TOOLED}
    lists = {t: {name: value for name, value in config.items() if name in LISTS} for t, config in configs.items()}
    return {topic: limits for topic, limits in lists.items() if limits}


def throttled_topics(cluster: Cluster) -> dict[str, list[str]]:
    """Topic -> the names of its lists. A tool that adds a move sets those of all that move, also of others' topics."""
    configs = {topic: _config(cluster, f"/config/topics/{topic}") for topic in cluster.children("/brokers/topics")}
    return {topic: names for topic, config in configs.items() if (names := [name for name in LISTS if name in config])}


def rates_left(cluster: Cluster) -> dict[int, dict[str, str]]:
    """The rates of registered brokers, those of moves between dirs among them."""
    found = {broker: _config(cluster, f"/config/brokers/{broker}") for broker in sorted(cluster.registered())}
    names = (*RATES, DIR_RATE)
    rates = {b: {name: value for name, value in config.items() if name in names} for b, config in found.items()}
    return {broker: limits for broker, limits in rates.items() if limits}


def forgotten_are_not_needed(cluster: Cluster, wrong: Callable[[str], object]) -> None:
    """A throttle is called forgotten exactly where nothing needs it: rates while nothing at all moves, lists of a topic
    while nothing of it does. Source: spec admin.md §3.6."""
    topics = {topic: _config(cluster, f"/config/topics/{topic}") for topic in cluster.children("/brokers/topics")}
    brokers = {name: _config(cluster, f"/config/brokers/{name}") for name in cluster.children("/config/brokers")}
    moving = {TopicPartition(*tp) for tp in cluster.moving()}
    named = {(each.entity, each.name) for each in forgotten(brokers, topics, moving, "broker-1:9092")}
    busy = {tp.topic for tp in moving}
    needless = {
        (f"topic {t}", name) for t, config in topics.items() for name in LISTS if name in config and t not in busy
    }
    if not moving:
        needless |= {(f"broker {b}", name) for b, config in brokers.items() for name in RATES if name in config}
    if named != needless:
        wrong(f"forgotten throttles are {sorted(needless)}, named are {sorted(named)}; {sorted(moving)} move")


def _config(cluster: Cluster, path: str) -> dict[str, str]:
    return dict((cluster.znode(path) or {}).get("config") or {})
