"""Kafka's messages about replication, 1.x to 3.9, as one table: who speaks, a pattern, what it says. Pure.

A message is looked up by its speaker (the bracket in front, or its first words), so that an irrelevant line costs one
look. One that begins as a row of the table does and does not fit the rest is of a text that is not known: it counts.
Source: isr-replay.md §8.1-8.4, §8.6; the texts of kafka.cluster.Partition, kafka.server.ReplicaManager,
kafka.controller.*, kafka.log.LogManager.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker_sim.replay.logs.facts import What

#: A topic and a partition; the last hyphen divides.
_TP: Final = r"(?P<topic>[\w.-]+)-(?P<partition>\d+)"
_IDS: Final = r"[\d, ]*"
_ANY_SET: Final = r"\w*\(?"

#: `key` of a state from which a replica was cut: also written when it was not a member, and nothing changed.
CUT: Final = "cut"

Said = dict[str, object]
Match = re.Match[str]


class Text(NamedTuple):
    """A message: how it begins after the speaker, the whole of it, and what it says."""

    begins: str
    pattern: re.Pattern[str]
    says: Callable[[Match], Iterator[Said]]


def ids(text: str | None) -> list[int]:
    """`1,2,3`, `1, 2` or nothing."""
    return [int(x) for x in (text or "").replace(" ", "").split(",") if x]


def _tp(m: Match) -> Said:
    return {"topic": m["topic"], "partition": int(m["partition"])}


def _number(m: Match, name: str) -> int | None:
    value = m.groupdict().get(name)
    return None if value is None else int(value)


# -- the leader ---------------------------------------------------------------------------------------------------

_OUT: Final = re.compile(r"\(brokerId: (\d+), endOffset: (-?\d+|unknown)(?:, lastCaughtUpTimeMs: (-?\d+|unknown))?\)")


def _shrinking(m: Match) -> Iterator[Said]:
    outs = " ".join(":".join(x if x != "unknown" else "" for x in out) for out in _OUT.findall(m["out"] or ""))
    yield {
        "what": What.SHRINKING,
        "isr_old": ids(m["old"]),
        "isr": ids(m["new"]),
        "hw": _number(m, "hw"),
        "leo": _number(m, "leo"),
        "value": outs or None,
    }


def _expanding(m: Match) -> Iterator[Said]:
    yield {"what": What.EXPANDING, "isr_old": ids(m["old"]), "isr": ids(m["new"])}


def _updated(m: Match) -> Iterator[Said]:
    yield {"what": What.UPDATED, "isr": ids(m["isr"]), "zk_version": int(m["version"])}


def _refused(m: Match) -> Iterator[Said]:
    yield {"what": What.REFUSED, "zk_version": _number(m, "version")}


def _submitted(m: Match) -> Iterator[Said]:
    yield {"what": What.SUBMITTED, "replica": int(m["replica"])}


def _recorded(m: Match) -> Iterator[Said]:
    yield {"what": What.FETCH, "replica": int(m["replica"]), "offset": int(m["offset"]), "err": 0}


def _hw(m: Match) -> Iterator[Said]:
    yield {"what": What.HW, "hw": int(m["new"])}


def _old_leader(m: Match) -> Iterator[Said]:
    start = int(m["offset"])
    yield {"what": What.LEADER, "epoch": int(m["epoch"]), "offset": start, "leo": start, "hw": _number(m, "hw")}


#: Spoken by `[Partition tp broker=B]`; topic and partition are the speaker's.
OF_PARTITION: Final = (
    Text(
        "Shrinking ISR from",
        re.compile(
            rf"Shrinking ISR from (?P<old>{_IDS}) to (?P<new>{_IDS})(?:\. Leader: \(highWatermark: (?P<hw>-?\d+), "
            r"endOffset: (?P<leo>-?\d+)\)\. Out of sync replicas: (?P<out>.*?)\.?)?$"
        ),
        _shrinking,
    ),
    Text("Expanding ISR from", re.compile(rf"Expanding ISR from (?P<old>{_IDS}) to (?P<new>{_IDS})$"), _expanding),
    Text(
        "ISR updated to",
        re.compile(
            rf"ISR updated to \[?(?P<isr>{_IDS}?)\]?(?: \(under-min-isr\)| )? and (?:zkVersion|version) "
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
_STARTS_AT: Final = Text(
    "",
    re.compile(
        r"\S+ starts at [Ll]eader [Ee]poch (?P<epoch>\d+) from offset (?P<offset>\d+)"
        r"(?: with high watermark (?P<hw>-?\d+))?\."
    ),
    _old_leader,
)


# -- leader and follower in state-change.log ------------------------------------------------------------------------


def _leads(m: Match) -> Iterator[Said]:
    start = int(m["offset"])
    yield {
        **_tp(m),
        "what": What.LEADER,
        "epoch": int(m["epoch"]),
        "offset": start,
        "leo": start,
        "hw": int(m["hw"]),
        "isr": ids(m["isr"]),
        "adding": ids(m["adding"]),
        "removing": ids(m["removing"]),
        "zk_version": _number(m, "version"),
    }


def _follows(m: Match) -> Iterator[Said]:
    yield {
        **_tp(m),
        "what": What.FOLLOWER,
        "epoch": int(m["epoch"]),
        "replica": _number(m, "leader"),
        "offset": int(m["offset"]),
        "hw": int(m["hw"]),
        "zk_version": _number(m, "version"),
    }


#: Spoken by `[Broker id=B]`.
OF_BROKER: Final = (
    Text(
        "Leader ",
        re.compile(
            rf"Leader {_TP}(?: with topic id \S+)? starts at leader epoch (?P<epoch>\d+) from offset (?P<offset>\d+) "
            r"with (?:partition epoch (?P<version>\d+), )?high watermark (?P<hw>-?\d+),? "
            rf"ISR \[(?P<isr>{_IDS})\],? adding ?[Rr]eplicas \[(?P<adding>{_IDS})\](?: and)? "
            rf"removing ?[Rr]eplicas \[(?P<removing>{_IDS})\]"
        ),
        _leads,
    ),
    Text(
        "Follower ",
        re.compile(
            rf"Follower {_TP}(?: with topic id \S+)? starts at leader epoch (?P<epoch>\d+) from offset (?P<offset>\d+) "
            r"with (?:partition epoch (?P<version>\d+) and )?high watermark (?P<hw>-?\d+)"
            r"(?:\. Current leader is (?P<leader>-?\d+))?"
        ),
        _follows,
    ),
)


# -- the controller -------------------------------------------------------------------------------------------------


def _created(m: Match) -> Iterator[Said]:
    replicas = ids(m["replicas"])
    yield {**_tp(m), "what": What.ASSIGN, "replicas": replicas, "adding": [], "removing": [], "value": "created"}


_LISTED: Final = re.compile(r"\bisr=\w+\(([\d, ]*)\)")
_MEMBER: Final = re.compile(r"brokerId=(\d+)")


def _elected(m: Match) -> Iterator[Said]:
    listed = _LISTED.search(m["rest"])
    members = ids(listed[1]) if listed else [int(b) for b in _MEMBER.findall(m["rest"])]
    version = re.search(r"(?:partitionEpoch|zkVersion)=(\d+)", m["rest"])
    yield {
        **_tp(m),
        "what": What.ELECT,
        "epoch": int(m["epoch"]),
        "replica": int(m["leader"]),
        "isr": members,
        "zk_version": int(version[1]) if version else None,
    }


def _cut(m: Match) -> Iterator[Said]:
    yield {
        **_tp(m),
        "what": What.ELECT,
        "epoch": int(m["epoch"]),
        "replica": int(m["leader"]),
        "isr": ids(m["isr"]),
        "zk_version": _number(m, "version"),
        "key": CUT,
    }


def _sent(m: Match) -> Iterator[Said]:
    yield {**_tp(m), "what": What.SENT, "replicas": ids(m["replicas"])}


def _assigned(m: Match) -> Iterator[Said]:
    yield {
        **_tp(m),
        "what": What.ASSIGN,
        "replicas": ids(m["replicas"]),
        "adding": ids(m["adding"]),
        "removing": ids(m["removing"]),
    }


def _reassigned_before_24(m: Match) -> Iterator[Said]:
    yield {**_tp(m), "what": What.ASSIGN, "replicas": ids(m["replicas"]), "adding": [], "removing": []}


def _bumped(m: Match) -> Iterator[Said]:
    yield {**_tp(m), "what": What.BUMP, "epoch": int(m["epoch"]), "zk_version": _number(m, "version")}


def _came_and_went(m: Match) -> Iterator[Said]:
    bounced = ids(m["bounced"])
    for broker in [*ids(m["deleted"]), *bounced]:
        yield {"what": What.BROKER_DOWN, "replica": broker}
    for broker in [*ids(m["added"]), *bounced]:
        yield {"what": What.BROKER_UP, "replica": broker}


def _active(m: Match) -> Iterator[Said]:
    yield {"what": What.LIVE, "replicas": ids(m["live"])}


_ASSIGNMENT: Final = (
    rf"ReplicaAssignment\(replicas=(?P<replicas>{_IDS}), addingReplicas=(?P<adding>{_IDS}), "
    rf"removingReplicas=(?P<removing>{_IDS})\)"
)
#: Spoken by `[Controller id=C …]`.
OF_CONTROLLER: Final = (
    Text(
        "Changed partition ",
        re.compile(
            rf"Changed partition {_TP} state from NonExistentPartition to NewPartition with assigned "
            rf"replicas (?P<replicas>{_IDS})$"
        ),
        _created,
    ),
    Text(
        "Changed partition ",
        re.compile(
            rf"Changed partition {_TP} (?:state )?from \w+ to OnlinePartition with state LeaderAndIsr\("
            r"leader=(?P<leader>-?\d+), leaderEpoch=(?P<epoch>\d+), (?P<rest>.*(?:isr=|isrWithBrokerEpoch=).*)$"
        ),
        _elected,
    ),
    Text(
        "Partition ",
        re.compile(
            rf"Partition {_TP} state changed to \(Leader:(?P<leader>-?\d+),ISR:(?P<isr>{_IDS}),"
            r"(?:LeaderRecoveryState:\w+,)?LeaderEpoch:(?P<epoch>\d+),(?:(?:ZkVersion|PartitionEpoch):(?P<version>\d+),)?"
            r"ControllerEpoch:\d+\) after removing replica \d+"
        ),
        _cut,
    ),
    Text(
        "Successfully updated assignment of partition ",
        re.compile(rf"Successfully updated assignment of partition {_TP} to {_ASSIGNMENT}"),
        _assigned,
    ),
    Text(
        "Sent LeaderAndIsr request",
        re.compile(
            rf"Sent LeaderAndIsr request .* with new replica assignment {_ASSIGNMENT} to leader -?\d+ "
            rf"for partition being reassigned {_TP}$"
        ),
        _sent,
    ),
    Text(
        "Updated assigned replicas for partition ",
        re.compile(rf"Updated assigned replicas for partition {_TP} being reassigned to (?P<replicas>{_IDS})"),
        _reassigned_before_24,
    ),
    Text(
        "Updated leader epoch for partition ",
        re.compile(rf"Updated leader epoch for partition {_TP} to (?P<epoch>\d+)(?:, zkVersion=(?P<version>\d+))?$"),
        _bumped,
    ),
    Text(
        "Newly added brokers: ",
        re.compile(
            rf"Newly added brokers: (?P<added>{_IDS}), deleted brokers: (?P<deleted>{_IDS}), "
            rf"(?:bounced brokers: (?P<bounced>{_IDS}), )?all live brokers: (?P<live>{_IDS})$"
        ),
        _came_and_went,
    ),
    Text(
        "Currently active brokers in the cluster: ",
        re.compile(rf"Currently active brokers in the cluster: {_ANY_SET}(?P<live>{_IDS})\)?$"),
        _active,
    ),
)


# -- the process ------------------------------------------------------------------------------------------------------

#: Settings that the rules or the tables need, of a broker or of a topic.
SETTINGS: Final = (
    "replica.lag.time.max.ms",
    "min.insync.replicas",
    "replica.fetch.wait.max.ms",
    "zookeeper.session.timeout.ms",
    "inter.broker.protocol.version",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


def _started(_: Match) -> Iterator[Said]:
    yield {"what": What.START}


def _ended(_: Match) -> Iterator[Said]:
    yield {"what": What.DOWN}


_PROPERTY: Final = re.compile(r"([\w.]+)(?:=| -> )(\[hidden\]|[^,}]*(?:,[\d:]+)*)")


def _log_created(m: Match) -> Iterator[Said]:
    for key, value in _PROPERTY.findall(m["config"]):
        if key in SETTINGS:
            yield {"what": What.CONFIG, "topic": m["topic"], "key": key, "value": value.strip()}


_INITIAL: Final = re.compile(r"(\d+) -> \w*\(([\d, ]*)\)")


def _topic_created(m: Match) -> Iterator[Said]:
    yield from _log_created(m)
    for partition, replicas in _INITIAL.findall(m["assignment"]):
        whose: Said = {"topic": m["topic"], "partition": int(partition)}
        yield {**whose, "what": What.ASSIGN, "replicas": ids(replicas), "adding": [], "removing": []}


def _override(m: Match) -> Iterator[Said]:
    """The line lists all overrides that are left."""
    kind, _, name = m["path"].partition("/")
    if kind not in ("topics", "brokers"):
        return
    whose: Said = {"topic": name} if kind == "topics" else {"replica": int(name) if name.isdigit() else None}
    if kind == "brokers" and not name.isdigit():
        return  # the cluster-wide default: below a broker's own, above its file; not kept apart here
    yield {"what": What.CONFIG, **whose, "key": "*", "sub": -1}
    for key, value in _PROPERTY.findall(m["config"]):
        if key in SETTINGS:
            yield {"what": What.CONFIG, **whose, "key": key, "value": value.strip()}


def _deleted(m: Match) -> Iterator[Said]:
    yield {**_tp(m), "what": What.STOP, "value": "delete"}


def _written(m: Match) -> Iterator[Said]:
    first, last = int(m["first"]), int(m["last"])
    yield {**_tp(m), "what": What.APPEND, "offset": first, "leo": last + 1, "bytes": int(m["bytes"])}


def _ticked(_: Match) -> Iterator[Said]:
    yield {"what": What.TICK}


def _reset(m: Match) -> Iterator[Said]:
    yield {**_tp(m), "what": What.RESET, "replica": int(m["replica"]), "cu": int(m["cu"])}


#: Spoken by `[ReplicaManager broker=B]`.
OF_REPLICA_MANAGER: Final = (
    Text(
        "",
        re.compile(
            rf"(?P<bytes>\d+) written to log {_TP} beginning at offset (?P<first>\d+) and "
            r"ending at offset (?P<last>\d+)"
        ),
        _written,
    ),
    Text("Evaluating ISR list of partitions", re.compile("Evaluating ISR list of partitions"), _ticked),
)
#: Spoken by `[KafkaServer id=B]`.
OF_SERVER: Final = (Text("shut down completed", re.compile("shut down completed"), _ended),)
#: Without a speaker.
BARE: Final = (
    Text("[LogDirFailureHandler]: Starting", re.compile(r"\[LogDirFailureHandler\]: Starting"), _started),
    Text(
        "Created log for partition ",
        # 1.0 writes [topic,partition].
        re.compile(
            r"Created log for partition \[?(?P<topic>[\w.-]+)[-,](?P<partition>\d+)\]? in \S+ "
            r"with properties \{(?P<config>.*)\}\.?$"
        ),
        _log_created,
    ),
    Text(
        "Creating topic ",
        re.compile(
            r"Creating topic (?P<topic>[\w.-]+) with configuration \{(?P<config>.*?)\} and initial partition "
            r"assignment (?P<assignment>.*)$"
        ),
        _topic_created,
    ),
    Text(
        "Processing override for entityPath: ",
        re.compile(r"Processing override for entityPath: (?P<path>\S+) with config: (?:\w*\()?(?P<config>.*?)\)?$"),
        _override,
    ),
    Text("Log for partition ", re.compile(rf"Log for partition {_TP} is renamed to .*-delete"), _deleted),
    Text(
        "Reset state of replica to ",
        re.compile(
            r"Reset state of replica to Replica\(replicaId=(?P<replica>\d+), topic=(?P<topic>[\w.-]+), "
            r"partition=(?P<partition>\d+), lastCaughtUpTimeMs=(?P<cu>\d+)"
        ),
        _reset,
    ),
)

_SPEAKER: Final = re.compile(
    r"\[(?:Partition (?P<topic>[\w.-]+)-(?P<partition>\d+) broker=(?P<leader>\d+)|Broker id=(?P<broker>\d+)|"
    r"Controller (?:id=)?(?P<controller>\d+)(?:,? epoch=\d+)?|ReplicaManager broker=(?P<manager>\d+)|"
    r"KafkaServer id=(?P<server>\d+))\]:?,? (?P<text>.*)$"
)
_SPEAKERS: Final = {
    "leader": OF_PARTITION,
    "broker": OF_BROKER,
    "controller": OF_CONTROLLER,
    "manager": OF_REPLICA_MANAGER,
    "server": OF_SERVER,
}
#: A message that matches none of these says nothing that is needed: what Spark looks at before Python does.
RELEVANT: Final = "|".join(
    [
        r"\[Partition \S+ broker=\d+\] (?:"
        + "|".join([*(re.escape(t.begins) for t in OF_PARTITION), r"\S+ starts at [Ll]eader"])
        + ")",
        r"\[Broker id=\d+\] (?:" + "|".join(f"{t.begins}\\S+" for t in OF_BROKER) + ")",
        r"\[Controller [^\]]*\]:?,? (?:" + "|".join(sorted({re.escape(t.begins) for t in OF_CONTROLLER})) + ")",
        r"\[ReplicaManager broker=\d+\] (?:Evaluating ISR list|\d+ written to log)",
        r"\[KafkaServer id=\d+\],? shut down completed",
        *(re.escape(t.begins) for t in BARE),
        "KafkaConfig values:",
        "Completed request:",
    ]
)


class UnknownText(ValueError):
    """A message begins like one that is needed, but goes on in a way that is not known."""


def said_by(text: str) -> tuple[int | None, list[Said]]:
    """Who speaks (a broker's id, where the message tells), and what is said; nothing for an irrelevant message.

    Raises: UnknownText.
    """
    speaker = _SPEAKER.match(text)
    if speaker is None:
        return None, _first_fit(BARE, text)
    role = speaker.lastgroup
    role = next(name for name in _SPEAKERS if speaker[name] is not None) if role == "text" else role
    assert role is not None
    message = speaker["text"]
    starts = _STARTS_AT.pattern.match(message) if role == "leader" else None
    found = list(_STARTS_AT.says(starts)) if starts else _first_fit(_SPEAKERS[role], message)
    if role == "leader":
        for said in found:
            said["topic"], said["partition"] = speaker["topic"], int(speaker["partition"])
    return int(speaker[role]), found


def _first_fit(table: tuple[Text, ...], message: str) -> list[Said]:
    known = False
    for text in table:
        if message.startswith(text.begins):
            match = text.pattern.match(message)
            if match is not None:
                return list(text.says(match))
            known = known or bool(text.begins and text.begins not in _SHARED)
    if known or _TELLING.search(message):
        raise UnknownText(message)
    return []


#: Beginnings that irrelevant messages share, and what tells the relevant ones from them.
_SHARED: Final = frozenset({"Changed partition ", "Partition ", "Log for partition ", "Leader ", "Follower "})
_TELLING: Final = re.compile(r" with state LeaderAndIsr\(| after removing replica |starts at leader epoch")
