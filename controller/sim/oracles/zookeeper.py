"""What must hold in ZooKeeper and in who holds the office.

Source: Kafka's controller; spec controller.md §1, §2, §5, §8, §10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.sim.cluster import Cluster
from controller.sim.history import STATE_PATH, TOPIC_PATH, History, parsed
from controller.wire.zk_operations import Create, Delete, Multi, SetData, ZkOp, ZkResult
from controller.world.simulated.zk_session import SimulatedSession


class Writes:
    """Judges each operation when it is done: who did it, and whether that one might. `broken` collects."""

    def __init__(self, cluster: Cluster, history: History) -> None:
        self._cluster, self._history = cluster, history
        self._topics: dict[str, tuple[int, dict[str, object]]] = {}
        #: topic -> czxid of its last znode that was deleted: its settings are older, those of its successor are not
        self._gone: dict[str, int] = {}
        #: (topic, partition) of moves -> (what its znode says of it, how many states were written before that)
        self._moves: dict[tuple[str, str], tuple[object, int]] = {}
        self.broken: list[str] = []

    def operation(self, session: SimulatedSession, op: ZkOp, result: ZkResult) -> None:
        """Hang it on `on_operation`, behind the history's."""
        if not result.ok or not isinstance(op, Multi | SetData | Create | Delete):
            return
        for part in op.ops if isinstance(op, Multi) else (op,):
            if isinstance(part, SetData | Create | Delete):
                self._office(session.machine, part)
                self._deletion(part)
                self._reassignment(part)

    def _office(self, machine: str, op: SetData | Create | Delete) -> None:
        """Partition states, topics' removal and moves are written by the winner of the present controller epoch.

        Brokers write states (their ISRs) and create topics, other controllers nothing of the kind. Source: §1.3, §2.4.
        """
        if not machine.startswith("controller-") or not self._history.epoch_winners:
            return
        owned = STATE_PATH.fullmatch(op.path) or (
            isinstance(op, Delete) and op.path.startswith(("/brokers/topics/", "/admin/delete_topics/"))
        )
        winner = self._history.epoch_winners.get(self._history.controller_epoch)
        if owned and machine != winner:
            self.broken.append(f"{machine} wrote {op.path} though {winner} won epoch {self._history.controller_epoch}")

    def _deletion(self, op: SetData | Create | Delete) -> None:
        """A topic's znode goes after its partitions', the marker after it and its settings. Source: §10.6, §10.7."""
        if not isinstance(op, Delete):
            return
        tree = self._cluster.world.zookeeper.tree
        if op.path.startswith("/admin/delete_topics/"):
            topic = op.path.rpartition("/")[2]
            is_enabled = self._cluster.settings.get("delete.topic.enable", "true") == "true"
            if tree.get(f"/brokers/topics/{topic}") is not None and is_enabled:
                self.broken.append(f"the marker of {topic} went before its znode")
            config = tree.get(f"/config/topics/{topic}")
            if config is not None and config.czxid < self._gone.get(topic, 0):
                self.broken.append(f"the marker of {topic} went before its settings")
        elif (match := TOPIC_PATH.fullmatch(op.path)) and match[1] in self._history.topics:
            czxid, content = self._history.topics[match[1]]
            if (match[1], czxid) not in self._history.marked:
                self.broken.append(f"the znode of {match[1]} went although nobody asked for its deletion")
            else:
                self._replicas_are_gone(match[1], czxid, content)
            self._gone[match[1]] = czxid

    def _replicas_are_gone(self, topic: str, czxid: int, content: Mapping[str, Any]) -> None:
        """A topic goes when each of its replicas has: nobody's last word is that it cannot delete it, and no broker,
        dead or alive, has a log of it left. Source: §10.6.

        Not so of a replica that was only to be added, which may never have been announced; nor where a log dir has
        ever failed: a broker that started without it does not know of the log, and says yes, as in Kafka
        (`ReplicaManager.stopPartitions`); nor of whom nobody could ask (`_may_be_forgotten`).
        """
        adding = content.get("adding_replicas") or {}
        for partition, replicas in sorted((content.get("partitions") or {}).items()):
            for broker in replicas:
                if self._may_be_forgotten(topic, czxid, broker):
                    continue
                name = self._cluster.machine(broker).name
                folder, log = self._cluster.folder, f"{topic}-{partition}"
                if (topic, int(partition), broker) in self._cluster.undeleted:
                    self.broken.append(f"{topic} went, though broker {broker} could not delete {log}")
                if self._cluster.has_had_a_failed_dir(broker):
                    continue
                found = [path for path in (folder / name / log, *folder.glob(f"{name}-*/{log}")) if path.is_dir()]
                if found and broker not in (adding.get(partition) or ()):
                    self.broken.append(f"{topic} went, and broker {broker} has {log} in {found[0].parent.name}")

    def _may_be_forgotten(self, topic: str, czxid: int, broker: int) -> bool:
        """Where somebody made a topic's znode say nothing, nobody can tell any more who had a replica: the brokers that
        live by then are asked, and each of those is waited for. Who was not there all the time since, and is none that
        the one in office counts, keeps its logs. Source: docs/deviations.md, `deletion._look_everywhere`."""
        lives = self._cluster.emptied.get((topic, czxid))
        if lives is None:
            return False
        registered = self._cluster.world.zookeeper.tree.get(f"/brokers/ids/{broker}")
        if registered is not None and registered.czxid == lives.get(broker):
            return False
        office = self._cluster.controllers.get(self._cluster.active_controller() or 0)
        assigned = office.state.topic_assignment(topic).values() if office is not None else ()
        return all(broker not in each.replicas for each in assigned)

    def _reassignment(self, op: SetData | Create | Delete) -> None:
        """A move ends with the targets in place: the replicas that it added stay only if they are in the ISR with all
        of the ISR within the new replicas; it never leaves a partition without replicas. Source: §8.5."""
        match = TOPIC_PATH.fullmatch(op.path)
        if match is None or isinstance(op, Delete):
            return
        topic, content = match[1], parsed(op.data)
        znode = self._cluster.world.zookeeper.tree.get(op.path)
        if content is None or znode is None:
            return
        before = self._topics.get(topic)
        self._topics[topic] = znode.czxid, content
        self._targets_were_in_sync(topic, znode.czxid, content)
        adding_now = content.get("adding_replicas") or {}
        for number, replicas in content["partitions"].items():
            if not replicas or len(set(replicas)) != len(replicas):
                self.broken.append(f"{topic}-{number} has the replicas {replicas}")
            if before is None or before[0] != znode.czxid:
                continue
            added = (before[1].get("adding_replicas") or {}).get(number) or []  # type: ignore[attr-defined]
            kept = [r for r in added if r in replicas]
            if not kept or adding_now.get(number):
                continue
            state = self._cluster.state(topic, int(number))
            if state is not None and not set(state["isr"]) <= set(replicas):
                self.broken.append(f"the move of {topic}-{number} to {replicas} ended with ISR {state['isr']}")

    def _targets_were_in_sync(self, topic: str, czxid: int, content: Mapping[str, Any]) -> None:
        """A move ends when all its targets are in the ISR, or have been since it was asked for. Source: §8.5, §8.6."""
        for number, replicas in content["partitions"].items():
            key, states = (topic, number), self._history.states[topic, int(number)]
            row = (
                czxid,
                replicas,
                *((content.get(f"{name}_replicas") or {}).get(number) for name in ("adding", "removing")),
            )
            was, since = self._moves.pop(key, (None, 0))
            if row[2] or row[3]:
                self._moves[key] = row, since if row == was else len(states)
            elif isinstance(was, tuple) and was[0] == czxid and set(replicas) == set(was[1]) - set(was[3] or ()):
                seen = [each.isr for each in states[max(0, since - 1) :]]
                if not any(set(replicas) <= set(isr) for isr in seen):
                    self.broken.append(f"the move of {topic}-{number} to {replicas} ended, its ISRs were {seen}")


def one_controller_serves_an_epoch(cluster: Cluster, history: History) -> Iterator[str]:
    """Who serves in a controller epoch is who won it; nobody claims an epoch that was not. Source: §2.1, §2.4."""
    for number, controller in sorted(cluster.controllers.items()):
        state = controller.state
        if not state.serving:
            continue
        winner = history.epoch_winners.get(state.epoch)
        if winner != cluster.machine(number).name:
            yield f"controller {number} serves in epoch {state.epoch}, which {winner} won"


def leaders_come_from_the_isr(cluster: Cluster, history: History) -> Iterator[str]:
    """No leader comes from outside the ISR that it was elected from, unless the topic's setting, or without one the
    brokers', allows it, or somebody asked for it. Source: §6."""
    del cluster
    for text in history.against_consent:
        yield f"an unclean election that nothing allows: {text}"


def who_is_not_in_office_is_silent(cluster: Cluster, _: History) -> Iterator[str]:
    """A controller that has resigned has no channel to a broker. Source: §2.5."""
    for number, controller in sorted(cluster.controllers.items()):
        if number != cluster.active_controller() and controller.channels.gauges():
            yield f"controller {number} is not in office and keeps channels to {sorted(controller.channels.gauges())}"


#: What the one in office must watch, always. Source: §1.2, §3.
CHILD_WATCHES = (
    "/brokers/ids",
    "/brokers/topics",
    "/admin/delete_topics",
    "/isr_change_notification",
    "/log_dir_event_notification",
)
DATA_WATCHES = ("/controller", "/admin/reassign_partitions", "/admin/preferred_replica_election")


def the_office_watches(cluster: Cluster, _: History) -> Iterator[str]:
    """At rest, the session of the one in office watches all that it must hear of."""
    active = cluster.active_controller()
    if active is None or active not in cluster.controllers:
        return
    session = cluster.controllers[active].state.session_id
    watches = cluster.world.zookeeper.watches
    for path in CHILD_WATCHES:
        if session not in watches.child_watchers(path):
            yield f"controller {active} does not watch the children of {path}"
    topics = [f"/brokers/topics/{topic}" for topic in cluster.children("/brokers/topics")]
    ids = [f"/brokers/ids/{number}" for number in cluster.children("/brokers/ids")]
    for path in (*DATA_WATCHES, *topics, *ids):
        if session not in watches.data_watchers(path):
            yield f"controller {active} does not watch {path}"


def admin_work_is_done(cluster: Cluster, history: History) -> Iterator[str]:
    """After healing nothing is left under /admin, no notice waits, no move goes on. Source: §8, §9.2, §10, §11.8.

    A deletion does not wait for a move, and leaves the move's entry until the office changes, as in Kafka (§8.7).
    """
    for path in ("/admin/delete_topics", "/isr_change_notification", "/log_dir_event_notification"):
        if left := cluster.children(path):
            yield f"{path} still has {left}"
    for path in ("/admin/reassign_partitions", "/admin/preferred_replica_election"):
        if cluster.world.zookeeper.tree.get(path) is not None:
            deleted = {topic for topic, _ in history.marked}
            entries = (cluster.znode(path) or {}).get("partitions") or [{}]
            if path.endswith("election") or any(entry.get("topic") not in deleted for entry in entries):
                yield f"{path} is still there"
    for topic in cluster.children("/brokers/topics"):
        content = cluster.znode(f"/brokers/topics/{topic}") or {}
        if content.get("adding_replicas") or content.get("removing_replicas"):
            yield f"{topic} is still being moved: {content}"


def isrs_are_the_replicas(cluster: Cluster, _: History) -> Iterator[str]:
    """After healing each ISR is all replicas and nobody else.

    A move is cancelled by a write of the assignment first: who dies before the ISR is written leaves a member of which
    no successor knows in Kafka (`KafkaController.updateCurrentReassignment`, U1 to U3); here it is dropped
    by whoever takes office or hears of the ISR (docs/deviations.md).
    """
    for topic, partition in cluster.partitions():
        state, replicas = cluster.state(topic, partition), set(cluster.assignment(topic, partition))
        if state is None or not replicas <= set(state["isr"]):
            yield f"{topic}-{partition} has the replicas {sorted(replicas)} and the state {state}"
        elif set(state["isr"]) - replicas:
            yield f"{topic}-{partition} has the ISR {state['isr']}, its replicas are {sorted(replicas)}"


def leaders_are_preferred(cluster: Cluster, _: History) -> Iterator[str]:
    """With the balance on and all healed, no broker lacks more of what it prefers to lead than the percentage.

    Source: §9.4."""
    if cluster.shape is None or not cluster.shape.balance:
        return
    preferring: dict[int, list[str]] = {}
    away: dict[int, list[str]] = {}
    for topic, partition in cluster.partitions():
        state, replicas = cluster.state(topic, partition), cluster.assignment(topic, partition)
        name = f"{topic}-{partition}"
        preferring.setdefault(replicas[0], []).append(name)
        if state is not None and state["leader"] != replicas[0]:
            away.setdefault(replicas[0], []).append(f"{name} is led by {state['leader']}, its replicas are {replicas}")
    for broker, found in sorted(away.items()):
        if 100 * len(found) > cluster.shape.imbalance_percentage * len(preferring[broker]):
            yield "; ".join(found)
