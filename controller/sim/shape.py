"""What a seed draws of a cluster before it starts: how large it is, its settings, its topics, its load.

Every field can be set by hand (`kwob sim repeat 17 --set brokers=3`), which is how a failing world is made smaller.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

#: The settings that every simulated cluster has unless a shape says otherwise: short times, so that much happens.
SETTINGS: Final = {
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "30",
    "replica.lag.time.max.ms": "3000",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "offsets.topic.num.partitions": "2",
    "log.segment.delete.delay.ms": "2000",
}
#: The main topic. Its records are never deleted by an operation, so every acknowledged one must be there at the end.
TOPIC: Final = "t"
#: Topics that come and go.
SIDE_TOPICS: Final = ("side-1", "side-2")
#: The topic that the administrator moves by the tool; nobody else moves it, or gives it throttles.
TOOLED: Final = ("tooled-1", "tooled-2")


class ShapeError(ValueError):
    """A field that there is not, or a value that it cannot have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The options of one world. Times in ms where the name ends so."""

    brokers: int = 4
    controllers: int = 2
    racks: int = 0
    log_dirs: int = 1
    partitions: int = 4
    replication_factor: int = 3
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    balance: bool = True
    balance_interval_s: int = 30
    imbalance_percentage: int = 10
    lag_time_max_ms: int = 3000
    session_timeout_ms: int = 6000
    segment_bytes: int = 1 << 20
    #: `log.flush.interval.messages`; 0 leaves flushing to the operating system.
    flush_messages: int = 0
    #: A kill takes what was not synced. Without flush_messages=1 acknowledged records may be lost, as in Kafka: then
    #: nobody holds the replicas of that broker to what was promised.
    power_cuts: bool = False
    #: The main topic has `unclean.leader.election.enable=false` of its own.
    topic_forbids_unclean: bool = False
    fetchers: int = 1
    hw_checkpoint_ms: int = 5000
    clock_skew_max_ms: int = 0
    #: What a follower may fetch of a partition at once; so few that it can fall behind.
    fetch_bytes: int = 1 << 20
    #: Between two rounds of each kind of housekeeping: recovery points, log starts, retention, compaction.
    housekeeping_ms: int = 30_000
    offsets_segment_bytes: int = 1 << 20
    #: Clients of each kind.
    producers: int = 1
    idempotent_producers: int = 0
    acks_one_producers: int = 0
    consumers: int = 0
    group_members: int = 0
    static_members: int = 0
    #: Clients that ask for what must be refused.
    probers: int = 0
    #: How long a consumer's fetch waits for records; 0: it asks now and then.
    consumer_wait_ms: int = 0
    #: Pause of a producer between two batches, and records of a batch at most.
    produce_every_ms: int = 300
    batch_records: int = 1
    #: Clients that fill side topics.
    side_producers: int = 0
    #: A controller merges what waits for a broker above so many requests.
    merge_above: int = 1000
    #: How long a controller waits for the answer to a request before it sends it again.
    request_timeout_ms: int = 30_000
    #: Clients that join groups of their own, and keep no order.
    crowd: int = 0
    steps: int = 25
    #: What brokers take in at once, of one request and of all that wait; 0: as much as usual.
    request_memory_bytes: int = 0
    #: Clients that came later: producers of a compacted topic, and those that ask what brokers must refuse or tell.
    keyed_producers: int = 0
    replica_probers: int = 0
    #: Clients that ask for offsets.
    offset_probers: int = 0
    #: Clients that begin to join the crowd's groups, and think better of it.
    hesitant: int = 0
    #: The id of the first broker; the others follow it.
    first_id: int = 1
    #: Clients have a listener of their own.
    client_listener: bool = False

    def settings(self) -> dict[str, str]:
        """As Kafka's properties, for brokers and controllers alike."""
        drawn = {
            **SETTINGS,
            "auto.leader.rebalance.enable": str(self.balance).lower(),
            "leader.imbalance.check.interval.seconds": str(self.balance_interval_s),
            "leader.imbalance.per.broker.percentage": str(self.imbalance_percentage),
            "replica.lag.time.max.ms": str(self.lag_time_max_ms),
            "replica.fetch.wait.max.ms": str(self.lag_time_max_ms // 2),
            "zookeeper.session.timeout.ms": str(self.session_timeout_ms),
            "min.insync.replicas": str(self.min_insync_replicas),
            "unclean.leader.election.enable": str(self.unclean_leader_election).lower(),
            "log.segment.bytes": str(self.segment_bytes),
            "num.replica.fetchers": str(self.fetchers),
            "replica.high.watermark.checkpoint.interval.ms": str(self.hw_checkpoint_ms),
            "offsets.topic.replication.factor": str(min(3, self.brokers)),
            "group.initial.rebalance.delay.ms": "200",
            "group.min.session.timeout.ms": "1000",
            "log.index.interval.bytes": "512",
            "replica.fetch.max.bytes": str(self.fetch_bytes),
            "replica.fetch.response.max.bytes": str(max(self.fetch_bytes, 1000)),
            "log.initial.task.delay.ms": str(self.housekeeping_ms),
            "log.flush.offset.checkpoint.interval.ms": str(self.housekeeping_ms),
            "log.flush.start.offset.checkpoint.interval.ms": str(self.housekeeping_ms),
            "log.retention.check.interval.ms": str(self.housekeeping_ms),
            "log.cleaner.backoff.ms": str(self.housekeeping_ms),
            "offsets.topic.segment.bytes": str(self.offsets_segment_bytes),
            "request.timeout.ms": str(self.request_timeout_ms),
        }
        if self.flush_messages:
            drawn["log.flush.interval.messages"] = str(self.flush_messages)
        if self.request_memory_bytes:
            names = "socket.request.max.bytes", "queued.max.request.bytes"
            drawn |= dict.fromkeys(names, str(self.request_memory_bytes))
        return drawn

    def topic_settings(self) -> dict[str, str]:
        """Those of the main topic's own."""
        return {"unclean.leader.election.enable": "false"} if self.topic_forbids_unclean else {}

    def assignments(self, partitions: int, replication_factor: int, *, first: int = 0) -> list[list[int]]:
        """Replicas of each partition, round the brokers; `first` shifts where it begins."""
        count = min(replication_factor, self.brokers)
        return [[(first + p + r) % self.brokers + self.first_id for r in range(count)] for p in range(partitions)]

    def rows(self) -> list[tuple[str, str]]:
        """(name, value) of each field."""
        return [(field.name, _text(getattr(self, field.name))) for field in fields(self)]

    def with_text(self, changes: Sequence[str]) -> Shape:
        """With `name=value` texts. Raises ShapeError, which says what is allowed."""
        given: dict[str, object] = {}
        names = {field.name for field in fields(self)}
        for change in changes:
            name, equals, text = change.partition("=")
            if name not in names or not equals:
                raise ShapeError(f"{change!r} is no NAME=VALUE of {', '.join(sorted(names))}")
            given[name] = _parse(name, text, getattr(self, name))
        return replace(self, **given)  # type: ignore[arg-type]  # by name


#: The least value of fields that may not be 0.
_LEAST: Final[Mapping[str, int]] = {
    **dict.fromkeys(("brokers", "controllers", "log_dirs", "partitions", "replication_factor", "fetchers"), 1),
    **dict.fromkeys(
        ("min_insync_replicas", "balance_interval_s", "batch_records", "produce_every_ms", "merge_above"), 1
    ),
    **dict.fromkeys(("lag_time_max_ms", "session_timeout_ms", "hw_checkpoint_ms", "request_timeout_ms"), 100),
    "segment_bytes": 256,
    "offsets_segment_bytes": 256,
    "fetch_bytes": 1,
    "housekeeping_ms": 100,
}


def _parse(name: str, text: str, now: object) -> object:
    if isinstance(now, bool):
        if text not in ("true", "false"):
            raise ShapeError(f"{name} is true or false, not {text!r}")
        return text == "true"
    try:
        number = int(text)
    except ValueError:
        raise ShapeError(f"{name} is a number, not {text!r}") from None
    least = _LEAST.get(name, 0)
    if number < least:
        raise ShapeError(f"{name} is at least {least}, not {number}")
    return number


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def draw_shape(chance: random.Random) -> Shape:
    """A shape. Most options are usual ones in most worlds, each is strange in some."""
    brokers = chance.choice((2, 3, 3, 4, 4, 4, 5, 5, 6, 7))
    factor = min(chance.choice((1, 2, 3, 3, 3, 3, 4, 5)), brokers)
    power_cuts = chance.random() < 0.3
    return Shape(
        brokers=brokers,
        controllers=chance.choice((1, 2, 2, 2, 3)),
        racks=chance.choice((0, 0, 2, 3)),
        log_dirs=chance.choice((1, 1, 2)),
        partitions=chance.choice((1, 2, 3, 4, 4)),
        replication_factor=factor,
        min_insync_replicas=chance.choice((1, 1, min(2, factor))),
        unclean_leader_election=chance.random() < 0.3,
        balance=chance.random() < 0.6,
        balance_interval_s=chance.choice((2, 5, 30)),
        lag_time_max_ms=chance.choice((1000, 2000, 3000)),
        session_timeout_ms=chance.choice((2000, 4000, 6000)),
        segment_bytes=chance.choice((600, 2000, 1 << 20)),
        flush_messages=1 if power_cuts else chance.choice((0, 0, 3)),
        power_cuts=power_cuts,
        fetchers=chance.choice((1, 1, 2)),
        hw_checkpoint_ms=chance.choice((500, 5000)),
        clock_skew_max_ms=chance.choice((0, 0, 500, 60_000)),
        producers=chance.choice((0, 1, 1, 2)),
        idempotent_producers=chance.choice((0, 1, 1)),
        acks_one_producers=chance.choice((0, 0, 0, 1)),
        consumers=chance.choice((0, 1, 1)),
        group_members=chance.choice((0, 0, 0, 2, 3)),
        static_members=chance.choice((0, 0, 0, 0, 1)),
        produce_every_ms=chance.choice((80, 200, 400, 1000, 1000)),
        batch_records=chance.choice((1, 3, 8)),
        steps=chance.choice((8, 14, 20)),
        imbalance_percentage=chance.choice((0, 0, 10)),
        fetch_bytes=chance.choice((1 << 20, 1 << 20, 1 << 20, 300)),
        housekeeping_ms=chance.choice((1500, 5000, 30_000)),
        offsets_segment_bytes=chance.choice((2000, 1 << 20, 1 << 20)),
        probers=chance.choice((0, 1)),
        consumer_wait_ms=chance.choice((0, 400)),
        side_producers=chance.choice((0, 0, 1)),
        merge_above=chance.choice((1, 3, 1000)),
        topic_forbids_unclean=chance.random() < 0.4,
    )
