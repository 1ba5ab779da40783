"""What brokers and controllers of a KRaft cluster say that those of ZooKeeper mode do not: 3.3 to 4.x. Pure.

A broker tells the whole state of a partition when it skips a change that its leadership outlasts; the quorum's
controllers tell of new partitions and of moves, each of them, and again whenever one of them reads the log from the
beginning. Source: docs/replay-kraft.md; `ReplicaManager.applyDelta`, `ReplicationControlManager`,
`DynamicConfigPublisher`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from broker_sim.replay.logs.facts import What
from broker_sim.replay.logs.said import TP, Match, Said, Text, ids, partition_in
from broker_sim.replay.logs.texts_of_controllers import CUT
from broker_sim.replay.logs.texts_of_processes import override_of

#: `value` of an assignment with which a partition begins; `key` is the topic's id.
CREATED: Final = "created"
#: `value` of an assignment that the quorum's controllers tell, each of them, and again after a restart.
REPLAYED: Final = "replayed"

_LISTS: Final = re.compile(r"\b(isr|replicas|addingReplicas|removingReplicas)=\[([\d, ]*)\]")
_NUMBERS: Final = re.compile(r"\b(leader|leaderEpoch|partitionEpoch)=(-?\d+)")


def _state(m: Match) -> Iterator[Said]:
    """`LeaderAndIsrPartitionState(…)` or `PartitionRegistration(…)`: fields by name, in whatever order."""
    lists = {name: ids(members) for name, members in _LISTS.findall(m["state"])}
    numbers = {name: int(value) for name, value in _NUMBERS.findall(m["state"])}
    if {"isr", "replicas"} - lists.keys() or {"leader", "leaderEpoch", "partitionEpoch"} - numbers.keys():
        return
    yield {
        **partition_in(m),
        "what": What.ELECT,
        "epoch": numbers["leaderEpoch"],
        "replica": numbers["leader"],
        "isr": lists["isr"],
        "replicas": lists["replicas"],
        "adding": lists.get("addingReplicas", []),
        "removing": lists.get("removingReplicas", []),
        "zk_version": numbers["partitionEpoch"],
        "key": CUT,
    }


def _created(m: Match) -> Iterator[Said]:
    for state in _state(m):
        moves = {name: state[name] for name in ("replicas", "adding", "removing")}
        yield {**partition_in(m), "what": What.ASSIGN, **moves, "key": m["id"], "value": CREATED}
        yield {**state, "key": m["id"]}


def _moved(m: Match) -> Iterator[Said]:
    lists = {name: ids(members) for name, members in _LISTS.findall(m["change"])}
    if "replicas" in lists:
        yield {
            "topic": m["topic"],
            "partition": int(m["partition"]),
            "what": What.ASSIGN,
            "replicas": lists["replicas"],
            "adding": lists.get("addingReplicas", []),
            "removing": lists.get("removingReplicas", []),
            "key": m["change"],
            "value": REPLAYED,
        }


def _rejected(m: Match) -> Iterable[Said]:
    """What the leader asked for is not what became of the partition."""
    return ({**partition_in(m), "what": What.REFUSED, "broker": int(m["broker"])},)


def _gone(m: Match) -> Iterable[Said]:
    return ({"what": What.BROKER_DOWN, "replica": int(m["broker"])},)


def _back(m: Match) -> Iterable[Said]:
    return ({"what": What.BROKER_UP, "replica": int(m["broker"])},)


#: Spoken by `[Broker id=B]`, beside `texts_of_leaders.OF_BROKER`.
OF_BROKER: Final = (
    Text(
        "Skipped ",
        re.compile(
            rf"Skipped the become-(?:leader|follower) state change for {TP} with topic id \S+ and (?P<state>.*)$"
        ),
        _state,
    ),
)
#: Spoken by `[QuorumController id=C]`, in 3.3 and 3.4 `[Controller C]`.
OF_QUORUM: Final = (
    Text(
        "Replayed PartitionRecord ",
        re.compile(rf"Replayed PartitionRecord for new partition {TP} with topic ID (?P<id>\S+) and (?P<state>.*)$"),
        _created,
    ),
    Text(
        "Created partition ",  # up to 3.5
        re.compile(rf"Created partition {TP} with topic ID (?P<id>\S+) and (?P<state>.*)$"),
        _created,
    ),
    Text(
        "Replayed partition assignment change ",
        re.compile(
            r"Replayed partition assignment change PartitionChangeRecord\("
            r"(?P<change>partitionId=(?P<partition>\d+).*)\) for topic (?P<topic>[\w.-]+)$"
        ),
        _moved,
    ),
    Text(
        "Rejecting AlterPartition ",
        re.compile(rf"Rejecting AlterPartition request from node (?P<broker>\d+) for {TP} because "),
        _rejected,
    ),
    Text("Fencing broker ", re.compile(r"Fencing broker (?P<broker>\d+) (?:at epoch \d+ )?because "), _gone),
    Text(
        "Unfenced broker ",
        re.compile(
            r"Unfenced broker (?P<broker>\d+) has requested and been granted (?:an immediate shutdown|fencing)\.?$"
        ),
        _gone,
    ),
    Text(
        "The request from broker ",
        re.compile(r"The request from broker (?P<broker>\d+) to unfence has been granted"),
        _back,
    ),
    Text(
        "The request from broker ",
        re.compile(r"The request from broker (?P<broker>\d+) to shut down has been granted"),
        _gone,
    ),
)


def _topic_config(m: Match) -> Iterator[Said]:
    yield from override_of({"topic": m["topic"]}, m["config"])


#: Spoken by `[DynamicConfigPublisher broker id=B]`, in 3.3 `[BrokerMetadataPublisher id=B]`: all overrides left.
OF_CONFIGS: Final = (
    Text(
        "Updating topic ",
        re.compile(r"Updating topic (?P<topic>[\w.-]+) with new configuration : ?(?P<config>.*)$"),
        _topic_config,
    ),
)
