"""Log lines of what comes in batches: what the state machines did, and the requests that tell brokers of it.

A batch of a hundred thousand costs one line, since topics are named in the lines of small ones alone. At debug there is
a line for each transition, too.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from controller.core.transitions import AnyTransition
from controller.wire import log_events as ev
from controller.wire.control import ControlRequest
from controller.wire.errors import ErrorCode
from controller.wire.types import TopicPartition

#: Partitions up to which the line of a batch names the topics.
NAMED: Final = 100


def log_transitions(log: FilteringBoundLogger, done: Sequence[AnyTransition], controller_epoch: int) -> None:
    """Logs one batch of one machine: all of `done` are of partitions, or all are of replicas."""
    if not log.is_enabled_for(logging.INFO):
        return
    counts = Counter[str]()
    for each in done:
        counts.update(each.counts())
    single_lines = sum(len(each.partitions) for each in done) <= NAMED
    topics = _topics(tp for each in done for tp in each.partitions) if single_lines else {}
    brokers = [each.replica for each in done if each.replica is not None]
    if brokers:
        log.info(
            ev.REPLICAS_TRANSITIONED,
            transitions=dict(counts),
            brokers=brokers,
            controller_epoch=controller_epoch,
            **topics,
        )
    else:
        log.info(ev.PARTITIONS_TRANSITIONED, transitions=dict(counts), controller_epoch=controller_epoch, **topics)
    if log.is_enabled_for(logging.DEBUG):
        for each in done:
            _log_singles(log, each, controller_epoch)


def _log_singles(log: FilteringBoundLogger, done: AnyTransition, controller_epoch: int) -> None:
    event = ev.PARTITION_TRANSITIONED if done.replica is None else ev.REPLICA_TRANSITIONED
    replica = {} if done.replica is None else {"replica": done.replica}
    for tp, before, after in done.singles():
        keys = {"topic": tp.topic, "partition": tp.partition, **replica, "from": before, "to": after}
        log.debug(event, **keys, controller_epoch=controller_epoch)


def log_sent(log: FilteringBoundLogger, request: ControlRequest, answer: Any) -> None:
    """One line, at debug, of a control request that a broker answered."""
    if not log.is_enabled_for(logging.DEBUG):
        return
    entries = request.partition_states
    log.debug(
        ev.REQUEST_SENT,
        request=type(request).__name__.removesuffix("Request"),
        partitions=len(entries),
        error=ErrorCode.of(int(answer.error_code)).name,
        **(_topics(entry.topic_partition for entry in entries) if len(entries) <= NAMED else {}),
    )


def _topics(partitions: Iterable[TopicPartition]) -> dict[str, list[str]]:
    return {"topics": sorted({tp.topic for tp in partitions})}
