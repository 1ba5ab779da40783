"""What is tried on live clusters: a table of short runs, each with its topics, its load and what is done to it.

Sizes are small and throttles low, so that a run takes a minute on a small machine and the throttle, not the machine,
decides how long a move takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MB: Final = 1_000_000
BROKERS: Final = (1, 2, 3, 4)
#: kind of cluster -> in words
KINDS: Final[Mapping[str, str]] = {
    "kafka-3.9.1": "Kafka 3.9.1, ZooKeeper mode",
    "kafka-4.1.0": "Kafka 4.1.0, KRaft",
    "kwob": "kwob's own brokers and controller",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """`replicas` by partition; each partition has `size` bytes before the run, and gets `rate` bytes per second."""

    replicas: Sequence[Sequence[int]]
    size: int
    rate: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `targets`: topic -> target replicas by partition; `event`: as in a scenario, done at 0."""

    name: str
    what: str
    topics: Mapping[str, Topic]
    event: Mapping[str, Any]
    targets: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)
    #: done while the move runs, at so many seconds: a kill
    meanwhile: Mapping[str, Any] | None = None
    #: whether the preferred leaders are elected at the end
    elects: bool = False
    #: the size of producers' batches; the default is that of one record
    batch: int = 20_000
    #: why a rehearsal of it may be off, for the page
    disagrees: str = ""
    #: how many times what is aimed at its end may be off, where the page says why
    off_times: float = 1.0
    #: how long things may go on after what was done, seconds
    limit_s: float = 150.0


def _move(name: str, what: str, throttle: int, topic: Topic, targets: Sequence[Sequence[int]], **more: Any) -> Run:
    return Run(
        name=name,
        what=what,
        topics={name: topic},
        targets={name: targets},
        event={"do": "reassign", "throttle": throttle},
        **more,
    )


RUNS: Final = (
    _move(
        "one",
        "1 partition of 100 MB at 5 MB/s",
        5 * MB,
        Topic(replicas=[[1, 2]], size=100 * MB),
        [[3, 2]],
    ),
    _move(
        "batches",
        "1 partition of 100 MB in batches of 480 kB at 5 MB/s",
        5 * MB,
        Topic(replicas=[[1, 2]], size=100 * MB),
        [[3, 2]],
        batch=480_000,
    ),
    _move(
        "load",
        "1 partition of 150 MB at 10 MB/s, 1 MB/s written",
        10 * MB,
        Topic(replicas=[[2, 3]], size=150 * MB, rate=MB),
        [[4, 3]],
    ),
    _move(
        "link",
        "4 partitions of 60 MB from one broker to one broker at 10 MB/s",
        10 * MB,
        Topic(replicas=[[1, 3], [1, 2], [1, 3], [1, 2]], size=60 * MB),
        [[4, 3], [4, 2], [4, 3], [4, 2]],
    ),
    _move(
        "many",
        "8 partitions of 30 MB between all brokers at 5 MB/s, 0.1 MB/s written to each",
        5 * MB,
        Topic(replicas=[[n % 4 + 1, (n + 1) % 4 + 1] for n in range(8)], size=30 * MB, rate=MB // 10),
        [[n % 4 + 1, (n + 2) % 4 + 1] for n in range(8)],
        disagrees="Of partitions in one fetcher, one may begin earlier and keep its lead; the rehearsal shares evenly.",
    ),
    _move(
        "uneven",
        "3 partitions of 40 MB from two brokers to one at 8 MB/s, 0.5 MB/s written to each",
        8 * MB,
        Topic(replicas=[[1, 2], [2, 1], [2, 3]], size=40 * MB, rate=MB // 2),
        [[1, 4], [2, 4], [2, 4]],
        disagrees="Of two fetchers at one throttle, whose pause ends first is chance; the rehearsal gives each a mean.",
    ),
    _move(
        "near",
        "1 partition of 40 MB at 10 MB/s, 4 MB/s written",
        10 * MB,
        Topic(replicas=[[2, 3]], size=40 * MB, rate=4 * MB),
        [[4, 3]],
        disagrees="Of 10 MB/s the follower in sync takes 4, and 4 more are what is written: a copy gains what little "
        "is left. On Kafka it got 12 % more than the throttle leaves it by its own rule, and so was a third sooner; "
        "why is not found. The rehearsal errs towards the longer time.",
        off_times=4.5,
    ),
    _move(
        "pair",
        "4 partitions of 30 MB from one broker to one broker at 10 MB/s, 0.5 MB/s written to each",
        10 * MB,
        Topic(replicas=[[1, 3], [1, 2], [1, 3], [1, 2]], size=30 * MB, rate=MB // 2),
        [[4, 3], [4, 2], [4, 3], [4, 2]],
        disagrees="As in the run with 4 MB/s written: where clients write to all that is copied, Kafka's copies got "
        "more of the throttle than kwob's brokers and the rehearsal let them have.",
        off_times=1.3,
    ),
    _move(
        "killed",
        "4 partitions of 40 MB to one broker at 4 MB/s, 0.1 MB/s written to each; a leader killed at 8 s for 25 s; "
        "then preferred leaders are elected",
        4 * MB,
        Topic(replicas=[[1, 2, 3], [2, 3, 1], [3, 1, 2], [1, 3, 2]], size=40 * MB, rate=MB // 10),
        [[1, 2, 4], [2, 3, 4], [3, 1, 4], [1, 3, 4]],
        meanwhile={"at": 8, "do": "kill", "broker": 2, "for": "25s"},
        elects=True,
        disagrees="Partitions that share a fetcher end one after the other, and which is first is chance; when all "
        "have moved, who was under-replicated and how long, and when preferred leaders lead is as rehearsed.",
    ),
    Run(
        name="loss",
        what="a broker killed for 25 s, 0.3 MB/s written to each of 12 partitions",
        topics={
            "loss": Topic(
                replicas=[[n % 4 + 1, (n + 1) % 4 + 1, (n + 2) % 4 + 1] for n in range(12)],
                size=5 * MB,
                rate=3 * MB // 10,
            )
        },
        event={"do": "kill", "broker": 2, "for": "25s"},
    ),
    Run(
        name="restart",
        what="a rolling restart of all brokers, each 5 s down, 0.2 MB/s written to each of 12 partitions",
        topics={
            "restart": Topic(
                replicas=[[n % 4 + 1, (n + 1) % 4 + 1, (n + 2) % 4 + 1] for n in range(12)],
                size=5 * MB,
                rate=MB // 5,
            )
        },
        event={"do": "rolling_restart", "down": "5s", "wait": "full_isr"},
        disagrees="The four processes took differently long to start and to end; the rehearsal is given the mean.",
        limit_s=200.0,
    ),
)
