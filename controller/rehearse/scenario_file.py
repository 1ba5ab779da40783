"""Reads a scenario's file, its cluster and its plans, and refuses what cannot be rehearsed, with file and line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from controller.rehearse import wrong_settings
from controller.rehearse.clock import clock
from controller.rehearse.collector import seldom_collected
from controller.rehearse.fault_events import fault_event
from controller.rehearse.feasible import impossible
from controller.rehearse.scenario import (
    EVENT_ADAPTER,
    EVENT_KINDS,
    EVENT_TYPES,
    ID_MAX,
    AddBroker,
    AnyEvent,
    Curve,
    CutLink,
    ElectPreferred,
    ExpireSession,
    OnBrokers,
    PauseReplication,
    Rates,
    Reassign,
    RollingRestart,
    Scenario,
    ScenarioError,
    Slow,
    parse_ms,
    targets_of,
)
from controller.wire import cluster_file
from controller.wire.cluster_file import ClusterShape
from controller.wire.document_errors import NotYaml, Place, compose, first_error, line_of, read

_TOP: Final = (
    "name", "cluster", "settings", "limits", "acks", "controllers", "broker_start", "broker_stop", "batch_bytes",
    "seed", "events", "faults", "end",
)  # fmt: skip
#: kind of event -> its columns, as they are written.
_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    kind.model_fields["do"].annotation.__args__[0]: [
        "do", "at", *(f.alias or name for name, f in kind.model_fields.items() if name not in ("do", "at", "line")),
    ]
    for kind in EVENT_TYPES
}  # fmt: skip
#: In a plan: whichever directory the broker chooses.
_ANY_DIR: Final = "any"


@seldom_collected()
def load(path: Path, *, cluster: Path | None = None) -> Scenario:
    """The scenario in a file; `cluster` overrides the one it names. Raises ScenarioError, ClusterFileError."""
    text = _text(path)
    document, lines, rows_at = _document(text, path.name)
    for key, line in lines.items():
        if key not in _TOP:
            raise ScenarioError(f"{path.name}, line {line}: {key!r} is not known; there are {', '.join(_TOP)}")
    shape, line_in_cluster = _cluster(document.pop("cluster", None), path, cluster, text)
    end_ms = _end(document.pop("end", "quiet"), f"{path.name}, line {lines.get('end', 1)}")
    rows = _rows(document, "events", rows_at, path.name)
    for row, line in _rows(document, "faults", rows_at, path.name):
        rows.append((fault_event(row, f"{path.name}, line {line}"), line))
    events = [_event(row, line, path.name) for row, line in rows]
    try:
        scenario = Scenario(name=str(document.pop("name", path.stem)), cluster=shape, **document)
    except ValidationError as error:
        place, message = first_error(error)
        raise ScenarioError(f"{path.name}, line {line_of(text, place)}: {message}") from error
    for place, message in wrong_settings.in_scenario(scenario.settings, shape):
        raise ScenarioError(f"{path.name}, line {line_of(text, place)}: {message}")
    for place, message in (
        *wrong_settings.in_cluster(shape, scenario.settings),
        *impossible(shape, scenario.limits),
    ):
        raise ScenarioError(f"{line_in_cluster(place)}: {message}")
    for number, broker in enumerate(shape.brokers):
        if broker.id > ID_MAX:
            raise ScenarioError(f"{line_in_cluster(('brokers', number, 'id'))}: id: {broker.id} is more than {ID_MAX}")
    for message in wrong_settings.together(shape, scenario.settings):
        raise ScenarioError(f"{path.name}, line {lines.get('settings', lines.get('cluster', 1))}: {message}")
    return checked(
        scenario.model_copy(update={"events": tuple(sorted(events, key=lambda e: e.at)), "end_ms": end_ms}), path
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScenarioError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise ScenarioError(f"{path} is a folder; expected a file") from None
    except UnicodeDecodeError as error:
        raise ScenarioError(
            f"{path} is no text in UTF-8: byte {error.start} is {error.object[error.start]:#x}"
        ) from error
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read: {error.strerror}") from error


def _document(text: str, name: str) -> tuple[dict[str, Any], dict[str, int], dict[str, list[int]]]:
    """The document, the line of each key at the top, and those of the rows of each list there."""
    try:
        document, root = read(text, name), compose(text, name)
    except NotYaml as error:
        raise ScenarioError(str(error)) from error
    if not isinstance(document, dict) or not isinstance(root, yaml.MappingNode):
        raise ScenarioError(f"{name}, line 1: expected a mapping; there are {', '.join(_TOP)}")
    lines: dict[str, int] = {}
    rows_at: dict[str, list[int]] = {}
    for key, value in root.value:
        lines[str(key.value)] = key.start_mark.line + 1
        if isinstance(value, yaml.SequenceNode):
            rows_at[str(key.value)] = [node.start_mark.line + 1 for node in value.value]
    return document, lines, rows_at


def _cluster(value: Any, path: Path, override: Path | None, text: str) -> tuple[ClusterShape, Callable[[Place], str]]:
    """The cluster, and where a place in it is: file and line."""
    if override is not None or isinstance(value, str):
        file = override or path.parent / str(value)
        its_text = _text(file)
        return cluster_file.parse(its_text, file.name), lambda place: f"{file.name}, line {line_of(its_text, place)}"
    if value is None:
        raise ScenarioError(f"{path.name}: `cluster` is missing: a file, or a mapping with `brokers` and `topics`")

    def line(place: Place) -> int | None:
        return line_of(text, ("cluster", *place))

    return cluster_file.shape_of(value, path.name, line), lambda place: f"{path.name}, line {line(place)}"


def _rows(
    document: dict[str, Any], key: str, rows_at: Mapping[str, Sequence[int]], name: str
) -> list[tuple[dict[str, Any], int]]:
    """The rows of a list at the top, taken out of the document, with their lines."""
    value = document.pop(key, [])
    if not isinstance(value, list):
        raise ScenarioError(f"{name}: `{key}` must be a list")
    rows = []
    for row, line in zip(value, rows_at.get(key, ()), strict=True):
        if not isinstance(row, dict) or not all(isinstance(column, str) for column in row):
            raise ScenarioError(f"{name}, line {line}: each of `{key}` must be a mapping of names to values")
        if "line" in row:
            raise ScenarioError(f"{name}, line {line}: line: not known")
        rows.append((row, line))
    return rows


def _event(row: dict[str, Any], line: int, name: str) -> AnyEvent:
    if "do" not in row:
        raise ScenarioError(f"{name}, line {line}: `do` is missing, what happens; there are {', '.join(EVENT_KINDS)}")
    if row["do"] not in EVENT_KINDS:
        raise ScenarioError(f"{name}, line {line}: do: {row['do']!r} is not known; there are {', '.join(EVENT_KINDS)}")
    columns = _COLUMNS[row["do"]]
    if unknown := [column for column in row if column not in columns]:
        allowed = ", ".join(columns)
        raise ScenarioError(f"{name}, line {line}: {unknown[0]}: not known; {row['do']} has {allowed}")
    try:
        return EVENT_ADAPTER.validate_python({**row, "line": line})
    except ValidationError as error:
        raise ScenarioError(f"{name}, line {line}: {_first(error)}") from error


def _end(value: Any, where: str) -> int | None:
    if value == "quiet":
        return None
    try:
        end_ms = parse_ms(value)
    except ValueError as error:
        raise ScenarioError(f"{where}: end: {error}, or `quiet`") from error
    if not end_ms:
        raise ScenarioError(f"{where}: end: must be longer than 0")
    return end_ms


def checked(scenario: Scenario, path: Path) -> Scenario:
    """The scenario, its plans read in. Raises ScenarioError for brokers, racks, topics and times that cannot be."""
    racks = {broker.id: broker.rack for broker in scenario.cluster.brokers}
    joining = {event.id: event.rack for event in scenario.events if isinstance(event, AddBroker)}
    events = []
    for event in scenario.events:
        where = f"{path.name}, line {event.line}"
        if scenario.end_ms is not None and event.at >= scenario.end_ms:
            raise ScenarioError(
                f"{where}: at: {clock(event.at)} is not before the end of the rehearsal, {clock(scenario.end_ms)}"
            )
        if isinstance(event, AddBroker):
            if event.id in racks:
                raise ScenarioError(f"{where}: broker {event.id} is there already")
            racks[event.id] = event.rack
            if event.spread:
                _check_racks({**racks, **joining}, where)
        if isinstance(event, OnBrokers):
            _check_brokers(event, racks, where)
        if isinstance(event, Reassign):
            event, row_at = _with_plan(event, path, where)
            _check_plan(event, scenario.cluster, set(racks), row_at)
        if isinstance(event, Slow) and event.link is None and event.disk is None:
            raise ScenarioError(f"{where}: link or disk: one of them is needed, bytes per second as 20MB")
        if isinstance(event, ExpireSession) and scenario.cluster.mode == "kraft":
            raise ScenarioError(f"{where}: do: expire_session: brokers of a KRaft cluster have no ZooKeeper session")
        _check_topics(event, scenario.cluster, where)
        events.append(event)
    return scenario.model_copy(update={"events": tuple(events)})


def _check_topics(event: AnyEvent, cluster: ClusterShape, where: str) -> None:
    if isinstance(event, (Rates, Curve, ElectPreferred)):
        for topic in event.topics or ():
            if topic not in cluster.topics:
                raise ScenarioError(f"{where}: topics: the cluster has no topic {topic!r}")
    if isinstance(event, PauseReplication):
        if event.topic is not None and event.topic not in cluster.topics:
            raise ScenarioError(f"{where}: topic: the cluster has no topic {event.topic!r}")
        if event.partition is not None and event.topic is None:
            raise ScenarioError(f"{where}: partition: needs a topic")
        if event.topic and event.partition is not None:
            count = len(cluster.topics[event.topic].partitions)
            if event.partition >= count:
                raise ScenarioError(f"{where}: partition: {event.topic} has {count} partitions")


def _check_racks(racks: Mapping[int, str | None], where: str) -> None:
    """Of brokers that partitions are spread over: Kafka places them by rack where all have one, or none has."""
    without = sorted(broker for broker, rack in racks.items() if rack is None)
    if without and len(without) < len(racks):
        raise ScenarioError(
            f"{where}: spread: partitions are spread over brokers that all have a rack, or none of them; without one "
            f"{'is' if len(without) == 1 else 'are'} {_some(without)}"
        )


def _check_brokers(event: OnBrokers, racks: Mapping[int, str | None], where: str) -> None:
    missing = [broker for broker in event.broker or () if broker not in racks]
    if missing:
        raise ScenarioError(f"{where}: broker: the cluster has no broker {missing[0]}; it has {_some(sorted(racks))}")
    if event.rack is not None and event.rack not in racks.values():
        there = _some(sorted({rack for rack in racks.values() if rack is not None}))
        raise ScenarioError(f"{where}: rack: no broker is in rack {event.rack!r}; there are {there}")
    if event.broker is None and event.rack is None and not isinstance(event, RollingRestart):
        raise ScenarioError(f"{where}: broker or rack: one of them is needed")
    concerned = event.among(racks)
    if not concerned:
        raise ScenarioError(f"{where}: broker and rack: none of {_some(event.broker or ())} is in rack {event.rack!r}")
    if isinstance(event, CutLink) and event.peer is not None:
        if event.peer not in racks:
            raise ScenarioError(f"{where}: peer: the cluster has no broker {event.peer}; it has {_some(sorted(racks))}")
        if concerned == [event.peer]:
            raise ScenarioError(f"{where}: peer: broker {event.peer} has no link to itself")


def _with_plan(event: Reassign, path: Path, where: str) -> tuple[Reassign, Callable[[int], str]]:
    """The event with its plan read in, and where a row of that is: file and line."""
    if (event.file is None) == (not event.partitions):
        raise ScenarioError(f"{where}: give either `file` or `partitions`")
    if event.file is None:
        return event, lambda number: f"{where}: row {number + 1} of partitions"
    try:
        text = _text(path.parent / event.file)
    except ScenarioError as error:
        raise ScenarioError(f"{where}: file: {error}") from error
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise ScenarioError(f"{where}: file: {event.file}, line {error.lineno}: not JSON: {error.msg}") from error
    except ValueError as error:
        raise ScenarioError(f"{where}: file: {event.file} is not JSON: {error}") from error
    except RecursionError as error:
        raise ScenarioError(f"{where}: file: {event.file} is nested too deep") from error
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ScenarioError(f"{where}: file: {event.file} has no list `partitions` of objects")
    if document.get("version", 1) != 1:
        raise ScenarioError(f"{where}: file: {event.file} is of version {document['version']!r}; expected version 1")
    if not rows:
        raise ScenarioError(f"{where}: file: {event.file}: partitions: is empty; expected at least one to be moved")
    name = event.file
    return (
        event.model_copy(update={"partitions": tuple(rows)}),
        lambda number: f"{where}: {name}, line {line_of(text, ('partitions', number))}",
    )


def _check_plan(event: Reassign, cluster: ClusterShape, ids: set[int], row_at: Callable[[int], str]) -> None:
    dirs = {b.id: [log_dir.path for log_dir in b.log_dirs] for b in cluster.brokers if b.log_dirs}
    for number, (topic_partition, replicas) in enumerate(targets_of(event, row_at).items()):
        topic = cluster.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            there = _some(list(cluster.topics)) if topic is None else f"0 to {len(topic.partitions) - 1}"
            raise ScenarioError(f"{row_at(number)}: the cluster has no partition {topic_partition}; there are {there}")
        missing = [replica for replica in replicas if replica not in ids]
        if missing:
            has = _some(sorted(ids))
            raise ScenarioError(
                f"{row_at(number)}: {topic_partition}: the cluster has no broker {missing[0]}; it has {has}"
            )
        for replica, log_dir in zip(replicas, event.partitions[number].get("log_dirs", ()), strict=False):
            if log_dir != _ANY_DIR and replica in dirs and log_dir not in dirs[replica]:
                raise ScenarioError(
                    f"{row_at(number)}: {topic_partition}: log_dirs: broker {replica} has no directory {log_dir!r}; "
                    f"there are {_ANY_DIR}, {_some(dirs[replica])}"
                )


def _first(error: ValidationError) -> str:
    return first_error(error, hidden=EVENT_KINDS)[1]


def _some(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values[:10])) + (", ..." if len(values) > 10 else "")
