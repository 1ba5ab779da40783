"""Configs are told, altered and taken back: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs.

Source: spec broker.md §17; Kafka 3.9 `ConfigHelper`, `ConfigAdminManager`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from controller.sim.questions.inquiry import ASKED, MISSING, Inquiry
from controller.wire.errors import ErrorCode
from controller.wire.protocol import ApiKey

OF_TOPIC, OF_BROKER = 2, 4
#: Within so long brokers act by configs that were altered.
IN_FORCE_S: Final = 3.0
#: `ConfigSource`: a topic's own, a broker's own, that of all brokers, what it was started with.
TOPICS, DYNAMIC, DYNAMIC_DEFAULT, STATIC = 1, 2, 3, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
#: What every broker of a world is started with, as it is told.
STARTED_WITH: Final = ("zookeeper.session.timeout.ms", "replica.lag.time.max.ms", "min.insync.replicas")


#: What is no broker's id, though the first is a number.
NO_BROKERS: Final = ("9" * 5000, "one")


async def of_topics(inquiry: Inquiry) -> None:
    """Of each topic its own configs are told as such, with their synonyms, wherever one asks."""
    cluster = inquiry.cluster
    for topic in cluster.children("/brokers/topics"):
        right = _stored(inquiry, f"topics/{topic}")
        if cluster.topic_partitions(topic) and f"/config/topics/{topic}" not in cluster.damaged:
            await _own_of_topic(inquiry, topic, right)
    number = inquiry.chance.choice(inquiry.brokers)
    answer = await _describe(inquiry, number, OF_TOPIC, MISSING)
    inquiry.expect_code("DescribeConfigs of what is not there", answer.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def _own_of_topic(inquiry: Inquiry, topic: str, right: Mapping[str, str]) -> None:
    number = inquiry.chance.choice((*inquiry.brokers, inquiry.controller()))
    answer = await _describe(inquiry, number, OF_TOPIC, topic)
    own = [row for row in answer.configs if row.config_source == TOPICS]
    right = {name: value.strip() for name, value in right.items()}
    what = f"DescribeConfigs of {topic} by {number}"
    inquiry.expect(what, {row.name: row.value for row in own}, right)
    inquiry.expect(what, {row.name: row.synonyms[0].value for row in own if row.synonyms}, right)
    if right:
        name = inquiry.chance.choice(sorted(right))
        one = await _describe(inquiry, number, OF_TOPIC, topic, [name], tells=False)
        inquiry.expect(f"{what}, the synonyms, unasked", [list(row.synonyms or ()) for row in one.configs], [[]])
        inquiry.expect(
            f"{what}, of {name} alone", [(row.name, row.value) for row in one.configs], [(name, right[name])]
        )


async def of_brokers(inquiry: Inquiry) -> None:
    """Each broker tells of itself, of nobody else, what stands in ZooKeeper for it and for all, and what it was started
    with; anybody tells what stands for all."""
    cluster = inquiry.cluster
    for_all = _stored(inquiry, "brokers/<default>")
    for number in inquiry.brokers:
        own = _stored(inquiry, f"brokers/{number}")
        answer = await _describe(inquiry, number, OF_BROKER, str(number))
        rows = {row.name: (row.value, row.config_source) for row in answer.configs}
        right = {name: (value, DYNAMIC_DEFAULT) for name, value in for_all.items()}
        right |= {name: (value, DYNAMIC) for name, value in own.items()}
        started = {name: (cluster.settings[name], STATIC) for name in STARTED_WITH}
        right = {**started, "broker.id": (str(number), STATIC), **right}
        found = {name: row for name, row in rows.items() if name in right or row[1] in (DYNAMIC, DYNAMIC_DEFAULT)}
        inquiry.expect(f"DescribeConfigs of broker {number}", found, right)
        everybody = await _describe(inquiry, number, OF_BROKER, "")
        inquiry.expect("DescribeConfigs of all", {row.name: row.value for row in everybody.configs}, for_all)
    for name in (str(inquiry.brokers[-1] + 1), *NO_BROKERS):
        another = await _describe(inquiry, inquiry.brokers[0], OF_BROKER, name)
        inquiry.expect_code(f"DescribeConfigs of broker {name[:9]}", another.error_code, ErrorCode.INVALID_REQUEST)


def _stored(inquiry: Inquiry, entity: str) -> dict[str, str]:
    """The configs of `topics/<topic>`, `brokers/<id>` or `brokers/<default>` in ZooKeeper."""
    return dict((inquiry.cluster.znode(f"/config/{entity}") or {}).get("config", {}))


async def _describe(
    inquiry: Inquiry, number: int, kind: int, name: str, keys: Sequence[str] | None = None, *, tells: bool = True
) -> Any:
    """`tells`: of the synonyms, too."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    body = {"resources": [resource], "include_synonyms": tells, "include_documentation": False}
    answer = await inquiry.ask(number, ApiKey.DESCRIBE_CONFIGS, inquiry.chance.randint(1, 3), body)
    (found,) = answer.results
    return found


#: One after the other: (name, operation, value) of each edit, and what stands there then of the three; or the error.
_EDITS: Final[tuple[tuple[tuple[tuple[str, int, str | None], ...], dict[str, str] | ErrorCode], ...]] = (
    ((("retention.ms", SET, "7000000"), ("segment.bytes", DELETE, None)), {"retention.ms": "7000000"}),
    ((("cleanup.policy", APPEND, "compact"),), {"retention.ms": "7000000", "cleanup.policy": "delete,compact"}),
    ((("cleanup.policy", SUBTRACT, "compact"),), {"retention.ms": "7000000", "cleanup.policy": "delete"}),
    ((("retention.ms", SET, "long"),), ErrorCode.INVALID_CONFIG),
    ((("retention.ms", APPEND, "1"),), ErrorCode.INVALID_CONFIG),
    ((("there.is.no.such.config", SET, "1"),), ErrorCode.INVALID_CONFIG),
    ((("retention.ms", SET, "1"), ("retention.ms", SET, "2")), ErrorCode.INVALID_REQUEST),
)


async def altered(inquiry: Inquiry) -> None:
    """Edits of a topic's configs, each tried before it is made; what is refused changes nothing; at last all anew."""
    entity, kept = f"topics/{ASKED}", {"min.insync.replicas": "1"}
    for edits, right in _EDITS:
        before = _stored(inquiry, entity)
        for tries in (True, False):
            code = await _alter(inquiry, ASKED, edits, tries=tries)
            what = f"an edit {edits}{', only tried' if tries else ''}"
            inquiry.expect_code(what, code, right if isinstance(right, ErrorCode) else ErrorCode.NONE)
            after = before if tries or isinstance(right, ErrorCode) else {**kept, **right}
            inquiry.expect(f"what stands there after {what}", _stored(inquiry, entity), after)
    missing = await _alter(inquiry, MISSING, _EDITS[0][0], tries=False)
    inquiry.expect_code("an edit of what is not there", missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for anew in ({"segment.bytes": " 6000 ", "retention.ms": "8000000"}, {}):
        await alter_all(inquiry, ASKED, anew)
        await _own_of_topic(inquiry, ASKED, anew)


async def alter_all(inquiry: Inquiry, topic: str, anew: Mapping[str, str]) -> None:
    """All configs of a topic are these then."""
    rows = [{"name": name, "value": value} for name, value in anew.items()]
    resource = {"resource_type": OF_TOPIC, "resource_name": topic, "configs": rows}
    answer = await _ask_anybody(inquiry, ApiKey.ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
    inquiry.expect_code(f"AlterConfigs to {anew}", answer.responses[0].error_code)
    inquiry.expect("what stands there then", _stored(inquiry, f"topics/{topic}"), anew)


async def altered_of_brokers(inquiry: Inquiry) -> None:
    """What one edit does not name stays, of a broker and of all; at last there is what was there before."""
    number = inquiry.chance.choice(inquiry.brokers)
    for name, at in ((str(number), number), ("", inquiry.chance.choice((inquiry.brokers[-1], inquiry.controller())))):
        entity = f"brokers/{name or '<default>'}"
        before = _stored(inquiry, entity)
        for edit, more in (
            (("background.threads", SET, "9"), {"background.threads": "9"}),
            (("num.io.threads", SET, "7"), {"background.threads": "9", "num.io.threads": "7"}),
            (("background.threads", DELETE, None), {"num.io.threads": "7"}),
            (("num.io.threads", DELETE, None), {}),
        ):
            code = await _alter(inquiry, name, [edit], tries=False, kind=OF_BROKER, at=at)
            inquiry.expect_code(f"an edit {edit} of {entity}", code)
            inquiry.expect(f"what stands there after {edit}", _stored(inquiry, entity), {**before, **more})


#: (setting, value, how setting it goes) of a broker, one after the other; a value of None takes it back. In between is
#: time for it to be in force. A thread count goes up to twice what it was, or down to half of it, also when taken back.
_LIMITS: Final = (
    *(("log.retention.ms", "0", False), ("zookeeper.session.timeout.ms", "9000", False)),
    *(("log.cleaner.threads", "0", False), ("max.connections.per.ip", "0", False), ("background.threads", "x", False)),
    *(("num.io.threads", "17", False), ("num.io.threads", "3", False), ("num.io.threads", "16", True)),
    *(("num.io.threads", "32", True), ("num.io.threads", None, False), ("num.io.threads", "16", True)),
    *(("num.io.threads", None, True), ("num.network.threads", "1", True), ("num.network.threads", None, False)),
    *(("num.network.threads", "2", True), ("num.network.threads", None, True)),
)


async def limits_of_brokers(inquiry: Inquiry) -> None:
    """What a broker cannot be set to is refused, and changes nothing; so is what is set for a broker that cannot be."""
    number = inquiry.chance.choice(inquiry.brokers)
    entity = f"brokers/{number}"
    before = right = _stored(inquiry, entity)
    for name, value, is_taken in _LIMITS:
        edit = name, DELETE if value is None else SET, value
        code = await _alter(inquiry, str(number), [edit], tries=False, kind=OF_BROKER, at=number)
        refused = ErrorCode.NONE if is_taken else ErrorCode.INVALID_REQUEST
        inquiry.expect_code(f"an edit {edit} of {entity}", code, refused)
        if is_taken:
            right = {**before} if value is None else {**before, name: value}
        inquiry.expect(f"what stands there after {edit}", _stored(inquiry, entity), right)
        await inquiry.cluster.world.sleep(1.0)
    for wrong in NO_BROKERS:
        code = await _alter(inquiry, wrong, [("background.threads", SET, "9")], tries=False, kind=OF_BROKER)
        inquiry.expect_code(f"an edit of broker {wrong[:9]}", code, ErrorCode.INVALID_REQUEST)


#: Settings of logs and replicas that a broker takes while it runs.
_OF_LOGS: Final = {"log.segment.bytes": "7654321", "log.retention.bytes": "7654321", "num.replica.fetchers": "2"}


async def in_force(inquiry: Inquiry) -> None:
    """A broker goes by a setting once it has notice of it, and by what it was started with once that is taken back."""
    number = inquiry.chance.choice(inquiry.brokers)
    name, value = inquiry.chance.choice(sorted(_OF_LOGS.items()))
    broker = inquiry.cluster.brokers[number]
    assert broker.replicas is not None
    before = broker.replicas.table.settings
    then = replace(before, **{name.replace(".", "_"): int(value)})  # type: ignore[arg-type]  # by name
    for kind, edit, right in (("set", (name, SET, value), then), ("taken back", (name, DELETE, None), before)):
        code = await _alter(inquiry, str(number), [edit], tries=False, kind=OF_BROKER, at=number)
        inquiry.expect_code(f"an edit {edit} of broker {number}", code)
        await inquiry.cluster.world.sleep(IN_FORCE_S)
        inquiry.expect(f"what is in force once {name} is {kind}", broker.replicas.table.settings, right)


async def _alter(
    inquiry: Inquiry,
    name: str,
    edits: Sequence[tuple[str, int, str | None]],
    *,
    tries: bool,
    kind: int = OF_TOPIC,
    at: int | None = None,
) -> int:
    rows = [{"name": config, "config_operation": operation, "value": value} for config, operation, value in edits]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    body = {"resources": [resource], "validate_only": tries}
    answer = await _ask_anybody(inquiry, ApiKey.INCREMENTAL_ALTER_CONFIGS, body, at=at)
    return int(answer.responses[0].error_code)


async def _ask_anybody(inquiry: Inquiry, api_key: ApiKey, body: Mapping[str, Any], *, at: int | None = None) -> Any:
    number = inquiry.chance.choice((*inquiry.brokers, inquiry.controller())) if at is None else at
    return await inquiry.ask(number, api_key, inquiry.chance.randint(0, 1), body)
