"""kafka-reassign-partitions: generate, execute, verify, cancel, list. Source: spec admin.md §3 [3.9].

This module is the command line; `reassign_execute` and `reassign_verify` do the two actions with state behind them.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.admin.cluster.queries import TopicInfo, describe_topics, list_reassignments
from controller.admin.reassignment.execute import cancel, execute
from controller.admin.reassignment.minimal_moves import minimal
from controller.admin.reassignment.options import ACTIONS, TABLE, check
from controller.admin.reassignment.plan_file import format_plan, parse_broker_list, parse_topics_to_move, plan_value
from controller.admin.reassignment.progress import show
from controller.admin.reassignment.proposal import propose
from controller.admin.reassignment.verify import verify
from controller.admin.toolkit.console import Console
from controller.admin.toolkit.failures import Refused, Terse, ToolFailure, class_and_message
from controller.admin.toolkit.kafka_json import read_file
from controller.admin.toolkit.options import Arguments
from controller.admin.toolkit.tool import Run, Tool, uncaught
from controller.rules.placement import BrokerRack, RackMode, usable_brokers
from controller.wire.errors import ErrorCode, KafkaError
from controller.wire.types import BrokerId, ReplicaAssignment, TopicPartition


async def perform(run_: Run) -> int:
    """Does the one action asked for. Raises ToolFailure, KafkaError."""
    action = next(name for name in ACTIONS if run_.args.has(name))
    actions = {"generate": generate, "execute": execute, "verify": verify, "cancel": cancel, "list": list_running}
    await actions[action](run_)
    return 0


async def generate(run_: Run) -> None:
    """`--generate`: prints where the partitions are and where they might go; changes nothing.

    Each topic gets the replication factor of its partition 0 (Kafka takes that of any partition). Brokers that are
    not alive are left out.
    """
    args = run_.args
    topics = parse_topics_to_move(read_file(args.value("topics-to-move-json-file") or ""), run_.texts)
    wanted = parse_broker_list(args.value("broker-list") or "", run_.texts)
    mode = RackMode.DISABLED if args.has("disable-rack-aware") else RackMode.ENFORCED
    current = await current_assignment(run_, topics)
    nodes = await run_.admin.brokers()
    racks = [BrokerRack(broker_id=n.broker_id, rack=n.rack) for n in nodes.values() if n.broker_id in wanted]
    try:
        brokers = usable_brokers(racks, mode)
    except KafkaError as error:
        raise ToolFailure(str(error), java_class="org.apache.kafka.server.common.AdminOperationException") from error
    proposed = propose(current, brokers, run_.machine.chance)
    if args.value("strategy") == "minimal":
        proposed = minimal(current, brokers, proposed)
    run_.console.line(f"Current partition replica assignment\n{format_plan(current)}\n")
    run_.console.line(f"Proposed partition reassignment configuration\n{format_plan(proposed)}")
    run_.console.result({"current": plan_value(current), "proposed": plan_value(proposed)})


async def current_assignment(run_: Run, topics: Sequence[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The replicas of all partitions of these topics, by topic and number. Raises Refused for a missing topic."""
    found: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for name, topic in (await describe_topics(run_.admin, topics)).items():
        if not isinstance(topic, TopicInfo):
            missing = topic.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise Refused(topic.code, f"Topic {name} not found.") if missing else topic
        found |= {TopicPartition(topic.name, p.partition): p.replicas for p in topic.partitions}
    return found


async def list_running(run_: Run) -> None:
    """`--list`: every partition that is being reassigned."""
    running = await list_reassignments(run_.admin)
    run_.console.line(format_running(running))
    run_.console.result(
        {
            "reassignments": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "replicas": list(r.replicas),
                    "adding_replicas": list(r.adding_replicas),
                    "removing_replicas": list(r.removing_replicas),
                }
                for partition, r in running.items()
            ]
        }
    )
    if running and run_.args.has("progress"):
        await show(run_, list(running))


def format_running(running: dict[TopicPartition, ReplicaAssignment]) -> str:
    """The text of `--list`."""
    if not running:
        return "No partition reassignments found."
    lines = ["Current partition reassignments:"]
    for partition, r in sorted(running.items()):
        line = f"{partition}: replicas: {_ids(r.replicas)}."
        if r.adding_replicas:
            line += f" adding: {_ids(r.adding_replicas)}."
        if r.removing_replicas:
            line += f" removing: {_ids(r.removing_replicas)}."
        lines.append(line)
    return "\n".join(lines)


def _ids(replicas: Sequence[BrokerId]) -> str:
    return ",".join(map(str, replicas))


def say_failed(console: Console, error: Exception, _args: Arguments) -> None:
    """On standard output; a terse failure is its message, any other is followed by its exception.

    What the cluster refused came out of a future, and its exception is wrapped accordingly.
    """
    if isinstance(error, Terse):
        console.line(str(error))
        return
    message = error.prefixed if isinstance(error, Refused) else str(error)
    console.line(f"Error: {message}")
    wrapper = "java.util.concurrent.ExecutionException: " if isinstance(error, Refused) else ""
    console.line(wrapper + class_and_message(error))


TOOL = Tool(
    table=TABLE,
    check=check,
    perform=perform,
    say_unparsed=uncaught,
    say_failed=say_failed,
    client_id="reassign-partitions-tool",
)
