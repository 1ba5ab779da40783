"""Questions about the cluster and its configs; see `questions`."""

from __future__ import annotations

from typing import Any

from controller.wire.protocol import ApiKey

from .sides import Side

TOPIC, BROKER = 2, 4

# -- the cluster -----------------------------------------------------------------------------------------------------


def metadata(side: Side) -> Any:
    found: dict[str, Any] = {}
    for version in range(10):
        for name, topics in (
            ("one", [{"name": side.topic("plain")}]),
            ("unknown", [{"name": "nowhere"}]),
            ("bad", [{"name": "bad/name"}]),
            ("empty name", [{"name": ""}]),
            ("twice", [{"name": "nowhere"}, {"name": "nowhere"}]),
        ):
            body = {"topics": topics, "allow_auto_topic_creation": False}
            answer = side.ask(ApiKey.METADATA, version, body)
            if isinstance(answer, dict):
                answer["brokers"] = len(answer["brokers"])
                for row in (row for topic in answer["topics"] for row in topic.get("partitions", ())):
                    row["mine"] = row.pop("replica_nodes") == row.pop("isr_nodes") == [side.broker_id]
                answer.pop("controller_id", None)
            found[f"v{version} {name}"] = answer
    answer = side.ask(ApiKey.METADATA, 5, {"topics": [], "allow_auto_topic_creation": False})
    found["none"] = answer["topics"]
    return found


def api_versions(side: Side) -> Any:
    found = {}
    for software in ("ok", "", "-a", "a-", "a b", "a.b-c", "é"):
        for which in ("client_software_name", "client_software_version"):
            body = {"client_software_name": "n", "client_software_version": "1", which: software}
            answer = side.ask(ApiKey.API_VERSIONS, 3, body)
            found[f"{which} {software!r}"] = answer if answer == "closed" else answer["error_code"]
    return found


def authenticating(side: Side) -> Any:
    """Where all is PLAINTEXT."""
    asked = {ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"}, ApiKey.SASL_AUTHENTICATE: {"auth_bytes": b"\0me\0secret"}}
    versions = {ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 1, 2)}
    return {f"{api.name} v{v}": side.ask(api, v, body) for api, body in asked.items() for v in versions[api]}


def coordinators(side: Side) -> Any:
    found = {}
    for version in range(4):
        for group in (side.group("found"),):
            answer = side.ask(ApiKey.FIND_COORDINATOR, version, {"key": group, "key_type": 0})
            found[f"v{version} {side.shared(group)}"] = answer
    found["key type 9"] = side.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "x", "key_type": 9})
    return found


# -- configs ---------------------------------------------------------------------------------------------------------

SET, DELETE, APPEND, SUBTRACT = range(4)


def altered(side: Side, kind: int, name: str, *changes: tuple[str, int, str | None], dry: bool = True) -> Any:
    configs = [{"name": key, "config_operation": op, "value": value} for key, op, value in changes]
    body = {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": configs}],
        "validate_only": dry,
    }
    return side.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body)["responses"]


def altering_configs(side: Side) -> Any:
    topic, me, other = side.topic("plain"), str(side.broker_id), str(side.broker_id + 7)
    cases: list[tuple[int, str, tuple[tuple[str, int, str | None], ...]]] = [
        (TOPIC, topic, ((name, op, value),))
        for name, op, value in (
            ("retention.ms", SET, "1000"), ("retention.ms", SET, "x"), ("retention.ms", SET, "-2"),
            ("retention.ms", SET, ""), ("retention.ms", SET, None), ("retention.ms", DELETE, None),
            ("retention.ms", APPEND, "1"), ("retention.ms", 7, "1"), ("foo", SET, "1"), ("foo", DELETE, None),
            ("cleanup.policy", SET, "compact,delete"), ("cleanup.policy", SET, "compat"),
            ("cleanup.policy", APPEND, "compact"), ("cleanup.policy", SUBTRACT, "delete"),
            ("cleanup.policy", SET, ""), ("min.insync.replicas", SET, "0"), ("compression.type", SET, "lz5"),
            ("compression.type", SET, "lz4"), ("unclean.leader.election.enable", SET, "yes"),
            ("min.cleanable.dirty.ratio", SET, "1.5"), ("segment.bytes", SET, "13"),
            ("leader.replication.throttled.replicas", SET, "0:1,1:2"),
            ("leader.replication.throttled.replicas", SET, "0;1"),
            ("follower.replication.throttled.replicas", SET, "*"),
            ("message.timestamp.type", SET, "x"), ("max.message.bytes", SET, "99999999999"),
            ("index.interval.bytes", SET, "1.5"), ("preallocate", SET, "TRUE"), ("segment.ms", SET, "0"),
            ("retention.ms", 7, None), ("foo", APPEND, "1"), ("foo", SUBTRACT, "1"), ("cleanup.policy", APPEND, ""),
            ("leader.replication.throttled.replicas", APPEND, "0:1,0:1"),
        )
    ]  # fmt: skip
    cases += [
        (TOPIC, "nowhere", (("retention.ms", SET, "1"),)),
        (TOPIC, "nowhere", (("retention.ms", SET, "x"),)),
        (TOPIC, "nowhere", (("retention.ms", APPEND, "1"),)),
        (TOPIC, "nowhere", (("cleanup.policy", APPEND, "1"),)),
        (TOPIC, "nowhere", (("retention.ms", 7, "1"),)),
        (TOPIC, "", (("retention.ms", SET, "1"),)),
        (TOPIC, "", (("retention.ms", 7, "1"),)),
        (TOPIC, "bad/name", (("retention.ms", SET, "1"),)),
        (TOPIC, topic, (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
        (TOPIC, topic, (("retention.ms", SET, None), ("segment.ms", SET, None))),
        (TOPIC, topic, ()),
        (BROKER, other, (("log.retention.ms", SET, "1"),)),
        (BROKER, other, (("log.retention.ms", 9, "1"),)),
        (BROKER, "x", (("log.retention.ms", SET, "1"),)),
        (BROKER, me, (("log.retention.ms", 9, "1"),)),
        (BROKER, "", (("log.retention.ms", APPEND, "1"), ("log.retention.bytes", 9, "1"))),
        (BROKER, "", (("log.retention.ms", APPEND, "1"),)),
        (BROKER, "", (("no.such.setting", APPEND, "1"),)),
        (BROKER, "", (("leader.replication.throttled.rate", APPEND, "1"),)),
        (BROKER, "", (("log.cleanup.policy", APPEND, "compact"),)),
        (16, me, (("a", SET, "1"),)),
        (0, me, (("a", SET, "1"),)),
    ]
    for name, _, value in (word.partition("=") for word in BROKER_CHANGES.split()):
        cases += [(BROKER, where, ((name, SET, value),)) for where in (me, "")]
    found = {}
    for kind, name, changes in cases:
        (answer,) = altered(side, kind, name, *changes)
        answer.pop("resource_name")
        where = {me: "me", other: "other"}.get(name, side.shared(name))
        found[f"{kind} {where} {changes}"] = _broker_free(answer, side)
    return found


#: `name=value`, each of one broker and of all.
BROKER_CHANGES = """
    log.retention.ms=1000 log.retention.ms=x log.retention.bytes=-1 log.retention.hours=1
    log.retention.minutes=1 log.cleaner.threads=2 log.cleaner.threads=4 log.cleaner.threads=0 num.io.threads=4
    num.io.threads=1 num.io.threads=99 num.io.threads=0 num.network.threads=2 num.network.threads=9
    num.replica.fetchers=2 num.replica.fetchers=3 background.threads=11 background.threads=40
    num.recovery.threads.per.data.dir=2 message.max.bytes=2000000 message.max.bytes=-1 min.insync.replicas=2
    min.insync.replicas=0 unclean.leader.election.enable=true unclean.leader.election.enable=x
    compression.type=gzip compression.type=zip log.segment.bytes=1000000 log.segment.bytes=1 log.roll.ms=1000
    log.roll.hours=1 log.index.interval.bytes=100 log.cleaner.dedupe.buffer.size=1000
    log.cleaner.io.max.bytes.per.second=1.5 log.cleaner.min.cleanable.ratio=2 log.flush.interval.ms=1
    log.message.timestamp.type=LogAppendTime log.preallocate=true max.connections=10 max.connections=-1
    max.connections.per.ip=10 max.connections.per.ip.overrides=127.0.0.1:5 max.connections.per.ip.overrides=x
    max.connection.creation.rate=5 max.connection.creation.rate=-1 metric.reporters=
    leader.replication.throttled.rate=1000 leader.replication.throttled.rate=-1
    leader.replication.throttled.rate=x follower.replication.throttled.rate=1
    replica.alter.log.dirs.io.max.bytes.per.second=1 zookeeper.connect=x broker.id=5 num.partitions=3
    auto.create.topics.enable=true advertised.listeners=PLAINTEXT://h:1 no.such.setting=1
    log.cleanup.policy=compact log.cleanup.policy=x log.retention.check.interval.ms=1
    replica.lag.time.max.ms=1 principal.builder.class=x log.message.format.version=2.6
    log.cleaner.backoff.ms=5 log.segment.delete.delay.ms=5 log.dirs=/x ssl.keystore.password=x
"""


def _broker_free(answer: Any, side: Side) -> Any:
    """Texts that quote the broker's id."""
    text = answer.get("error_message")
    if text:
        me = side.broker_id
        for old, new in ((f"{me + 7}", "OTHER"), (f"'{me}'", "'ME'"), (f"expected {me}", "expected ME")):
            text = text.replace(old, new)
        answer["error_message"] = text
    return answer


def altering_by_whole(side: Side) -> Any:
    found = []
    for kind, name, configs in (
        (TOPIC, side.topic("plain"), [("retention.ms", "1000")]),
        (TOPIC, side.topic("plain"), [("retention.ms", "x")]),
        (TOPIC, side.topic("plain"), [("retention.ms", None)]),
        (TOPIC, side.topic("plain"), [("retention.ms", "1"), ("retention.ms", "2")]),
        (TOPIC, "nowhere", [("retention.ms", "1")]),
        (TOPIC, "", []),
        (BROKER, str(side.broker_id), [("log.retention.ms", "1000")]),
        (BROKER, "", [("broker.id", "1000")]),
        (5, "", []),
    ):
        entries = [{"name": key, "value": value} for key, value in configs]
        resource = {"resource_type": kind, "resource_name": name, "configs": entries}
        for version in (0, 1):
            answer = side.ask(ApiKey.ALTER_CONFIGS, version, {"resources": [resource], "validate_only": True})
            answer["responses"][0]["resource_name"] = side.shared(name) if kind == TOPIC else ""
            found.append(_broker_free(answer["responses"][0], side))
    return found


def described(side: Side, kind: int, name: str, keys: list[str] | None, version: int = 3) -> Any:
    body = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        "include_synonyms": True,
        "include_documentation": False,
    }
    (result,) = side.ask(ApiKey.DESCRIBE_CONFIGS, version, body)["results"]
    result["resource_name"] = ""
    result["configs"] = {config.pop("name"): config for config in result["configs"]}
    return _broker_free(result, side)


def describing_topic_configs(side: Side) -> Any:
    found = {"all": described(side, TOPIC, side.topic("strict"), None)}
    for version in range(4):
        keys = ["retention.ms", "max.message.bytes", "nothing", "retention.ms"]
        found[f"v{version}"] = described(side, TOPIC, side.topic("strict"), keys, version)
    found["unknown"] = described(side, TOPIC, "nowhere", None)
    found["bad"] = described(side, TOPIC, "bad/name", None)
    found["empty"] = described(side, TOPIC, "", None)
    found["no keys"] = described(side, TOPIC, side.topic("strict"), [])
    found["type 5"] = described(side, 5, "", None)
    return found


def describing_broker_configs(side: Side) -> Any:
    """What has the same static value on both sides, and the same default."""
    me = str(side.broker_id)
    found = {"other": described(side, BROKER, str(side.broker_id + 7), None), "x": described(side, BROKER, "x", None)}
    found["mine"] = described(side, BROKER, me, None)
    for name in ("log.dirs", "listeners", "broker.id", "node.id", "zookeeper.connect"):
        found["mine"]["configs"][name] = found["mine"]["configs"][name]["config_source"]
    found["default"] = described(side, BROKER, "", None)
    return found
