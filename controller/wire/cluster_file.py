"""`cluster.yaml`: the shape of a cluster at one moment, as a snapshot takes it and a rehearsal starts from it. Pure.

One document, YAML or JSON (which is YAML), readable and writable by hand; `docs/cluster-file.md` has an example. Sizes
are bytes, rates bytes per second, times ms since the epoch. What a snapshot could not learn is left out, and who reads
it says what it takes instead. A partition may be written short: `[1, 2, 3]` is its replicas, in sync, led by the
first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from controller.wire.document_errors import NotYaml, Place, WrongPlace, first_error, line_of, read
from controller.wire.sizes import SIZE_MAX
from controller.wire.types import INTERNAL_TOPICS, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition

#: The version of this form. A file of another one is refused: what its fields mean may have changed.
VERSION: Final = 1
#: Topics that Kafka makes for itself, in any version that a file may be of. Other names may begin with underscores:
#: people chose them. Source: `Topic.INTERNAL_TOPICS` of 3.9 and 4.x.
KAFKAS_OWN_TOPICS: Final = INTERNAL_TOPICS

NonNegative = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=0, le=SIZE_MAX)]
Rate = Annotated[float, Field(ge=0, le=SIZE_MAX, allow_inf_nan=False)]
Limit = Annotated[float, Field(gt=0, le=SIZE_MAX, allow_inf_nan=False)]


def _as_text(value: Any) -> Any:
    """A setting's value as people write it: 2 and true are text, too."""
    if not isinstance(value, Mapping):
        return value
    plain = {True: "true", False: "false"}
    return {
        k: plain[v] if isinstance(v, bool) else str(v) if isinstance(v, (int, float)) else v for k, v in value.items()
    }


Configs = Annotated[Mapping[str, str], BeforeValidator(_as_text)]


class ClusterFileError(ValueError):
    """A cluster file that cannot be used. The message names the file, the place, what is wrong and what is allowed."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LogDir(_Part):
    """One log directory of a broker; `capacity_bytes` is that of its volume (DescribeLogDirs v4), None: unknown."""

    path: str
    capacity_bytes: Size | None = None
    used_bytes: Size | None = None


class BrokerShape(_Part):
    """One broker. `link_bytes_per_s` holds for each direction, `disk_bytes_per_s` for writes and reads together."""

    id: NonNegative
    rack: str | None = None
    host: str | None = None
    log_dirs: tuple[LogDir, ...] = ()
    link_bytes_per_s: Limit | None = None
    disk_bytes_per_s: Limit | None = None
    configs: Configs = {}


class PartitionShape(_Part):
    """One partition. `bytes` is the size of one whole replica's log; `isr` and `leader` default to all and the first.

    `in_bytes_per_s` is what producers write, `out_bytes_per_s` what consumers read, replication not counted.
    """

    replicas: Annotated[tuple[NonNegative, ...], Field(min_length=1)]
    isr: tuple[NonNegative, ...] | None = None
    leader: int | None = None
    leader_epoch: NonNegative = 0
    adding_replicas: tuple[NonNegative, ...] = ()
    removing_replicas: tuple[NonNegative, ...] = ()
    bytes: Size = 0
    in_bytes_per_s: Rate = 0.0
    out_bytes_per_s: Rate = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("replicas", "isr", "adding_replicas", "removing_replicas"):
            ids = getattr(self, name) or ()
            if len(set(ids)) != len(ids):
                raise ValueError(f"{name} {list(ids)} names a broker twice")
        for name in ("isr", "adding_replicas", "removing_replicas"):
            beyond = set(getattr(self, name) or ()) - set(self.replicas)
            if beyond:
                raise ValueError(f"{name} has {sorted(beyond)}, not among replicas {list(self.replicas)}")
        if self.leader is not None and self.leader >= 0 and self.leader not in self.replicas:
            raise ValueError(f"leader {self.leader} is not among replicas {list(self.replicas)}")
        if (flaw := self._flaw()) is not None:
            raise ValueError(flaw)
        return self

    def _flaw(self) -> str | None:
        """Why a controller would take neither the assignment nor the state of this partition, or None."""
        replicas, adding, removing = (
            tuple(map(BrokerId, ids)) for ids in (self.replicas, self.adding_replicas, self.removing_replicas)
        )
        moving = ReplicaAssignment(replicas=replicas, adding_replicas=adding, removing_replicas=removing)
        if moving.is_being_reassigned and moving.flaw is not None:
            return f"adding_replicas, removing_replicas: {moving.flaw}"
        if self.leader_id is None:
            return None
        isr = tuple(map(BrokerId, self.in_sync))
        return LeaderAndIsr(leader=BrokerId(self.leader_id), isr=isr, leader_epoch=self.leader_epoch).flaw

    @property
    def in_sync(self) -> tuple[int, ...]:
        """The ISR; all replicas where the file has none."""
        return self.replicas if self.isr is None else self.isr

    @property
    def leader_id(self) -> int | None:
        """The leader: as written (-1 is none), else the first member of the ISR in the order of the replicas."""
        if self.leader is not None:
            return None if self.leader < 0 else self.leader
        return next((r for r in self.replicas if r in self.in_sync), None)


def _partition(value: Any) -> Any:
    return {"replicas": value} if isinstance(value, (list, tuple)) else value


class TopicShape(_Part):
    """One topic: its partitions by number from 0, and its overrides."""

    partitions: Annotated[tuple[Annotated[PartitionShape, BeforeValidator(_partition)], ...], Field(min_length=1)]
    configs: Configs = {}


class GroupShape(_Part):
    """One consumer group: committed offsets behind the end, by `topic-partition`."""

    state: str = ""
    members: NonNegative = 0
    lag: Mapping[str, NonNegative] = {}


class ClusterShape(_Part):
    """A whole cluster. `mode` says which rules its controller follows."""

    version: Literal[1] = 1
    taken_ms: NonNegative = 0
    source: str = ""
    mode: Literal["zookeeper", "kraft"] = "zookeeper"
    brokers: Annotated[tuple[BrokerShape, ...], Field(min_length=1)]
    configs: Configs = {}
    topics: Mapping[str, TopicShape] = {}
    groups: Mapping[str, GroupShape] = {}

    @model_validator(mode="after")
    def _check(self) -> Self:
        ids = [broker.id for broker in self.brokers]
        for number, broker_id in enumerate(ids):
            if broker_id in ids[:number]:
                raise WrongPlace(("brokers", number, "id"), f"broker {broker_id} is there twice")
        broker_ids = set(ids)
        for tp, shape in self.partitions():
            beyond = set(shape.replicas) - broker_ids
            if beyond:
                place = ("topics", tp.topic, "partitions", tp.partition)
                raise WrongPlace(place, f"{tp}: no broker {sorted(beyond)} among brokers {_some(ids)}")
        return self

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionShape]]:
        """Every partition, topics in the order of the file."""
        for name, topic in self.topics.items():
            for number, shape in enumerate(topic.partitions):
                yield TopicPartition(name, number), shape

    def broker(self, broker_id: BrokerId) -> BrokerShape:
        """That broker. Raises KeyError."""
        return next(broker for broker in self.brokers if broker.id == broker_id)


def parse(text: str, name: str = "cluster.yaml") -> ClusterShape:
    """The cluster in a file's text. Raises ClusterFileError."""
    try:
        document = read(text, name)
    except NotYaml as error:
        raise ClusterFileError(str(error)) from error
    return shape_of(document, name, lambda place: line_of(text, place))


def shape_of(document: Any, name: str, line: Callable[[Place], int | None] = lambda _: None) -> ClusterShape:
    """The cluster in a parsed document; `line` finds the line of a place in it. Raises ClusterFileError."""
    if not isinstance(document, Mapping):
        raise ClusterFileError(f"{name}: expected a mapping with `brokers` and `topics`")
    version = document.get("version", VERSION)
    if version != VERSION:
        number = line(("version",))
        where = name if number is None else f"{name}, line {number}"
        raise ClusterFileError(
            f"{where}: version {version!r}; this kwob reads version {VERSION}: take the snapshot again"
        )
    try:
        return ClusterShape.model_validate(document)
    except ValidationError as error:
        place, message = first_error(error)
        number = line(place)
        raise ClusterFileError(f"{name}{'' if number is None else f', line {number}'}: {message}") from error


def dump(shape: ClusterShape) -> str:
    """The text of a cluster file; `parse` reads it back equal."""
    return yaml.dump(
        shape.model_dump(mode="json", exclude_defaults=True) | {"version": VERSION},
        Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=120,
    )


def _some(ids: list[int]) -> str:
    return ", ".join(map(str, ids[:10])) + (", ..." if len(ids) > 10 else "")
