"""What goes through the controller's event queue: AlterPartitionReassignments (45) and ListPartitionReassignments (46),
version 0; ElectLeaders (43), versions 0 to 2; ControlledShutdown (7), versions 0 to 3.

ElectLeaders v1 added the election type and a top-level error. ControlledShutdown v0 and v1 carry no broker epoch.
Source: spec broker.md §16.6, §16.7, controller.md §8.3, §8.8, §9.2, §11.5, §13.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from controller.core.effects import (
    ElectionAnswer,
    ListingAnswer,
    PartitionOutcome,
    ReassignmentAnswer,
    ShutdownAnswer,
)
from controller.core.events import (
    ApiPartitionReassignment,
    ControlledShutdown,
    ElectionTrigger,
    ElectionType,
    ListPartitionReassignments,
    ReplicaLeaderElection,
)
from controller.node.requests.context import NOT_CONTROLLER_TEXT, Body, Node
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.protocol import Request
from controller.wire.types import NO_BROKER_EPOCH, BrokerId, TopicPartition

#: How long the answer to ControlledShutdown is held back at most.
SHUTDOWN_HELD_MS: Final = 2_000


def _text(code: ErrorCode) -> str | None:
    return NOT_CONTROLLER_TEXT if code is ErrorCode.NOT_CONTROLLER else None


# --- reassignments


async def handle_alter_partition_reassignments(node: Node, request: Request) -> Body:
    """Starts, replaces or cancels moves. Answered when they are accepted, not when they end; `timeout` is ignored."""
    targets: dict[TopicPartition, tuple[BrokerId, ...] | None] = {
        TopicPartition(topic.name, int(p.partition_index)): None if p.replicas is None else tuple(p.replicas)
        for topic in request.body.topics
        for p in topic.partitions
    }
    answer = await node.loop.ask(lambda number: ApiPartitionReassignment(reassignments=targets, reply_to=number))
    assert isinstance(answer, ReassignmentAnswer)
    if answer.error is not ErrorCode.NONE:
        return {"error_code": answer.error, "error_message": _text(answer.error)}
    topics = _by_topic(answer.partitions)
    return {
        "error_message": "",
        "responses": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": p, "error_code": outcome.error, "error_message": outcome.message}
                    for p, outcome in partitions.items()
                ],
            }
            for topic, partitions in topics.items()
        ],
    }


async def handle_list_partition_reassignments(node: Node, request: Request) -> Body:
    """The moves under way, of the named partitions or of all."""
    chosen = None
    if request.body.topics is not None:
        chosen = frozenset(TopicPartition(t.name, int(p)) for t in request.body.topics for p in t.partition_indexes)
    answer = await node.loop.ask(lambda number: ListPartitionReassignments(partitions=chosen, reply_to=number))
    assert isinstance(answer, ListingAnswer)
    if answer.error is not ErrorCode.NONE:
        return {"error_code": answer.error, "error_message": _text(answer.error)}
    topics: defaultdict[str, list[Body]] = defaultdict(list)
    for tp, assignment in sorted(answer.partitions.items()):
        topics[tp.topic].append(
            {
                "partition_index": tp.partition,
                "replicas": assignment.replicas,
                "adding_replicas": assignment.adding_replicas,
                "removing_replicas": assignment.removing_replicas,
            }
        )
    rows = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return {"error_message": "", "topics": rows}


def top_level_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """A failure of both reassignment APIs."""
    return {"error_code": code, "error_message": message}


# --- elections


async def handle_elect_leaders(node: Node, request: Request) -> Body:
    """Elects leaders and waits until they are known to lead, or the time is over."""
    body = request.body
    chosen = body.topic_partitions
    if chosen is None:
        node.check_active()  # without office no partition is known that could say so
        going = node.state.topics_with_deletion_started  # of those brokers know nothing any more
        ever_led = (tp for tp in node.state.all_partitions() if node.state.leadership(tp) is not None)
        partitions = frozenset(tp for tp in ever_led if tp.topic not in going)
    else:
        partitions = frozenset(TopicPartition(t.topic, int(p)) for t in chosen for p in t.partitions)
    try:
        election_type = ElectionType(int(getattr(body, "election_type", 0)))
    except ValueError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error  # as Kafka, which does not expect it
    answer = await node.loop.ask(
        lambda number: ReplicaLeaderElection(
            partitions=partitions, election_type=election_type, trigger=ElectionTrigger.ADMIN_CLIENT, reply_to=number
        )
    )
    assert isinstance(answer, ElectionAnswer)
    outcomes = dict(answer.partitions)
    if chosen is None:
        outcomes = {tp: o for tp, o in outcomes.items() if o.error is not ErrorCode.ELECTION_NOT_NEEDED}
    return _election_body(await _seen(node, outcomes, body.timeout))


async def _seen(
    node: Node, outcomes: Mapping[TopicPartition, PartitionOutcome], timeout_ms: int
) -> dict[TopicPartition, PartitionOutcome]:
    """The outcomes, with those timed out whose new leader is not (or no longer) the leader."""
    elected = {tp: o.leader for tp, o in outcomes.items() if o.error is ErrorCode.NONE and o.leader is not None}

    def leads(tp: TopicPartition, leader: BrokerId) -> bool:
        state = node.state.leadership(tp)
        return state is not None and state.leader == leader

    if timeout_ms > 0:
        await node.wait(lambda: all(leads(tp, leader) for tp, leader in elected.items()), timeout_ms)
    late = PartitionOutcome(error=ErrorCode.REQUEST_TIMED_OUT)
    return {tp: late if tp in elected and not leads(tp, elected[tp]) else o for tp, o in outcomes.items()}


def _election_body(outcomes: Mapping[TopicPartition, PartitionOutcome]) -> Body:
    return {
        "replica_election_results": [
            {
                "topic": topic,
                "partition_result": [
                    {"partition_id": p, "error_code": o.error, "error_message": o.message}
                    for p, o in partitions.items()
                ],
            }
            for topic, partitions in _by_topic(outcomes).items()
        ]
    }


def elect_leaders_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """The same failure for each named partition, as they were named. The top level stays NONE for another controller's
    business, and where partitions tell it; else it tells."""
    chosen = request.body.topic_partitions or ()
    row = {"error_code": code, "error_message": message}
    results = [
        {"topic": each.topic, "partition_result": [{"partition_id": number, **row} for number in each.partitions]}
        for each in chosen
    ]
    body = {"replica_election_results": results}
    is_told = bool(chosen) and code is ErrorCode.NOT_CONTROLLER
    return body if is_told or request.api_version < 1 else {**body, "error_code": code}


# --- controlled shutdown


async def handle_controlled_shutdown(node: Node, request: Request) -> Body:
    """Moves leadership off a broker; answers which partitions it still leads."""
    broker_id = BrokerId(int(request.body.broker_id))
    broker_epoch = int(getattr(request.body, "broker_epoch", NO_BROKER_EPOCH))
    answer = await node.loop.ask(
        lambda number: ControlledShutdown(broker_id=broker_id, broker_epoch=broker_epoch, reply_to=number)
    )
    assert isinstance(answer, ShutdownAnswer)
    if answer.error is ErrorCode.NONE:
        await _announce(node, answer.successors)
    remaining = [{"topic_name": tp.topic, "partition_index": tp.partition} for tp in sorted(answer.remaining)]
    return {"error_code": answer.error, "remaining_partitions": remaining}


async def _announce(node: Node, successors: Iterable[BrokerId]) -> None:
    """Waits until the new leaders have answered what the shutdown queued for them: then they lead.

    Deviation X6 of the known failures: Kafka 3.9 answers as soon as requests are queued, and the broker may end before
    its successors lead. Bounded well below the caller's `request.timeout.ms`; only this answer waits.
    """
    pending = node.channels.pending(successors)
    await node.wait(lambda: not pending(), SHUTDOWN_HELD_MS)


def controlled_shutdown_failed(request: Request, code: ErrorCode, message: str | None) -> Body:
    """A failure as a whole."""
    return {"error_code": code}


def _by_topic(
    outcomes: Mapping[TopicPartition, PartitionOutcome],
) -> dict[str, dict[int, PartitionOutcome]]:
    topics: defaultdict[str, dict[int, PartitionOutcome]] = defaultdict(dict)
    for tp in sorted(outcomes):
        topics[tp.topic][tp.partition] = outcomes[tp]
    return topics
