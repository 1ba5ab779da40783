"""A decoded record as a flat row: what crosses the border to Arrow. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker_sim.replay.metadata_log import schemas
from broker_sim.replay.metadata_log.decode import Fields
from broker_sim.replay.metadata_log.segments import CONTROL, Found, Problem

#: Columns of a record that are looked at; `int` where not named. A field that a change leaves as it was is null.
RECORD_TYPES: Final = {
    **dict.fromkeys(("folder", "file", "topic_id", "topic", "incarnation", "rack", "end_points"), "string"),
    **dict.fromkeys(("name", "key", "value", "problem"), "string"),
    **dict.fromkeys(("snapshot", "offset", "ts", "broker_epoch"), "bigint"),
    **dict.fromkeys(("isr", "replicas", "adding", "removing", "elr", "last_known_elr"), "array<int>"),
}
RECORD_COLUMNS: Final = (
    "folder", "file", "snapshot", "offset", "ts", "epoch", "api_key", "version",
    "topic_id", "topic", "partition", "leader", "leader_epoch", "partition_epoch", "isr", "replicas", "adding",
    "removing", "elr", "last_known_elr", "recovering", "broker", "broker_epoch", "incarnation", "rack", "end_points",
    "fenced", "stopping", "resource", "name", "key", "value", "problem",
)  # fmt: skip
RECORD_DDL: Final = ", ".join(f"`{name}` {RECORD_TYPES.get(name, 'int')}" for name in RECORD_COLUMNS)

#: Kafka's name of a field -> the column, for records of partitions.
_PARTITION: Final = {
    "partitionId": "partition",
    "topicId": "topic_id",
    "leader": "leader",
    "leaderEpoch": "leader_epoch",
    "partitionEpoch": "partition_epoch",
    "isr": "isr",
    "replicas": "replicas",
    "addingReplicas": "adding",
    "removingReplicas": "removing",
    "eligibleLeaderReplicas": "elr",
    "lastKnownElr": "last_known_elr",
    "leaderRecoveryState": "recovering",
}
_UNCHANGED: Final = {"leader": -2, "recovering": -1}


def record_row(folder: str, file: str, snapshot: int | None, found: Found) -> tuple[Any, ...]:
    """The row of a record."""
    record = found.record
    columns = {
        "folder": folder,
        "file": file,
        "snapshot": snapshot,
        "offset": found.offset,
        "ts": found.ts,
        "epoch": found.epoch,
        "api_key": record.api_key,
        "version": record.version,
    }
    if (of := _COLUMNS.get(record.api_key)) is not None:
        columns.update(of(record.fields))
    return tuple(map(columns.get, RECORD_COLUMNS))


def problem_row(folder: str, file: str, snapshot: int | None, problem: Problem) -> tuple[Any, ...]:
    """The row of what could not be decoded."""
    columns = {"folder": folder, "file": file, "snapshot": snapshot, "offset": problem.offset}
    columns.update(problem=problem.reason, value=problem.text)
    return tuple(map(columns.get, RECORD_COLUMNS))


def _partition(fields: Fields) -> Fields:
    named = {column: fields[name] for name, column in _PARTITION.items() if name in fields}
    return {column: value for column, value in named.items() if value != _UNCHANGED.get(column, _UNCHANGED)}


def _registered(fields: Fields) -> Fields:
    places = (f"{e['name']}://{e['host']}:{e['port']}" for e in fields["endPoints"])
    return {
        "broker": fields["brokerId"],
        "broker_epoch": fields["brokerEpoch"],
        "incarnation": fields["incarnationId"],
        "rack": fields["rack"],
        "end_points": " ".join(places),
        "fenced": int(fields["fenced"]),
        "stopping": int(fields["inControlledShutdown"]),
    }


def _registration_changed(fields: Fields) -> Fields:
    return {
        "broker": fields["brokerId"],
        "broker_epoch": fields["brokerEpoch"],
        "fenced": fields["fenced"],
        "stopping": fields["inControlledShutdown"],
    }


_COLUMNS: Final[dict[int, Callable[[Fields], Fields]]] = {
    CONTROL: lambda f: {"leader": f["leaderId"]},
    schemas.PARTITION: _partition,
    schemas.PARTITION_CHANGE: _partition,
    schemas.TOPIC: lambda f: {"topic_id": f["topicId"], "topic": f["name"]},
    schemas.REMOVE_TOPIC: lambda f: {"topic_id": f["topicId"]},
    schemas.CLEAR_ELR: lambda f: {"topic": f["topicName"]},
    schemas.REGISTER_BROKER: _registered,
    schemas.UNREGISTER_BROKER: lambda f: {"broker": f["brokerId"], "broker_epoch": f["brokerEpoch"]},
    schemas.FENCE_BROKER: lambda f: {"broker": f["id"], "broker_epoch": f["epoch"]},
    schemas.UNFENCE_BROKER: lambda f: {"broker": f["id"], "broker_epoch": f["epoch"]},
    schemas.BROKER_REGISTRATION_CHANGE: _registration_changed,
    schemas.CONFIG: lambda f: {
        "resource": f["resourceType"],
        "name": f["resourceName"],
        "key": f["name"],
        "value": f["value"],
    },
    schemas.FEATURE_LEVEL: lambda f: {"key": f["name"], "value": str(f["featureLevel"])},
}
