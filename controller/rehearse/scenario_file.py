"""Reads a scenario's file, its cluster and its plans, and refuses what cannot be rehearsed, with file and line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from controller.rehearse.feasible import impossible
from controller.rehearse.scenario import (
    EVENT_ADAPTER,
    EVENT_KINDS,
    FAULT_EVENTS,
    AddBroker,
    AnyEvent,
    Curve,
    ElectPreferred,
    OnBrokers,
    Rates,
    Reassign,
    RollingRestart,
    Scenario,
    ScenarioError,
    targets_of,
)
from controller.wire import cluster_file
from controller.wire.cluster_file import ClusterShape
from controller.wire.document_errors import Place, first_error, line_of
from controller.wire.fault_scenario import parse_time_ms

_TOP: Final = (
    "name", "cluster", "settings", "limits", "acks", "controllers", "broker_start", "broker_stop", "batch_bytes",
    "seed", "events", "faults", "end",
)  # fmt: skip
#: Nothing that a person plans takes longer.
END_MAX_MS: Final = 31 * 86_400_000


def load(path: Path, *, cluster: Path | None = None) -> Scenario:
    """The scenario in a file; `cluster` overrides the one it names. Raises ScenarioError, ClusterFileError."""
    text = _text(path)
    document, lines = _document(text, path.name)
    for key, line in lines.items():
        if key not in _TOP:
            raise ScenarioError(f"{path.name}, line {line}: {key!r} is not known; there are {', '.join(_TOP)}")
    shape, line_in_cluster = _cluster(document.pop("cluster", None), path, cluster, text)
    end_ms = _end(document.pop("end", "quiet"), f"{path.name}, line {lines.get('end', 1)}")
    rows = [*_rows(document.pop("events", []), "events", path.name), *_faults(document.pop("faults", []), path.name)]
    events = [_event(row, line, path.name) for row, line in rows]
    try:
        scenario = Scenario(name=str(document.pop("name", path.stem)), cluster=shape, **document)
    except ValidationError as error:
        place, message = first_error(error)
        raise ScenarioError(f"{path.name}, line {line_of(text, place)}: {message}") from error
    for place, message in impossible(shape, scenario.limits):
        raise ScenarioError(f"{line_in_cluster(place)}: {message}")
    return checked(
        scenario.model_copy(update={"events": tuple(sorted(events, key=lambda e: e.at)), "end_ms": end_ms}), path
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ScenarioError(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path} cannot be read: {error}") from error


def _document(text: str, name: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The document, and the line of each key at the top; each event has its own in `line`."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise ScenarioError(f"{name}, line {line}: not YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ScenarioError(f"{name}: not YAML: {error}") from error
    if not isinstance(document, dict) or not isinstance(root, yaml.MappingNode):
        raise ScenarioError(f"{name}: expected a mapping; there are {', '.join(_TOP)}")
    lines: dict[str, int] = {}
    for key, value in root.value:
        if key.value in lines:
            raise ScenarioError(f"{name}, line {key.start_mark.line + 1}: {key.value!r} is there twice")
        lines[str(key.value)] = key.start_mark.line + 1
        if key.value in ("events", "faults") and isinstance(value, yaml.SequenceNode):
            for row, node in zip(document[key.value], value.value, strict=True):
                if isinstance(row, dict):
                    row["line"] = node.start_mark.line + 1
    return document, lines


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


def _rows(value: Any, key: str, name: str) -> list[tuple[dict[str, Any], int]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ScenarioError(f"{name}: `{key}` must be a list")
    rows = []
    for number, row in enumerate(value, 1):
        if not isinstance(row, dict):
            raise ScenarioError(f"{name}: {key} {number} must be a mapping")
        rows.append((row, int(row.pop("line", 0))))
    return rows


def _faults(value: Any, name: str) -> list[tuple[dict[str, Any], int]]:
    rows = []
    for row, line in _rows(value, "faults", name):
        kind = row.pop("fault", None)
        if kind not in FAULT_EVENTS:
            allowed = ", ".join(FAULT_EVENTS)
            raise ScenarioError(f"{name}, line {line}: fault {kind!r} cannot be rehearsed; there are {allowed}")
        rows.append(({**row, "do": FAULT_EVENTS[kind]}, line))
    return rows


def _event(row: dict[str, Any], line: int, name: str) -> AnyEvent:
    if row.get("do") not in EVENT_KINDS:
        raise ScenarioError(
            f"{name}, line {line}: do: {row.get('do')!r} is not known; there are {', '.join(EVENT_KINDS)}"
        )
    try:
        return EVENT_ADAPTER.validate_python({**row, "line": line})
    except ValidationError as error:
        raise ScenarioError(f"{name}, line {line}: {_first(error)}") from error


def _end(value: Any, where: str) -> int | None:
    if value == "quiet":
        return None
    try:
        end_ms = parse_time_ms(value)
    except ValueError as error:
        raise ScenarioError(f"{where}: end: {error}, or `quiet`") from error
    if not 0 < end_ms <= END_MAX_MS:
        raise ScenarioError(f"{where}: end: must be longer than 0 and at most 31 days")
    return end_ms


def checked(scenario: Scenario, path: Path) -> Scenario:
    """The scenario, its plans read in. Raises ScenarioError for brokers, racks, topics and times that cannot be."""
    ids = {broker.id for broker in scenario.cluster.brokers}
    racks = {broker.rack for broker in scenario.cluster.brokers if broker.rack is not None}
    events = []
    for event in scenario.events:
        where = f"{path.name}, line {event.line}"
        if scenario.end_ms is not None and event.at >= scenario.end_ms:
            raise ScenarioError(f"{where}: at: is not before the end of the rehearsal")
        if isinstance(event, AddBroker):
            if event.id in ids:
                raise ScenarioError(f"{where}: broker {event.id} is there already")
            ids.add(event.id)
            racks |= {event.rack} if event.rack is not None else set()
        if isinstance(event, OnBrokers):
            _check_brokers(event, ids, racks, where)
        if isinstance(event, Reassign):
            event = _with_plan(event, path, where)
            _check_plan(event, scenario.cluster, ids, where)
        if isinstance(event, (Rates, Curve, ElectPreferred)) and event.topics:
            for topic in event.topics:
                if topic not in scenario.cluster.topics:
                    raise ScenarioError(f"{where}: topics: the cluster has no topic {topic!r}")
        events.append(event)
    return scenario.model_copy(update={"events": tuple(events)})


def _check_brokers(event: OnBrokers, ids: set[int], racks: set[str], where: str) -> None:
    missing = [broker for broker in event.broker or () if broker not in ids]
    if missing:
        raise ScenarioError(f"{where}: broker: the cluster has no broker {missing[0]}; it has {_some(sorted(ids))}")
    if event.rack is not None and event.rack not in racks:
        raise ScenarioError(f"{where}: rack: no broker is in rack {event.rack!r}; there are {_some(sorted(racks))}")
    if event.broker is None and event.rack is None and not isinstance(event, RollingRestart):
        raise ScenarioError(f"{where}: broker or rack: one of them is needed")


def _with_plan(event: Reassign, path: Path, where: str) -> Reassign:
    if (event.file is None) == (not event.partitions):
        raise ScenarioError(f"{where}: give either `file` or `partitions`")
    if event.file is None:
        return event
    try:
        document = json.loads(_text(path.parent / event.file))
    except ValueError as error:
        raise ScenarioError(f"{where}: file: {event.file} is not JSON: {error}") from error
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ScenarioError(f"{where}: file: {event.file} has no list `partitions`")
    return event.model_copy(update={"partitions": tuple(rows)})


def _check_plan(event: Reassign, cluster: ClusterShape, ids: set[int], where: str) -> None:
    for topic_partition, replicas in targets_of(event, where).items():
        topic = cluster.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            raise ScenarioError(f"{where}: the cluster has no partition {topic_partition}")
        missing = [replica for replica in replicas if replica not in ids]
        if missing:
            raise ScenarioError(
                f"{where}: {topic_partition}: the cluster has no broker {missing[0]}; it has {_some(sorted(ids))}"
            )


def _first(error: ValidationError) -> str:
    return first_error(error, hidden=EVENT_KINDS)[1]


def _some(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values[:10])) + (", ..." if len(values) > 10 else "")
