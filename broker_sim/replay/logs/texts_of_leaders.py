"""What brokers say about the partitions that they lead and follow: server.log, state-change.log. Pure.

Source: isr-replay.md §8.1, §8.2, §8.6; kafka.cluster.Partition, state.change.logger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from broker_sim.replay.logs.facts import What
from broker_sim.replay.logs.said import IDS, TP, Match, Said, Text, ids, number, partition_in

# -- the leader ---------------------------------------------------------------------------------------------------

_OUT: Final = re.compile(r"\(brokerId: (\d+), endOffset: (-?\d+|unknown)(?:, lastCaughtUpTimeMs: (-?\d+|unknown))?\)")


def _shrinking(m: Match) -> Iterable[Said]:
    outs = " ".join(":".join(x if x != "unknown" else "" for x in out) for out in _OUT.findall(m["out"] or ""))
    return (
        {
            "what": What.SHRINKING,
            "isr_old": ids(m["old"]),
            "isr": ids(m["new"]),
            "hw": number(m, "hw"),
            "leo": number(m, "leo"),
            "value": outs or None,
        },
    )


def _expanding(m: Match) -> Iterable[Said]:
    return ({"what": What.EXPANDING, "isr_old": ids(m["old"]), "isr": ids(m["new"])},)


def _updated(m: Match) -> Iterable[Said]:
    return ({"what": What.UPDATED, "isr": ids(m["isr"]), "zk_version": int(m["version"])},)


def _refused(m: Match) -> Iterable[Said]:
    return ({"what": What.REFUSED, "zk_version": number(m, "version")},)


def _submitted(m: Match) -> Iterable[Said]:
    return ({"what": What.SUBMITTED, "replica": int(m["replica"])},)


def _recorded(m: Match) -> Iterable[Said]:
    return ({"what": What.FETCH, "replica": int(m["replica"]), "offset": int(m["offset"]), "err": 0},)


def _hw(m: Match) -> Iterable[Said]:
    return ({"what": What.HW, "hw": int(m["new"])},)


def _old_leader(m: Match) -> Iterable[Said]:
    start = int(m["offset"])
    return ({"what": What.LEADER, "epoch": int(m["epoch"]), "offset": start, "leo": start, "hw": number(m, "hw")},)


#: Spoken by `[Partition tp broker=B]`; topic and partition are the speaker's.
OF_PARTITION: Final = (
    Text(
        "",
        re.compile(
            r"\S+ starts at [Ll]eader [Ee]poch (?P<epoch>\d+) from offset (?P<offset>\d+)"
            r"(?: with high watermark (?P<hw>-?\d+))?\."
        ),
        _old_leader,
    ),
    Text(
        "Shrinking ISR from",
        re.compile(
            rf"Shrinking ISR from (?P<old>{IDS}) to (?P<new>{IDS})(?:\. Leader: \(highWatermark: (?P<hw>-?\d+), "
            r"endOffset: (?P<leo>-?\d+)\)\. Out of sync replicas: (?P<out>.*?)\.?)?$"
        ),
        _shrinking,
    ),
    Text("Expanding ISR from", re.compile(rf"Expanding ISR from (?P<old>{IDS}) to (?P<new>{IDS})$"), _expanding),
    Text(
        "ISR updated to",
        re.compile(
            rf"ISR updated to \[?(?P<isr>{IDS}?)\]?(?: \(under-min-isr\)| )? and (?:zkVersion|version) "
            r"updated to \[?(?P<version>\d+)\]?$"
        ),
        _updated,
    ),
    Text("Cached zkVersion", re.compile(r"Cached zkVersion \[?(?P<version>\d+)\]? not equal"), _refused),
    Text(
        "Failed to alter partition to Pending",
        re.compile(r"Failed to alter partition to Pending(?:Expand|Shrink)Isr"),
        _refused,
    ),
    Text(
        "Ignoring failed ISR update to Pending",
        re.compile(r"Ignoring failed ISR update to Pending(?:Expand|Shrink)Isr"),
        _refused,
    ),
    Text(
        "Submitting ISR state change PendingExpandIsr",
        re.compile(r"Submitting ISR state change PendingExpandIsr\(newInSyncReplicaId=(?P<replica>\d+)"),
        _submitted,
    ),
    Text(
        "Recorded replica",
        re.compile(r"Recorded replica (?P<replica>\d+) log end offset \(LEO\) position (?P<offset>\d+)"),
        _recorded,
    ),
    Text(
        "High watermark updated from",
        re.compile(r"High watermark updated from \(?(?:offset=)?-?\d+.* to \(?(?:offset=)?(?P<new>\d+)"),
        _hw,
    ),
)


# -- leader and follower in state-change.log ------------------------------------------------------------------------


def _leads(m: Match) -> Iterable[Said]:
    start = int(m["offset"])
    return (
        {
            **partition_in(m),
            "what": What.LEADER,
            "epoch": int(m["epoch"]),
            "offset": start,
            "leo": start,
            "hw": int(m["hw"]),
            "isr": ids(m["isr"]),
            "adding": ids(m["adding"]),
            "removing": ids(m["removing"]),
            "zk_version": number(m, "version"),
        },
    )


def _follows(m: Match) -> Iterable[Said]:
    return (
        {
            **partition_in(m),
            "what": What.FOLLOWER,
            "epoch": int(m["epoch"]),
            "replica": number(m, "leader"),
            "offset": int(m["offset"]),
            "hw": int(m["hw"]),
            "zk_version": number(m, "version"),
        },
    )


#: Spoken by `[Broker id=B]`.
OF_BROKER: Final = (
    Text(
        "Leader ",
        re.compile(
            rf"Leader {TP}(?: with topic id \S+)? starts at leader epoch (?P<epoch>\d+) from offset (?P<offset>\d+) "
            r"with (?:partition epoch (?P<version>\d+), )?high watermark (?P<hw>-?\d+),? "
            rf"ISR \[(?P<isr>{IDS})\],? adding ?[Rr]eplicas \[(?P<adding>{IDS})\](?: and)? "
            rf"removing ?[Rr]eplicas \[(?P<removing>{IDS})\]"
        ),
        _leads,
    ),
    Text(
        "Follower ",
        re.compile(
            rf"Follower {TP}(?: with topic id \S+)? starts at leader epoch (?P<epoch>\d+) from offset (?P<offset>\d+) "
            r"with (?:partition epoch (?P<version>\d+) and )?high watermark (?P<hw>-?\d+)"
            r"(?:\. Current leader is (?P<leader>-?\d+))?"
        ),
        _follows,
    ),
)
