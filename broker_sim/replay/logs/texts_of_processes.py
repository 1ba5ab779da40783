"""What a broker's process says: its start and end, logs, settings, appends, checks. Pure.

Source: isr-replay.md §8.3, §8.6; kafka.log.LogManager, kafka.zk.AdminZkClient, kafka.server.ReplicaManager.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from broker_sim.replay.logs.facts import What
from broker_sim.replay.logs.said import TP, Match, Said, Text, ids, partition_in
from controller.wire.whole import whole

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


def _started(_: Match) -> Iterable[Said]:
    return ({"what": What.START},)


def _ended(_: Match) -> Iterable[Said]:
    return ({"what": What.DOWN},)


_PROPERTY: Final = re.compile(r"([\w.]+)(?:=| -> )(\[hidden\]|[^,}]*(?:,[\d:]+)*)")


def _log_created(m: Match) -> Iterator[Said]:
    folder = Path(m["folder"])
    if folder.name.endswith("-future"):
        yield {**partition_in(m), "what": What.COPY, "key": str(folder.parent)}
    yield from _settings(m)


def _settings(m: Match) -> Iterator[Said]:
    for key, value in _PROPERTY.findall(m["config"]):
        if key in SETTINGS:
            yield {"what": What.CONFIG, "topic": m["topic"], "key": key, "value": value.strip()}


_INITIAL: Final = re.compile(r"(\d+) -> \w*\(([\d, ]*)\)")


def _topic_created(m: Match) -> Iterator[Said]:
    yield from _settings(m)
    for partition, replicas in _INITIAL.findall(m["assignment"]):
        whose: Said = {"topic": m["topic"], "partition": int(partition)}
        yield {**whose, "what": What.ASSIGN, "replicas": ids(replicas), "adding": [], "removing": []}


def _override(m: Match) -> Iterator[Said]:
    """The line lists all overrides that are left."""
    kind, _, name = m["path"].partition("/")
    if kind not in ("topics", "brokers"):
        return
    whose: Said = {"topic": name} if kind == "topics" else {"replica": whole(name)}
    if kind == "brokers" and whole(name) is None:
        return  # the cluster-wide default: below a broker's own, above its file; not kept apart here
    yield from override_of(whose, m["config"])


def override_of(whose: Said, config: str) -> Iterator[Said]:
    """All overrides that are left, as `k -> v, …`: those from before are gone."""
    yield {"what": What.CONFIG, **whose, "key": "*", "sub": -1}
    for key, value in _PROPERTY.findall(config):
        if key in SETTINGS:
            yield {"what": What.CONFIG, **whose, "key": key, "value": value.strip()}


def _deleted(m: Match) -> Iterable[Said]:
    return ({**partition_in(m), "what": What.STOP, "key": str(Path(m["folder"]).parent), "value": "delete"},)


def _copied(m: Match) -> Iterable[Said]:
    return ({**partition_in(m), "what": What.COPIED},)


def _written(m: Match) -> Iterable[Said]:
    first, last = int(m["first"]), int(m["last"])
    return ({**partition_in(m), "what": What.APPEND, "offset": first, "leo": last + 1, "bytes": int(m["bytes"])},)


def _ticked(_: Match) -> Iterable[Said]:
    return ({"what": What.TICK},)


def _reset(m: Match) -> Iterable[Said]:
    return ({**partition_in(m), "what": What.RESET, "replica": int(m["replica"]), "cu": int(m["cu"])},)


def _lost(m: Match) -> Iterable[Said]:
    return ({"what": What.LOST, "replica": int(m["gone"] or m["refused"])},)


def _topics_deleted(m: Match) -> Iterator[Said]:
    for topic in m["topics"].split(","):
        yield {"what": What.DELETE, "topic": topic.strip()}


#: Beginnings of speakers that have one message each that is needed, of many.
FETCHER: Final = "[ReplicaFetcher"
DELETER: Final = "[Topic Deletion Manager"
#: Spoken by `[ReplicaManager broker=B]`.
OF_REPLICA_MANAGER: Final = (
    Text(
        "",
        re.compile(
            rf"(?P<bytes>\d+) written to log {TP} beginning at offset (?P<first>\d+) and "
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
            r"Created log for partition \[?(?P<topic>[\w.-]+)[-,](?P<partition>\d+)\]? in (?P<folder>\S+) "
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
    Text(
        FETCHER,
        re.compile(
            r"\[ReplicaFetcher [^\]]*\] (?:Node (?P<gone>\d+) disconnected|"
            r"Connection to node (?P<refused>\d+) .*could not be established)"
        ),
        _lost,
    ),
    Text(
        DELETER,
        re.compile(
            r"\[Topic Deletion Manager \d+\],? "
            r"(?:Handling deletion for topics|Topic deletion callback for) (?P<topics>.+)$"
        ),
        _topics_deleted,
    ),
    Text("Log for partition ", re.compile(rf"Log for partition {TP} is renamed to (?P<folder>.*-delete)"), _deleted),
    Text(
        "The current replica is successfully replaced ",
        re.compile(rf"The current replica is successfully replaced with the future replica for {TP}"),
        _copied,
    ),
    Text(
        "Reset state of replica to ",
        re.compile(
            r"Reset state of replica to Replica\(replicaId=(?P<replica>\d+), topic=(?P<topic>[\w.-]+), "
            r"partition=(?P<partition>\d+), lastCaughtUpTimeMs=(?P<cu>\d+)"
        ),
        _reset,
    ),
)
