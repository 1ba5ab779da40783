"""What controllers say: state-change.log and controller.log. Pure.

Source: isr-replay.md §8.4; kafka.controller.*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from broker_sim.replay.logs.facts import What
from broker_sim.replay.logs.said import IDS, TP, Match, Said, Text, ids, number, partition_in

#: `key` of a state from which a replica was cut: also written when it was not a member, and nothing changed.
CUT: Final = "cut"
_ANY_SET: Final = r"\w*\(?"


def _created(m: Match) -> Iterable[Said]:
    whole: Said = {"replicas": ids(m["replicas"]), "adding": [], "removing": []}
    return ({**partition_in(m), "what": What.ASSIGN, **whole, "value": "created"},)


_LISTED: Final = re.compile(r"\bisr=\w+\(([\d, ]*)\)")
_MEMBER: Final = re.compile(r"brokerId=(\d+)")


def _elected(m: Match) -> Iterator[Said]:
    listed = _LISTED.search(m["rest"])
    members = ids(listed[1]) if listed else [int(b) for b in _MEMBER.findall(m["rest"])]
    version = re.search(r"(?:partitionEpoch|zkVersion)=(\d+)", m["rest"])
    yield {
        **partition_in(m),
        "what": What.ELECT,
        "epoch": int(m["epoch"]),
        "replica": int(m["leader"]),
        "isr": members,
        "zk_version": int(version[1]) if version else None,
    }


def _cut(m: Match) -> Iterable[Said]:
    return (
        {
            **partition_in(m),
            "what": What.ELECT,
            "epoch": int(m["epoch"]),
            "replica": int(m["leader"]),
            "isr": ids(m["isr"]),
            "zk_version": number(m, "version"),
            "key": CUT,
        },
    )


def _sent(m: Match) -> Iterable[Said]:
    return ({**partition_in(m), "what": What.SENT, "replicas": ids(m["replicas"])},)


def _assigned(m: Match) -> Iterable[Said]:
    return (
        {
            **partition_in(m),
            "what": What.ASSIGN,
            "replicas": ids(m["replicas"]),
            "adding": ids(m["adding"]),
            "removing": ids(m["removing"]),
        },
    )


def _reassigned_before_24(m: Match) -> Iterable[Said]:
    return ({**partition_in(m), "what": What.ASSIGN, "replicas": ids(m["replicas"]), "adding": [], "removing": []},)


def _bumped(m: Match) -> Iterable[Said]:
    return ({**partition_in(m), "what": What.BUMP, "epoch": int(m["epoch"]), "zk_version": number(m, "version")},)


def _came_and_went(m: Match) -> Iterator[Said]:
    bounced = ids(m["bounced"])
    for broker in [*ids(m["deleted"]), *bounced]:
        yield {"what": What.BROKER_DOWN, "replica": broker}
    for broker in [*ids(m["added"]), *bounced]:
        yield {"what": What.BROKER_UP, "replica": broker}


def _active(m: Match) -> Iterable[Said]:
    return ({"what": What.LIVE, "replicas": ids(m["live"])},)


_ASSIGNMENT: Final = (
    rf"ReplicaAssignment\(replicas=(?P<replicas>{IDS}), addingReplicas=(?P<adding>{IDS}), "
    rf"removingReplicas=(?P<removing>{IDS})\)"
)
#: Spoken by `[Controller id=C …]`.
OF_CONTROLLER: Final = (
    Text(
        "Changed partition ",
        re.compile(
            rf"Changed partition {TP} state from NonExistentPartition to NewPartition with assigned "
            rf"replicas (?P<replicas>{IDS})$"
        ),
        _created,
    ),
    Text(
        "Changed partition ",
        re.compile(
            rf"Changed partition {TP} (?:state )?from \w+ to OnlinePartition with state LeaderAndIsr\("
            r"leader=(?P<leader>-?\d+), leaderEpoch=(?P<epoch>\d+), (?P<rest>.*(?:isr=|isrWithBrokerEpoch=).*)$"
        ),
        _elected,
    ),
    Text(
        "Partition ",
        re.compile(
            rf"Partition {TP} state changed to \(Leader:(?P<leader>-?\d+),ISR:(?P<isr>{IDS}),"
            r"(?:LeaderRecoveryState:\w+,)?LeaderEpoch:(?P<epoch>\d+),(?:(?:ZkVersion|PartitionEpoch):(?P<version>\d+),)?"
            r"ControllerEpoch:\d+\) after removing replica \d+"
        ),
        _cut,
    ),
    Text(
        "Successfully updated assignment of partition ",
        re.compile(rf"Successfully updated assignment of partition {TP} to {_ASSIGNMENT}"),
        _assigned,
    ),
    Text(
        "Sent LeaderAndIsr request",
        re.compile(
            rf"Sent LeaderAndIsr request .* with new replica assignment {_ASSIGNMENT} to leader -?\d+ "
            rf"for partition being reassigned {TP}$"
        ),
        _sent,
    ),
    Text(
        "Updated assigned replicas for partition ",
        re.compile(rf"Updated assigned replicas for partition {TP} being reassigned to (?P<replicas>{IDS})"),
        _reassigned_before_24,
    ),
    Text(
        "Updated leader epoch for partition ",
        re.compile(rf"Updated leader epoch for partition {TP} to (?P<epoch>\d+)(?:, zkVersion=(?P<version>\d+))?$"),
        _bumped,
    ),
    Text(
        "Newly added brokers: ",
        re.compile(
            rf"Newly added brokers: (?P<added>{IDS}), deleted brokers: (?P<deleted>{IDS}), "
            rf"(?:bounced brokers: (?P<bounced>{IDS}), )?all live brokers: (?P<live>{IDS})$"
        ),
        _came_and_went,
    ),
    Text(
        "Currently active brokers in the cluster: ",
        re.compile(rf"Currently active brokers in the cluster: {_ANY_SET}(?P<live>{IDS})\)?$"),
        _active,
    ),
)
