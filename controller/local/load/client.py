"""The client library as kwob's own commands use it: unmodified librdkafka, quiet, quick to look again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from controller.wire import types
from controller.wire.whole import whole

_Answer = TypeVar("_Answer")
_ANSWER_S: Final = 10.0
#: `default.api.timeout.ms` and `retry.backoff.ms` of Java's clients, which wait for a coordinator.
_COORDINATOR_S: Final = 60.0
_AGAIN_S: Final = 0.1
#: How long a partition may have nobody who tells its ends: longer than a killed controller has no successor.
_LEADER_S: Final = 20.0
#: What passes, and Java's clients ask again after. A broker that has just started knows no topic.
_LEADER_SOON: Final = frozenset(
    {
        *(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION),
        *(KafkaError.KAFKA_STORAGE_ERROR, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE),
        *(KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
    }
)
#: What the library gives back as it came from a coordinator that in a moment will be one, and know the topics.
_COORDINATOR_SOON: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        *(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR),
        *(KafkaError.REBALANCE_IN_PROGRESS, KafkaError._WAIT_COORD),
    }
)
#: What the library makes of an answer without brokers: whoever gave it has not heard of the controller yet.
_NEWS_SOON: Final = frozenset({KafkaError._PARTIAL})
_QUIET: Final = logging.getLogger("kwob.client-library")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False
#: What a record of `kwob load` carries, so that it is known again: the run and its number.
HEADER: Final = "kwob-load"


class LoadError(Exception):
    """What keeps records from being written or read at all. One line."""


def settings(bootstrap: str, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What every client gets. By the library's defaults it waits up to 10 s before it looks again at a broker."""
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "kwob",
        "logger": _QUIET,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "error_cb": lambda error: None,
        **(more or {}),
    }


def producer(bootstrap: str, *, acks: str, more: Mapping[str, str] | None = None) -> Producer:
    """Raises: LoadError for settings that the library does not take."""
    own = {"acks": acks, "enable.idempotence": str(acks == "all").lower(), "retry.backoff.ms": "50"}
    own["partitioner"] = "murmur2_random"  # as Java's clients do it
    try:
        return Producer(settings(bootstrap, {**own, **(more or {})}))
    except KafkaException as error:
        raise LoadError(error_text(error.args[0])) from error


def consumer(bootstrap: str, more: Mapping[str, Any]) -> Consumer:
    """Raises: LoadError for settings that the library does not take."""
    try:
        return Consumer(settings(bootstrap, more))
    except KafkaException as error:
        raise LoadError(error_text(error.args[0])) from error


def error_text(error: KafkaError) -> str:
    """The name of an error, and what it means."""
    return f"{error.name().lstrip('_')}: {error.str()}"


def partition_counts(bootstrap: str, topics: Sequence[str], *, patience_s: float = _LEADER_S) -> dict[str, int]:
    """How many partitions each topic has.

    A broker that knows of nobody is asked again for `patience_s`. Raises: LoadError, when there is no such topic or
    nobody answers.
    """
    asking = consumer(bootstrap, {"group.id": "kwob", "enable.auto.commit": False})
    limit_s = time.monotonic() + patience_s
    try:
        found = _again(lambda: asking.list_topics(timeout=_ANSWER_S), _NEWS_SOON, limit_s).topics
    except KafkaException as error:
        raise LoadError(f"no broker of {bootstrap} answers: {error_text(error.args[0])}") from error
    finally:
        asking.close()
    absent = [topic for topic in topics if topic not in found or found[topic].error is not None]
    if absent:
        create = f"kwob topics --bootstrap-server {bootstrap} --create --topic {absent[0]} --partitions 6"
        raise LoadError(f"there is no topic {absent[0]}; next: {create}")
    return {topic: len(found[topic].partitions) for topic in topics}


def ends(
    bootstrap: str, partitions: Sequence[types.TopicPartition], *, patience_s: float = _LEADER_S
) -> dict[types.TopicPartition, tuple[int, int]]:
    """The first offset and the high watermark of partitions.

    Who is asked too early is asked again for `patience_s`; the library does not do that. Raises: LoadError.
    """
    asking = consumer(bootstrap, {"group.id": "kwob", "enable.auto.commit": False})
    limit_s = time.monotonic() + patience_s
    try:
        return {tp: _again(partial(_ends, asking, tp), _LEADER_SOON, limit_s) for tp in partitions}
    except KafkaException as error:
        raise LoadError(f"the ends of partitions cannot be read: {error_text(error.args[0])}") from error
    finally:
        asking.close()


def _ends(asking: Consumer, tp: types.TopicPartition) -> tuple[int, int]:
    ends = asking.get_watermark_offsets(TopicPartition(tp.topic, tp.partition), timeout=_ANSWER_S)
    return cast(tuple[int, int], ends)


def _again(ask: Callable[[], _Answer], soon: Collection[int], limit_s: float) -> _Answer:
    """Asks until there is an answer. Raises: KafkaException, one that is not in `soon`, or at the limit any."""
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in soon or time.monotonic() >= limit_s:
                raise
        time.sleep(_AGAIN_S)


def start_group(
    bootstrap: str, group: str, starts: Mapping[types.TopicPartition, int], *, patience_s: float = _COORDINATOR_S
) -> None:
    """Commits these offsets for a group that has none, so that it reads what comes from now on.

    A coordinator that is not there yet, loads, or moves is asked again for `patience_s`; the library does not do that
    for a commit. Raises: LoadError.
    """
    committing = consumer(bootstrap, {"group.id": group, "enable.auto.commit": False})
    offsets = [TopicPartition(tp.topic, tp.partition, offset) for tp, offset in starts.items()]
    limit_s = time.monotonic() + patience_s
    try:
        while (error := _commit(committing, offsets)) is not None:
            if error.code() not in _COORDINATOR_SOON or time.monotonic() >= limit_s:
                raise LoadError(f"the group {group} cannot be started: {error_text(error)}")
            committing.poll(_AGAIN_S)  # the library looks for the coordinator meanwhile
    finally:
        committing.close()


def _commit(committing: Consumer, offsets: list[TopicPartition]) -> KafkaError | None:
    """The error of all, else that of the first partition which has one."""
    try:
        done = committing.commit(offsets=offsets, asynchronous=False) or []
    except KafkaException as error:
        return cast(KafkaError, error.args[0])
    return next((partition.error for partition in done if partition.error is not None), None)


def read_ids(
    bootstrap: str, run: str, starts: Mapping[types.TopicPartition, int], *, patience_s: float
) -> dict[types.TopicPartition, set[int]]:
    """The numbers of a run's records in these partitions, from these offsets to the high watermark.

    Raises: LoadError, when for `patience_s` nothing came although the end was not reached.
    """
    goals = {tp: end for tp, (_, end) in ends(bootstrap, sorted(starts)).items()}
    waiting = {tp for tp, end in goals.items() if end > starts[tp]}
    found: dict[types.TopicPartition, set[int]] = {tp: set() for tp in starts}
    more = {"group.id": f"kwob-check-{run}", "enable.auto.commit": False, "enable.partition.eof": True}
    reading = consumer(bootstrap, {**more, "auto.offset.reset": "earliest"})
    try:
        reading.assign([TopicPartition(tp.topic, tp.partition, starts[tp] or OFFSET_BEGINNING) for tp in waiting])
        idle_s = 0.0
        while waiting:
            messages = reading.consume(num_messages=5000, timeout=0.5)
            idle_s = 0.0 if messages else idle_s + 0.5
            if idle_s > patience_s:
                raise LoadError(f"nothing came from {sorted(waiting)[0]} for {patience_s:g} s before its end")
            for message in messages:
                _take(message, run, goals, waiting, found)
    finally:
        reading.close()
    return found


def _take(
    message: Message,
    run: str,
    goals: Mapping[types.TopicPartition, int],
    waiting: set[types.TopicPartition],
    found: dict[types.TopicPartition, set[int]],
) -> None:
    tp = types.TopicPartition(str(message.topic()), message.partition() or 0)
    offset = message.offset()
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF and offset is not None and offset >= goals[tp]:
            waiting.discard(tp)
        return
    number = load_id(message, run)
    if number is not None:
        found[tp].add(number)
    if offset is not None and offset + 1 >= goals[tp]:
        waiting.discard(tp)


def load_id(message: Message, run: str) -> int | None:
    """The number of a record, if it is one of that run."""
    for name, value in message.headers() or ():
        if name == HEADER and isinstance(value, bytes):
            whose, _, number = value.decode("utf-8", "replace").partition(" ")
            return whole(number) if whose == run else None
    return None
