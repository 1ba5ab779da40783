"""A real broker and a simulated one, in one cluster under Kafka's controller, are asked the same and say the same.

What is asked is in `questions.py`; `sides.py` puts the answers into words that both share. A difference that is meant
is a row of `MEANT` with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from .cluster import LIMIT_S, REAL_BROKER_SETTINGS, Cluster, until
from .questions import QUESTIONS, Question
from .sides import Side
from .walks_of_records import WALKED

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
REAL, SIMULATED = 0, 1
HOUR_MS = "3600000"
#: kind -> configs of the topic of that kind that each side leads.
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "strict": {
        "max.message.bytes": "2000",
        "message.timestamp.before.max.ms": HOUR_MS,
        "message.timestamp.after.max.ms": HOUR_MS,
    },
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "gzipped": {"compression.type": "gzip", "max.message.bytes": "3000"},
    "raw": {"compression.type": "uncompressed", "segment.bytes": "3000"},
    "idempotent": {},
    "read": {"retention.ms": "-1"},
    "cut": {},
    **WALKED,
}
#: Differences that are meant: (pattern of the place, why).
MEANT: list[tuple[str, str]] = [
    (r"log.cleaner.threads., 0, .0", "Kafka divides by zero"),
    (r"overrides., 0, .x", "the text is that of a Java exception"),
    (
        r"principal.builder.class|advertised.listeners|ssl.keystore.password",
        "no listeners, SSL or SASL that could change",
    ),
    (r"/mine/configs/(ssl|sasl|listener|remote).*read_only", "as above, and no tiered storage"),
    (r"transaction.partition.verification.enable/read_only", "no transactions"),
    (r"log.initial.task.delay.ms/synonyms", "Kafka knows a default for a setting that it does not show"),
    (r"message.format.version", "Kafka shows the version that the text 2.6 stands for"),
    (r"/mine/configs/zookeeper.connect", "comes from the command line, not as a setting"),
]


@pytest.fixture(scope="module")
def sides(new_cluster: Callable[[], Cluster]) -> Iterator[tuple[Side, Side]]:
    cluster = new_cluster()
    shared: dict[str, Any] = {
        **REAL_BROKER_SETTINGS,
        "log.message.format.version": "2.6",
        "offsets_topic_num_partitions": 2,
        "offsets_topic_replication_factor": 1,
        "group_initial_rebalance_delay_ms": 300,
    }
    real = cluster.real_broker(REAL, **shared)
    simulated = cluster.simulated_broker(SIMULATED, **shared)
    cluster.start(REAL)
    until("Kafka's controller is in office", lambda: cluster.active_controller() == REAL)
    cluster.start(SIMULATED)
    until("both are registered", lambda: cluster.live() == {REAL, SIMULATED})
    found = Side("real", REAL, real.port, REAL), Side("sims", SIMULATED, simulated.port, SIMULATED)
    create_topics(cluster, found)
    yield found
    for side in found:
        side.close()


def create_topics(cluster: Cluster, sides: tuple[Side, Side]) -> None:
    topics = [
        NewTopic(side.topic(kind), num_partitions=1, replica_assignment=[[side.broker_id]], config=config)
        for side in sides
        for kind, config in TOPICS.items()
    ]
    topics += [
        NewTopic(side.topic("elsewhere"), num_partitions=1, replica_assignment=[[1 - side.broker_id]]) for side in sides
    ]
    topics.append(
        NewTopic(
            "__consumer_offsets",
            num_partitions=2,
            replica_assignment=[[REAL], [SIMULATED]],
            config={"cleanup.policy": "compact"},
        )
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics(topics).values():
        future.result(LIMIT_S)
    for topic in topics:
        cluster.until_in_sync(topic.topic)
    for side in sides:
        until("it knows the topics", lambda side=side: len(cluster_topics(side)) >= len(topics))


def cluster_topics(side: Side) -> list[Any]:
    from controller.wire.protocol import ApiKey

    return [topic.name for topic in side.call(ApiKey.METADATA, 1, {"topics": None}).topics]


def differences(real: Any, simulated: Any, place: str = "") -> Iterator[str]:
    """Where the two answers differ, one line each."""
    if isinstance(real, dict) and isinstance(simulated, dict):
        for key in [*real, *(key for key in simulated if key not in real)]:
            if key in real and key in simulated:
                yield from differences(real[key], simulated[key], f"{place}/{key}")
            else:
                which, value = ("real", real[key]) if key in real else ("simulated", simulated[key])
                yield f"{place}/{key}: only the {which} one has it: {value!r}"
    elif isinstance(real, list | tuple) and isinstance(simulated, list | tuple) and len(real) == len(simulated):
        for number, pair in enumerate(zip(real, simulated, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif real != simulated:
        yield f"{place}: real {real!r}, simulated {simulated!r}"


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_the_answers_are_kafkas(sides: tuple[Side, Side], question: Question) -> None:
    answers = [question(side) for side in sides]
    found = [line for line in differences(*answers) if not any(re.search(pattern, line) for pattern, _ in MEANT)]
    assert not found, "\n".join(found)
    assert answers[0], "nothing was asked"
