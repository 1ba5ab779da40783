"""Gauges and counters against a recount from scratch, and what programs complained of.

Source: Kafka's metrics; spec controller.md §4.4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from controller.sim.cluster import Cluster
from controller.sim.history import History
from controller.sim.oracles.tasks import FAULTS
from controller.wire import log_events as ev
from controller.wire.types import TopicPartition
from controller.wire.znodes import TopicPartitionStateZNode, ZnodeError

#: Errors that no healthy world logs: an event that ended in an exception, a transition that the tables do not have.
NEVER: Final = frozenset({ev.CONTROLLER_FAULTED, ev.TRANSITION_REFUSED})
#: A fault of the code, where only its text is logged.
_FAULT: Final = re.compile(r"\b(Key|Index|Type|Attribute|Assertion|Value|ZeroDivision|Name|UnboundLocal)Error\(")


def gauges_equal_a_recount(cluster: Cluster, _: History) -> Iterator[str]:
    """Each counter that is kept step by step equals a count from scratch, at any time."""
    for number, controller in sorted(cluster.controllers.items()):
        if controller.state.serving:
            kept = controller.state.gauges()
            for name, counted in controller.state.recount().items():
                if kept[name] != counted:
                    yield f"controller {number}: {name} is {kept[name]}, counted {counted}"


def gauges_equal_zookeeper(cluster: Cluster, _: History) -> Iterator[str]:
    """At rest, the gauges of the one in office say what ZooKeeper says; all others are 0."""
    active = cluster.active_controller()
    partitions = cluster.partitions()
    recount = {
        "ActiveControllerCount": 1,
        "OfflinePartitionsCount": 0,
        "GlobalTopicCount": len(cluster.children("/brokers/topics")),
        "GlobalPartitionCount": len(partitions),
        "TopicsToDeleteCount": 0,
        "ReplicasToDeleteCount": 0,
        "TopicsIneligibleToDeleteCount": 0,
        "ReplicasIneligibleToDeleteCount": 0,
        "ActiveBrokerCount": len(cluster.registered()),
        "PreferredReplicaImbalanceCount": sum(
            (cluster.state(*tp) or {}).get("leader") != cluster.assignment(*tp)[0] for tp in partitions
        ),
    }
    for number, controller in sorted(cluster.controllers.items()):
        gauges = controller.state.gauges()
        for name, count in recount.items():
            expected = count if number == active else 0
            if gauges[name] != expected:
                yield f"controller {number}: {name} is {gauges[name]}, should be {expected}"


def believed_is_zookeepers(cluster: Cluster, _: History) -> Iterator[str]:
    """At rest, what the one in office believes of leaders, ISRs and assignments is what ZooKeeper says, in the version
    over which it would write next, and it knows of no partition too many or too few."""
    active = cluster.active_controller()
    controller = cluster.controllers.get(active) if active is not None else None
    if controller is None:
        return
    if other := sorted(set(controller.state.all_partitions()) ^ {TopicPartition(*tp) for tp in cluster.partitions()}):
        yield f"controller {active} knows of some of {other}, which are not there, or not of others"
    for tp in sorted(controller.state.all_partitions()):
        state = cluster.state(tp.topic, tp.partition)
        believed = controller.state.leadership(tp)
        if state is None or believed is None:
            yield f"controller {active} believes {believed} of {tp}, ZooKeeper says {state}"
            continue
        leader = -1 if believed.leader is None else believed.leader
        mine = leader, believed.leader_epoch, list(believed.isr), believed.partition_epoch
        znode = cluster.world.zookeeper.tree.get(TopicPartitionStateZNode.path(tp))
        written = state["leader"], state["leader_epoch"], state["isr"], znode.version if znode is not None else -1
        if mine != written:
            yield f"controller {active} believes {mine} of {tp}, ZooKeeper says {written}"
        if list(controller.state.assignment(tp).replicas) != cluster.assignment(tp.topic, tp.partition):
            yield f"controller {active} believes other replicas of {tp}: {controller.state.assignment(tp)}"


def nobody_faulted(cluster: Cluster, _: History) -> Iterator[str]:
    """No program logged an error that has no excuse. Where ZooKeeper refuses, events may fail, but never by a
    fault of the code.

    The answer to a deletion that a move had asked for may come while the topic is being deleted: the replica is gone by
    then, and is refused to have been deleted, as in Kafka, whose answers do not tell the two apart either (§7.7).
    """
    for at_s, method, event in cluster.events:
        name = event.get("event")
        if event.get("to") == "ReplicaDeletionSuccessful":
            continue
        if any(event.get("exc_info") is error for error in cluster.provoked):
            continue
        is_excused = name == ev.CONTROLLER_FAULTED and cluster.refused and not _is_of_the_code(event)
        if name in NEVER and not is_excused:
            error = event.get("exc_info")
            yield f"{cluster.line(at_s, method, event)}{f': {error!r}' if error else ''}"


def _is_of_the_code(event: Mapping[str, Any]) -> bool:
    """Whether what is logged is an exception that no answer of ZooKeeper's brings about."""
    error = event.get("exc_info")
    is_fault = isinstance(error, FAULTS) and not isinstance(error, ZnodeError)
    return is_fault or _FAULT.search(str(event.get("reason"))) is not None
