"""A scenario file: what is played, as values. What is wrong is refused with its line, before anything is played.

    cluster: {brokers: 3, controllers: 2, racks: [a, b, c]}   # without it: the running cluster of the data folder
    topics:
      - {topic: orders, partitions: 6, replication_factor: 3, configs: {min.insync.replicas: 2}}
    load:
      - {topic: orders, rate: 200}
    faults:                                                   # as in wire/fault_scenario.py
      - {at: 5s, for: 20s, fault: kill, rack: b}
    steps:
      - {at: 8s, do: kill_controller, controller: active, for: 10s}
      - {do: wait, until: full-isr, timeout: 60s}
    expect: {missing: 0, pause: 20s}

Each step is a command of kwob that one could type; `words` says which.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, get_args

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from controller.admin.checks.conditions import Condition
from controller.local.load.measure import KEYS_MAX, PAUSE_S, RATE_MAX, THREADS_MAX, parse_size
from controller.wire import fault_scenario
from controller.wire.document_errors import NotYaml, compose, line_of, read, words_of
from controller.wire.fault_rows import FaultError

#: Of a load that the scenario's end ends.
_FOR_EVER: Final = "168h"


def _words_of(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _size(value: Any) -> str:
    parse_size(str(value))
    return str(value)


Time = Annotated[int, BeforeValidator(fault_scenario.parse_time_ms), Field(ge=0)]
NotNegative = Annotated[int, Field(ge=0)]
Names = Annotated[tuple[str, ...], BeforeValidator(_words_of), Field(min_length=1)]
ACTIVE: Final = "active"
ControllerId = Literal["active"] | Annotated[int, Field(ge=0)]


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClusterPart(_Row):
    """The cluster that is started for the scenario, and ended after it: flags of `kwob up`."""

    brokers: int = Field(default=3, ge=1, le=200)
    controllers: int = Field(default=1, ge=1, le=9)
    racks: Annotated[tuple[str, ...], BeforeValidator(_words_of)] = ()
    log_dirs: int = Field(default=1, ge=1, le=16)
    bootstrap_port: int = Field(default=9092, ge=1, le=65_000)
    zookeeper_port: int = Field(default=2181, ge=1, le=65_535)
    settings: Mapping[str, Any] = Field(default_factory=dict)

    def words(self) -> list[str]:
        """The command's words."""
        words = ["up", *_flags(self, "brokers", "controllers", "log_dirs", "bootstrap_port", "zookeeper_port")]
        words += ["--racks", ",".join(self.racks)] if self.racks else []
        return words + [
            word for name, value in self.settings.items() for word in ("--override", f"{name}={text_of(value)}")
        ]


class TopicPart(_Row):
    """A topic that there shall be before the scenario begins."""

    topic: str
    partitions: int = Field(default=1, ge=1)
    replication_factor: int = Field(default=1, ge=1)
    configs: Mapping[str, Any] = Field(default_factory=dict)

    def words(self) -> list[str]:
        """The command's words."""
        words = ["topics", "--create", "--if-not-exists", *_flags(self, "topic", "partitions", "replication_factor")]
        return words + [
            word for name, value in self.configs.items() for word in ("--config", f"{name}={text_of(value)}")
        ]


class LoadPart(_Row):
    """A load, from `at` until `for` is over, else until the scenario's end."""

    topic: Names
    at: Time = 0
    lasts: Time | None = Field(default=None, alias="for")
    rate: float = Field(default=100, ge=0, lt=RATE_MAX)
    size: Annotated[str, BeforeValidator(_size)] = "100"
    keys: int = Field(default=0, ge=0, le=KEYS_MAX)
    acks: Annotated[Literal["all", "1", "0"], BeforeValidator(str)] = "all"
    producers: int = Field(default=1, ge=1, le=THREADS_MAX)
    groups: int = Field(default=1, ge=0, le=THREADS_MAX)
    consumers: int = Field(default=1, ge=1, le=THREADS_MAX)

    def words(self) -> list[str]:
        """The command's words."""
        flags = _flags(self, "rate", "size", "keys", "acks", "producers", "groups", "consumers")
        duration = _FOR_EVER if self.lasts is None else f"{self.lasts}ms"
        return ["load", "--topic", ",".join(self.topic), *flags, "--json", "--duration", duration]


class _Step(_Row):
    at: Time | None = None


class OnBroker(_Step):
    """A broker is killed, stopped or started."""

    do: Literal["kill_broker", "stop_broker", "start_broker"]
    broker: int = Field(ge=0)

    def words(self) -> list[str]:
        """The command's words."""
        return ["broker", self.do.partition("_")[0], str(self.broker)]


class OnController(_Step):
    """A controller is killed, stopped or started; after `for` it is started again."""

    do: Literal["kill_controller", "stop_controller", "start_controller"]
    controller: ControllerId
    lasts: Time | None = Field(default=None, alias="for")

    def words(self) -> list[str]:
        """The command's words."""
        return ["controller", self.do.partition("_")[0], str(self.controller)]


class Wait(_Step):
    """The next step comes once this holds; that it does not in time is a failure of the scenario."""

    do: Literal["wait"]
    until: Annotated[tuple[Condition, ...], BeforeValidator(_words_of), Field(min_length=1)]
    topic: Names | None = None
    timeout: Time = 60_000

    def words(self) -> list[str]:
        """The command's words."""
        topics = [] if self.topic is None else ["--topic", ",".join(self.topic)]
        return ["wait", "--until", ",".join(self.until), *topics, "--timeout", f"{self.timeout}ms"]


class Check(_Step):
    """All statements of `kwob check` hold, at the latest after `timeout`."""

    do: Literal["check"]
    timeout: Time = 15_000

    def words(self) -> list[str]:
        """The command's words."""
        return ["check", "--timeout", f"{self.timeout}ms"]


class Run(_Step):
    """Any command of kwob; its exit code must be 0."""

    do: Literal["run"]
    command: str

    def words(self) -> list[str]:
        """The command's words."""
        words = shlex.split(self.command)
        return words[1:] if words[:1] == ["kwob"] else words


Step = Annotated[OnBroker | OnController | Wait | Check | Run, Field(discriminator="do")]
#: what `do` says -> which step that is
_STEPS: Final[dict[str, type[_Step]]] = {
    do: kind
    for kind in (OnBroker, OnController, Wait, Check, Run)
    for do in get_args(kind.model_fields["do"].annotation)
}


class Expect(_Row):
    """What must hold at the end. What is None is not looked at."""

    #: Acknowledged records that cannot be read back, at most, of all loads.
    missing: NotNegative | None = 0
    #: The longest time for which a partition acknowledged nothing, at most. Shorter ones than a second are not told.
    pause: Annotated[Time, Field(ge=round(PAUSE_S * 1000))] | None = None
    #: 99 of 100 records are acknowledged within this.
    latency_p99: Time | None = None
    #: Records that producers gave up on, at most.
    failed: NotNegative | None = None
    #: Records that were acknowledged, at least.
    acknowledged: NotNegative | None = None
    #: Whether the statements of `kwob check` hold at the end, within half a minute.
    check: bool = True


class Scenario(_Row):
    """A whole file. `length_ms` covers its faults, loads and steps with a time, and its `end`."""

    cluster: ClusterPart | None = None
    topics: tuple[TopicPart, ...] = ()
    load: tuple[LoadPart, ...] = ()
    steps: tuple[Step, ...] = ()
    expect: Expect = Expect()
    faults: fault_scenario.Scenario = fault_scenario.Scenario(steps=(), length_ms=0)
    length_ms: int = 0


def parse(text: str, name: str) -> Scenario:
    """The scenario in a file's text. Raises: FaultError: file, line, what is wrong and what is allowed."""
    faults = fault_scenario.parse(text, name, beside=fault_scenario.PARTS)
    try:
        root, values = compose(text, name), read(text, name)
    except NotYaml as error:
        raise FaultError(str(error)) from error
    document = {key: value for key, value in values.items() if key in fault_scenario.PARTS}
    try:
        scenario = Scenario.model_validate({key: value for key, value in document.items() if value is not None})
    except ValidationError as error:
        raise FaultError(_first(error, root, name)) from error
    for number, step in enumerate(scenario.steps):
        try:
            if not step.words():
                raise ValueError("a command of kwob is expected")
        except ValueError as error:  # quotes that are not closed
            line = line_of(text, ("steps", number))
            raise FaultError(f"{name}, line {line}: steps {number + 1} command: {error}") from error
    times = [step.at or 0 for step in scenario.steps]
    loads = [load.at + (load.lasts or 0) for load in scenario.load]
    length_ms = max([faults.length_ms, *times, *loads])
    for number, load in enumerate(scenario.load):
        if load.lasts is None and load.at >= length_ms and not scenario.steps:
            line, at = line_of(text, ("load", number)), fault_scenario.format_time(load.at)
            raise FaultError(
                f"{name}, line {line}: a load begins at {at} and ends at once; give it `for`, or the file an `end`"
            )
    return scenario.model_copy(update={"faults": faults, "length_ms": length_ms})


def _first(error: ValidationError, root: yaml.Node, name: str) -> str:
    """The first thing that is wrong, with the line of the nearest node that there is."""
    first = error.errors()[0]
    node: yaml.Node = root
    place: list[str] = []
    for key in first["loc"]:
        below = _below(node, key)
        if below is not None:
            node = below
        if below is not None or key == first["loc"][-1]:
            place.append(str(key + 1) if isinstance(key, int) else str(key))
    return f"{name}, line {node.start_mark.line + 1}: {' '.join(place)}: {_what(first)}"


#: A part of a file -> what it, or each of its rows, has.
_PARTS: Final[dict[str, type[_Row]]] = {"cluster": ClusterPart, "topics": TopicPart, "load": LoadPart, "expect": Expect}


def _what(detail: Any) -> str:
    """What is wrong, and what there is; with the value, unless the words have it."""
    kind, place, value = detail["type"], detail["loc"], detail.get("input")
    if kind == "union_tag_invalid":
        return f"do: {detail['ctx']['tag']!r} is not known; there are {', '.join(_STEPS)}"
    if kind == "union_tag_not_found":
        return f"do: is missing; there are {', '.join(_STEPS)}"
    words = words_of(detail)
    if kind == "extra_forbidden":
        row = _STEPS[place[2]] if place[0] == "steps" else _PARTS[place[0]]
        return f"{words}; there are {', '.join(f.alias or column for column, f in row.model_fields.items())}"
    has_value = kind == "value_error" or words.endswith(f"not {value!r}")
    return words if has_value or not isinstance(value, str | int | float) else f"{words} (given: {value!r})"


def _below(node: yaml.Node, key: object) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        item: yaml.Node = node.value[key]
        return item
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    return None


def _flags(row: BaseModel, *names: str) -> list[str]:
    return [word for name in names for word in (f"--{name.replace('_', '-')}", text_of(getattr(row, name)))]


def text_of(value: Any) -> str:
    """A value as one types it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
