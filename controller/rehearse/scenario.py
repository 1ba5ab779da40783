"""A rehearsal's scenario: what happens when, to which cluster, and when the rehearsal ends. Pure.

    cluster: cluster.yaml           # a path beside the scenario, or the cluster itself (wire/cluster_file)
    settings: {replica.lag.time.max.ms: 30000}
    limits: {link: 125MB, disk: 200MB}      # of every broker that the cluster file gives none, per second
    events:
      - {at: 0s,  do: reassign, file: plan.json, throttle: 50MB, batch: 200}
      - {at: 40m, for: 10m, do: kill, rack: b}
      - {at: 2h,  do: rolling_restart, down: 30s, wait: full_isr}
    end: quiet                      # or a time; default: when nothing moves any more

`faults`, as in the scenarios of `kwob fault run`, is another way to write events of those kinds (`fault_events`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, field_validator

from controller.wire.cluster_file import ClusterShape
from controller.wire.fault_scenario import parse_time_ms
from controller.wire.sizes import parse_bytes
from controller.wire.types import TopicPartition


class ScenarioError(ValueError):
    """A scenario that cannot be rehearsed. The message names file, line, what is wrong and what is allowed."""


#: Nothing that a person plans takes longer.
END_MAX_MS: Final = 31 * 86_400_000
#: Of a broker: controllers of a rehearsal have ids above those of all brokers, and an id has 31 bits.
ID_MAX: Final = 2_147_483_000


def parse_ms(value: Any) -> int:
    """A time of a rehearsal, in ms: as `parse_time_ms`, up to `END_MAX_MS`. Raises ValueError."""
    return parse_time_ms(value, max_ms=END_MAX_MS)


def _broker_ids(value: Any) -> Any:
    ids = value if isinstance(value, (list, tuple)) else (value,)
    if value is not None and not (ids and all(type(broker) is int for broker in ids)):
        raise ValueError(f"expected a broker's id or a list of ids, not {value!r}")
    return None if value is None else tuple(ids)


Ms = Annotated[int, BeforeValidator(parse_ms)]
Bytes = Annotated[float, BeforeValidator(parse_bytes), Field(gt=0)]
#: Of a throttle: Kafka's are whole bytes per second, and one of 0 lets nothing through.
Rate = Annotated[float, BeforeValidator(parse_bytes), Field(ge=1)]
Brokers = Annotated[tuple[int, ...] | None, BeforeValidator(_broker_ids)]


#: Of rates: what any number of bytes grows to by it is still a number.
Factor = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    at: Ms = 0
    #: line of the file, for messages
    line: int = 0


_Id = TypeVar("_Id", bound=int)


class OnBrokers(_Event):
    """An event that names brokers, one by one or by rack."""

    broker: Brokers = None
    rack: str | None = None

    def among(self, racks: Mapping[_Id, str | None]) -> list[_Id]:
        """Those of the brokers that it names, by id; with both columns those of the list that are in the rack."""
        return [
            broker
            for broker in sorted(racks)
            if (self.broker is None or broker in self.broker) and self.rack in (None, racks[broker])
        ]


class Kill(OnBrokers):
    """Brokers end as by SIGKILL; `for` later they start again, without it never."""

    do: Literal["kill"]
    for_: Annotated[Ms | None, Field(alias="for")] = None


class Stop(OnBrokers):
    """Controlled shutdown; `for` later they start again, without it never."""

    do: Literal["stop"]
    for_: Annotated[Ms | None, Field(alias="for")] = None


class Start(OnBrokers):
    """Brokers that are down start again."""

    do: Literal["start"]


class PauseReplication(OnBrokers):
    """The brokers' followers do not fetch."""

    do: Literal["pause_replication"]
    topic: str | None = None
    partition: Annotated[int | None, Field(ge=0)] = None
    for_: Annotated[Ms | None, Field(alias="for")] = None


class CutLink(OnBrokers):
    """Nothing passes between the brokers and `peer`; without it nothing passes their whole network."""

    do: Literal["cut_link"]
    peer: int | None = None
    for_: Annotated[Ms | None, Field(alias="for")] = None


class Slow(OnBrokers):
    """Link or disk of brokers let less through; `for` later as before."""

    do: Literal["slow"]
    link: Bytes | None = None
    disk: Bytes | None = None
    for_: Annotated[Ms | None, Field(alias="for")] = None


class ExpireSession(OnBrokers):
    """The brokers' ZooKeeper sessions end as if they had expired; they register again."""

    do: Literal["expire_session"]


class RollingRestart(OnBrokers):
    """One broker after the other is stopped for `down`; then all ISRs are waited for, or `pause` passes."""

    do: Literal["rolling_restart"]
    down: Ms = 30_000
    wait: Literal["full_isr", "none"] = "full_isr"
    pause: Ms = 0
    wait_at_most: Ms = 3_600_000


class Reassign(_Event):
    """As `kafka-reassign-partitions --execute`: from a file, or to these brokers. `batch` partitions at a time."""

    do: Literal["reassign"]
    file: str | None = None
    partitions: tuple[Mapping[str, Any], ...] = ()
    throttle: Rate | None = None
    batch: Annotated[int, Field(ge=1)] | None = None


class Cancel(_Event):
    """All reassignments under way are cancelled; batches that have not begun never do."""

    do: Literal["cancel"]


class ElectPreferred(_Event):
    """Preferred leaders are elected, of all partitions or of these topics."""

    do: Literal["elect_preferred"]
    topics: tuple[str, ...] | None = None


class ControllerFailover(_Event):
    """The active controller is killed and starts again `for` later."""

    do: Literal["controller_failover"]
    for_: Annotated[Ms, Field(alias="for")] = 10_000


class Throttle(_Event):
    """The replication throttles of all brokers become this; none lifts them."""

    do: Literal["throttle"]
    rate: Rate | None = None


class Rates(_Event):
    """Producers and consumers of all topics, or of these, go so many times as fast as in the cluster file."""

    do: Literal["rates"]
    factor: Factor
    topics: tuple[str, ...] | None = None
    for_: Annotated[Ms | None, Field(alias="for")] = None


class Curve(_Event):
    """Rates follow these factors, evenly spread over `period`, again and again."""

    do: Literal["curve"]
    factors: Annotated[tuple[Factor, ...], Field(min_length=2)]
    period: Annotated[Ms, Field(ge=1000)] = 86_400_000
    topics: tuple[str, ...] | None = None


class AddBroker(_Event):
    """An empty broker joins; with `spread` the topics are spread to it with as few moves as possible."""

    do: Literal["add_broker"]
    id: Annotated[int, Field(ge=0, le=ID_MAX)]
    rack: str | None = None
    spread: bool = False
    throttle: Rate | None = None
    batch: Annotated[int, Field(ge=1)] | None = None


AnyEvent = (
    Kill | Stop | Start | PauseReplication | CutLink | Slow | ExpireSession | RollingRestart | Reassign | Cancel
    | ElectPreferred | ControllerFailover | Throttle | Rates | Curve | AddBroker
)  # fmt: skip
EVENT_ADAPTER: Final[TypeAdapter[AnyEvent]] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="do")])
EVENT_TYPES: Final = AnyEvent.__args__
EVENT_KINDS: Final = tuple(kind.model_fields["do"].annotation.__args__[0] for kind in EVENT_TYPES)


class BrokerLimits(BaseModel):
    """What a broker's machine lets through where the cluster file does not say; None: nothing limits."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    link: Bytes | None = None
    disk: Bytes | None = None


class Scenario(BaseModel):
    """A whole scenario, its cluster included. `end_ms` None: when nothing moves any more.

    `broker_start`: how long a broker's process takes from its start to its registration; `broker_stop`: how long, at
    least, from the request to shut down to its end; `batch_bytes`: of producers' batches, where they are so large that
    `replica.fetch.max.bytes` holds but a few (`broker_sim/fluid/fetching.py`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str = "scenario"
    cluster: ClusterShape
    settings: Mapping[str, str] = {}
    limits: BrokerLimits = BrokerLimits()
    acks: Annotated[Literal["all", "1"], BeforeValidator(lambda value: "1" if value == 1 else value)] = "all"
    controllers: Annotated[int, Field(ge=1, le=5)] = 2
    broker_start: Ms = 0
    broker_stop: Ms = 0
    batch_bytes: Annotated[float, BeforeValidator(parse_bytes)] = 0.0
    seed: int = 1
    events: tuple[AnyEvent, ...] = ()
    end_ms: int | None = None

    @field_validator("settings", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}
        return value


def targets_of(
    event: Reassign, where: Callable[[int], str] = "the plan, row {}".format
) -> dict[TopicPartition, tuple[int, ...]]:
    """The target replicas of each partition of a plan; `where`: the place of a row, from 0 on. Raises ScenarioError."""
    targets: dict[TopicPartition, tuple[int, ...]] = {}
    for number, row in enumerate(event.partitions):
        topic, partition, replicas = (row.get(name) for name in ("topic", "partition", "replicas"))
        is_list = isinstance(replicas, (list, tuple)) and all(type(replica) is int for replica in replicas)
        if not isinstance(topic, str) or type(partition) is not int or partition < 0 or not is_list:
            raise ScenarioError(
                f"{where(number)}: expected topic (a text), partition (its number) and replicas (a list of broker "
                f"ids), not {dict(row)!r}"
            )
        topic_partition, ids = TopicPartition(topic, partition), tuple(replicas or ())
        if not ids or len(set(ids)) != len(ids):
            raise ScenarioError(f"{where(number)}: {topic_partition}: replicas {list(ids)} are empty or name one twice")
        dirs = row.get("log_dirs", ["any"] * len(ids))
        if not isinstance(dirs, (list, tuple)) or [type(one) for one in dirs] != [str] * len(ids):
            raise ScenarioError(
                f"{where(number)}: {topic_partition}: log_dirs must be a list of {len(ids)} texts, one for each of "
                f"replicas {list(ids)}, not {dirs!r}"
            )
        if topic_partition in targets:
            first = list(targets[topic_partition])
            raise ScenarioError(f"{where(number)}: {topic_partition} is there twice, first with replicas {first}")
        targets[topic_partition] = ids
    return targets
